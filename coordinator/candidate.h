// Workers that may get a job, for pipelines and for groups.
#pragma once

#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/cluster/membership.h"
#include "core/plan/plan.h"

namespace paceline {

// A live worker and what it is doing.
struct Candidate {
  const Member* member;    // not null
  JobId job;               // unassigned: idle
  bool measuring = false;  // for a person; not to be disturbed
  bool drained = false;    // gets nothing new
};

PlannerWorker ToPlanner(const Member& member);

// Those of `names` that cannot be had: "pipeline.workers names w7, w8, which
// are not attached; pipeline.workers names w9, which is drained (...)"; empty:
// none.  key: where the names stand.
std::string AbsentText(const std::string& key,
                       const std::vector<std::string>& names,
                       const std::vector<Candidate>& candidates);

}  // namespace paceline
