// What a job will need, before it runs: for `job submit --dry-run`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/document.h"
#include "client/views.h"

namespace paceline {

struct StageEstimate {
  PlacementView placement;
  std::string first_layer;  // names
  std::string last_layer;   // the last one inside
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;
  int64_t memory_bytes = 0;  // parameters, gradients, optimizer, activations
  double forward_flops = 0;  // a sample
};

struct JobEstimate {
  int layers = 0;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;
  std::vector<StageEstimate> stages;
};

// stages: as the coordinator would place them; empty while it has no worker,
// and then the cuts are made here and nobody holds them.
// Errors: InvalidArgument  the spec is wrong
absl::StatusOr<JobEstimate> EstimateJob(const JobSpec& spec,
                                        std::vector<PlacementView> stages);

Document ToDocument(const JobEstimate& estimate);
std::string RenderEstimate(const JobEstimate& estimate);

}  // namespace paceline
