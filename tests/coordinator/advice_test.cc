#include "coordinator/advice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Advice, OfSkippedStepsSpeaksOfWhatCanHaveSkippedThem) {
  JobRecord job;
  job.step = job.skipped_steps = 30;
  EXPECT_THAT(WhyMostlySkipped(job), HasSubstr("no gradient was finite"));
  EXPECT_THAT(AdviceAfterSkips(job.spec), Not(HasSubstr("aggregation")));

  job.spec.aggregation.mode = "rolling";
  EXPECT_THAT(WhyMostlySkipped(job),
              AllOf(HasSubstr("no round had enough parts that could be used"),
                    HasSubstr("what the rule made of them was not finite")));
  EXPECT_THAT(AdviceAfterSkips(job.spec),
              AllOf(HasSubstr("another aggregation.rule"),
                    HasSubstr("lower train.learning_rate.base"),
                    Not(HasSubstr("faults"))));

  job.spec.faults.emplace_back();
  job.skipped_steps = 20;
  EXPECT_THAT(WhyMostlySkipped(job),
              HasSubstr("most rounds did not have enough parts"));
  EXPECT_THAT(AdviceAfterSkips(job.spec),
              HasSubstr("leave its `faults` out, or take another "));
}

}  // namespace
}  // namespace paceline
