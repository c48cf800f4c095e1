#include "coordinator/candidate.h"

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

}  // namespace paceline
