// A plan with all that it was made from: what `plan --save` writes, `simulate
// --plan` runs and `job submit --plan` follows.  Its text form is JSON:
// client/rpc/plan_file.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/cost.h"
#include "core/plan/inputs.h"
#include "core/plan/problem.h"

namespace paceline {

struct PlanFile {
  PlanProblem problem = {};
  Placement placement = {};
  std::string schedule = "1f1b";
  std::string model = {};   // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  // [devices], or empty: what only a simulator asks of a device.
  std::vector<DeviceFacts> facts = {};
  std::string policy = {};  // that made it
  std::string why = {};     // for people
  std::string source = {};  // of the times, for people
  // Where some of these times were not measured.
  std::optional<PredictedTimes> predicted = std::nullopt;

  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};

}  // namespace paceline
