// Where every tensor of a model's state lies in a checkpoint's safetensors
// file.  Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// The state of one layer (StageEngine::State()) is a range of the file.
struct StateLayout {
  struct Range {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  SafetensorsLayout file;
  std::vector<Range> layers;
  // ModelDescription::made_with; the file does not have it.
  std::map<std::string, std::string> made_with = {};
};

// The parameters and buffers of each layer under their own names, each followed
// by the optimizer's slots ("fc.weight.optimizer.0"), then what the layer
// borrows ("layer.5.borrowed.wte.weight").
// Errors: those of LayOut()
absl::StatusOr<StateLayout> LayOutState(const ModelDescription& model,
                                        const OptimizerSpec& optimizer);

// Errors: InvalidArgument  a state laid out as `has` is none of `wants`; says
//                          the first difference, or what they were made with
absl::Status CheckSameState(const StateLayout& has, const StateLayout& wants);

}  // namespace paceline
