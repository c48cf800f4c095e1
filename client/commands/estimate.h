// Estimates what a job will need before it runs: for `job submit --dry-run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/document.h"
#include "client/render/report.h"

namespace paceline {

struct StageEstimate {
  v1::StagePlacement placement;
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
  bool chosen = true;  // false: how many stages is decided once there are
                       // workers; these are as for one
  std::optional<v1::RunEstimate> run;  // nothing while there is no worker
  int64_t steps = 0;                   // of the job; 0: not known here
  // Only a data-parallel job has shards; 0: none, or not known before there are
  // workers.
  int32_t shards = 0;
};

// stages: as the coordinator would place them; empty while it has no worker,
// and then the cuts are made here and nobody holds them.
// Errors: InvalidArgument  the spec is wrong
absl::StatusOr<JobEstimate> EstimateJob(
    const JobSpec& spec, Placements stages,
    std::optional<v1::RunEstimate> run = std::nullopt);

// Lines for people: what a step takes, samples a second, bubbles, where the
// times come from, and all of it when `steps` is known (not 0).
std::vector<std::pair<std::string, std::string>> RunFacts(
    const v1::RunEstimate& run, int64_t steps);

Document ToDocument(const JobEstimate& estimate);
std::string RenderEstimate(const JobEstimate& estimate);

}  // namespace paceline
