// Weights that are made of a job's: pruned ones, and those with adapters as
// other programs take them.  Pure.
//
// Structured pruning: units that matter little leave a model, which is then one
// of other sizes (model.sizes), and computes less.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// Where a unit lies in a tensor: the axis consists of `runs` runs, and each of
// them of equal slices, one a unit.
struct UnitAxis {
  std::string tensor;
  int axis = 0;
  int64_t runs = 1;

  friend bool operator==(const UnitAxis&, const UnitAxis&) = default;
};

// Units that can only leave with all of their slices: numbers of a token, heads
// of an attention, hidden units, channels.  Blocks add their results to what
// comes in, so that all of a stream share one group.
struct UnitGroup {
  int32_t units = 0;
  std::vector<UnitAxis> axes;  // none where one unit is left
};

// One for each of ModelDescription::sizes, in their order.  An axis belongs to
// a group when its length follows the group's size.
// Errors: those of DescribeModel()
absl::StatusOr<std::vector<UnitGroup>> UnitGroupsOf(const ModelSpec& spec,
                                                    const Shape& input,
                                                    int32_t classes);

// How much each unit of each group matters.
using UnitScores = std::vector<std::vector<double>>;

// By the sum of the absolute values of its weights (Li et al. 2017).
UnitScores ScoresOfWeights(const std::vector<UnitGroup>& groups,
                           const std::vector<NamedTensor>& weights);

// Adds (w g)^2, where w g is the sum over all weights of the unit (Molchanov et
// al. 2019, eq. 8).
//   after  `weights` after one step of SGD at learning rate 1: the difference
//          is g
void AddScoresOfStep(const std::vector<UnitGroup>& groups,
                     const std::vector<NamedTensor>& weights,
                     const std::vector<NamedTensor>& after, UnitScores& scores);

// Returns `weights` with those units of `group` that `kept` names (ascending).
std::vector<NamedTensor> WithUnits(const UnitGroup& group,
                                   const std::vector<int32_t>& kept,
                                   std::vector<NamedTensor> weights);

// Multiply-adds and all else that a forward computes, a sample.
double FlopsOf(const ModelDescription& model);

// A group keeps at least this share of its units.
inline constexpr double kLeastUnits = 0.125;

// Errors: InvalidArgument  `target` is not in (0, 1); a model without groups: a
//                          script, or one whose layers are tied
absl::Status CheckPrunable(const ModelSpec& spec, double target);

struct PrunedModel {
  ModelDescription model;
  std::vector<NamedTensor> weights;
};

// Removes units until at most `target` of the forward's flops are left.  A step
// removes a 16th of a group's units.  In groups of 32 units or more it removes
// a multiple of 8, since convolutions compute 8 channels at once.  It removes
// the units that matter least, from the group where these have the smallest
// scores relative to the group's mean.
//   weights  all of the model's
//   scores   of UnitGroupsOf() the model
// Errors: InvalidArgument  `target` would leave less than kLeastUnits of the
//                          groups; those of CheckPrunable(), DescribeModel()
absl::StatusOr<PrunedModel> Prune(const ModelSpec& spec, const Shape& input,
                                  int32_t classes,
                                  const std::vector<NamedTensor>& weights,
                                  UnitScores scores, double target);

// --- adapters (model.lora): alone, or merged into the weights beside them ---

// A linear map with an adapter beside it: names of modules and parameters.
struct AdaptedMap {
  std::string peft_name;  // the module, as Hugging Face's PEFT wraps it
  std::string weight;
  std::string in;         // A [rank, in]
  std::string out;        // B [out, rank]
  bool in_first = false;  // the weight is [in, out]
  double scale = 0;
};

// In layer order; empty: the model has no adapters.
std::vector<AdaptedMap> AdaptedMapsOf(const ModelDescription& model);

// `weights` without adapters: of each map W + scale B A takes the place of W.
// Errors: InvalidArgument  not all of the model's tensors of the maps are there
absl::StatusOr<std::vector<NamedTensor>> MergeAdapters(
    const ModelDescription& model, std::vector<NamedTensor> weights);

// Those of `weights` that trained, adapters and class head, in the names that
// PEFT gives them in adapter_model.safetensors.
std::vector<NamedTensor> PeftTensors(const ModelDescription& model,
                                     const std::vector<NamedTensor>& weights);

}  // namespace paceline
