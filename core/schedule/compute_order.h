// The generators: in which order a stage computes, before anything is sent or
// received.  Pure.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "core/schedule/schedule.h"

namespace paceline {

// One F or B.
struct Compute {
  int stage = 0;
  int micro_batch = 0;
  bool backward = false;

  friend bool operator==(const Compute&, const Compute&) = default;
};

using ComputeOrder = std::vector<Compute>;

// The order of one stage.  A generator looks at request.stages,
// micro_batches and training only: where stages lie is the merge's business.
using Generator = ComputeOrder (*)(const ScheduleRequest& request, int stage);

// Null when there is no such schedule.
Generator FindGenerator(absl::string_view name);

}  // namespace paceline
