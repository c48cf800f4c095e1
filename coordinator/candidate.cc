#include "coordinator/candidate.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {

PlannerWorker ToPlanner(const Member& member) {
  return {member.id, member.registration.name, member.registration.memory_bytes,
          member.registration.machine_id};
}

std::string AbsentText(const std::string& key,
                       const std::vector<std::string>& names,
                       const std::vector<Candidate>& candidates) {
  std::set<std::string> missing(names.begin(), names.end());
  std::set<std::string> drained;
  for (const Candidate& candidate : candidates) {
    const std::string& name = candidate.member->registration.name;
    if (missing.erase(name) > 0 && candidate.drained) drained.insert(name);
  }
  std::vector<std::string> parts;
  const auto add = [&](const std::set<std::string>& of, const char* what) {
    if (of.empty()) return;
    parts.push_back(
        absl::StrCat(key, " names ", absl::StrJoin(of, ", "),
                     of.size() == 1 ? ", which is " : ", which are ", what));
  };
  add(missing, "not attached");
  add(drained, "drained (paceline node undrain NAME takes one back)");
  return absl::StrJoin(parts, "; ");
}

}  // namespace paceline
