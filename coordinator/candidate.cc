#include "coordinator/candidate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {

PlannerWorker ToPlanner(const Member& member) {
  return {member.id, member.registration.name, member.registration.memory_bytes,
          member.registration.machine_id};
}

std::set<std::string> NotAttached(const std::vector<std::string>& names,
                                  const std::vector<Candidate>& candidates) {
  std::set<std::string> missing(names.begin(), names.end());
  for (const Candidate& candidate : candidates) {
    missing.erase(candidate.member->registration.name);
  }
  return missing;
}

std::string JobsText(const std::set<JobId>& jobs) {
  return absl::StrCat(
      jobs.size() == 1 ? "job " : "jobs ",
      absl::StrJoin(jobs, ", ", [](std::string* out, const JobId& job) {
        absl::StrAppend(out, job.value);
      }));
}

}  // namespace paceline
