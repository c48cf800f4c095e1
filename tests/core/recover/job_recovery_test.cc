// Scripts are played and tell what becomes of a job.
#include "core/recover/job_recovery.h"

#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/core/recover/recovery_script.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

std::string Play(const std::string& script) {
  return RecoveryScript().Play(script);
}

TEST(JobRecovery, OfPipelines) { ExpectAnswers("core/recovery", Play); }

TEST(JobRecovery, OfGroups) { ExpectAnswers("core/group_recovery", Play); }

TEST(JobTransitions, LeadToOnePhaseEach) {
  std::set<std::pair<JobPhase, JobCause>> seen;
  for (const JobTransition& row : kJobTransitions) {
    EXPECT_TRUE(seen.insert({row.from, row.cause}).second)
        << JobPhaseName(row.from) << ", " << JobCauseName(row.cause);
  }
}

}  // namespace
}  // namespace paceline
