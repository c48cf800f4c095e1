// What `plan --profile FILE` may hold: a published layer graph, what `profile
// -o json` printed, or a plan file.  Values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/plan_file.h"
#include "core/plan/measurement.h"
#include "core/plan/pipedream/graph_profile.h"

namespace paceline {

// One of graph, plan and profiles.
struct ProfileSource {
  std::string name;  // of the file
  std::optional<GraphProfile> graph;
  std::optional<PlanFile> plan;
  std::vector<DeviceProfile> profiles;  // of one model and micro-batch
  std::vector<LinkMeasurement> links;
};

}  // namespace paceline
