// From what is known of a mesh to what a planning policy is asked.  Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/measurement.h"
#include "core/plan/problem.h"
#include "core/predict/layer_predictor.h"

namespace paceline {

// A worker that could hold stages.
struct InputWorker {
  std::string name;
  std::string machine_id;    // workers of one machine are near each other
  int64_t memory_bytes = 0;  // 0: not known
  // Its layers take so many times as long now as was measured or predicted.
  double slowness = 1;
};

// Everything that was ever measured; of other models and batches too.
struct Measurements {
  std::map<ProfileKey, DeviceProfile> profiles;
  std::map<std::pair<std::string, std::string>, LinkMeasurement> links;
};

// A run asks this of a device besides its layers.
struct DeviceFacts {
  double gate_seconds = 0;  // CPU of a step gate's report, each end
  // Below 1: a quota stops a busy thread every quota_period_seconds.
  double cpu_share = 1;
  double quota_period_seconds = 0;
  std::vector<double> forward_seconds;   // [layers], CPU time at full speed
  std::vector<double> backward_seconds;  // [layers]
  std::vector<double> update_seconds;    // [layers], once a step

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// How well layer times are known that were not measured: factors on the sum of
// the predicted ones between which the true sum is in about kIntervalLevel
// (core/predict/time_predictor.h) of cases or more, since layers are taken to
// err together.  Of the device of which least is known.
struct PredictedTimes {
  double low_factor = 1;
  double high_factor = 1;
  bool assumed = false;  // from FLOPs: nobody knows the factors

  friend bool operator==(const PredictedTimes&,
                         const PredictedTimes&) = default;
};

// "90 % between 0.42 and 2.4 times as long", or that nobody knows.
std::string IntervalText(const PredictedTimes& times);

struct PlanInputs {
  // Objective, limits and memory as the spec says; stages from
  // spec.pipeline.stages where there are as many workers.
  PlanProblem problem;
  std::vector<DeviceFacts> facts;  // [devices]
  // Where the times come from, for people: "measured on a, b; predicted for c
  // from other measurements; links of d assumed to be 1 Gbit/s", and how sure
  // they are: what was pooled.
  std::string source;
  bool measured = false;  // all of it, links included
  // Where some layer time is not measured.
  std::optional<PredictedTimes> predicted = std::nullopt;
};

// Assumed of what was never measured.
inline constexpr double kAssumedFlopsPerSecond = 1e10;
inline constexpr double kAssumedBytesPerSecond = 1.25e8;  // 1 Gbit/s
inline constexpr double kAssumedLatencySeconds = 2e-4;
// A link that cannot be dialled counts as so slow that a plan does without it
// if it can.
inline constexpr double kRefusedBytesPerSecond = 1;

// Micro-batches of a step; of an inference job all there are, as far as the
// spec says (0: an endless stream). Errors: InvalidArgument  as MakePlanInputs.
absl::StatusOr<int64_t> PlannedMicroBatches(const JobSpec& spec);

// workers: at least one; devices of the problem are these, in this order.
// Layer times of a worker come from its profile of this model, micro-batch and
// threads, pooled with those of all like machines and over like layers
// (pooling.h); else they are predicted from other profiles (core/predict),
// scaled by what is known of the worker; else from FLOPs.
//
// Errors: InvalidArgument  sizes below 1, or more micro-batches than can be
// planned.
absl::StatusOr<PlanInputs> MakePlanInputs(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<InputWorker>& workers, const Measurements& measurements);

// CPU time at full speed: where a quota stops the thread its wall time says
// more of the quota than of the layer.
double SecondsOf(const MeasuredSeconds& seconds, const DeviceProfile& profile);

// Fills in what was measured of a device and its links; layer_seconds stay as
// they are.
void UseProfile(const DeviceProfile& profile,
                const std::vector<LinkMeasurement>& links, Device& device,
                DeviceFacts& facts);

// Fills in the bytes of a layer's weights.
//   has_casts  bf16: a copy of half the bytes beside frozen ones
void FillWeights(const Layer& layer, bool has_casts, LayerCost& cost);

// Lists the weights that layers of `model` share and steps change.
std::vector<TieCost> TiesOf(const ModelDescription& model);

// Returns the records that a predictor of layer times learns from: both passes
// of all layers that take time at all, but no backwards of layers of which a
// part was frozen.
std::vector<LayerRecord> RecordsOf(const Measurements& measurements);

// Returns the question to such a predictor about a layer of spec's model on
// `worker`.
LayerWork WorkOf(const JobSpec& spec, const Layer& layer,
                 const std::string& worker, LayerPass pass);

// The operation of a layer that has most of its FLOPs: its kind, for a
// predictor of times.
std::string MainOperation(const Layer& layer);

// Returns the layer's kind in a profile, where layers of one kind count as
// alike.  It ends in kFrozenKind where a part of the layer is frozen, since its
// backward has less to do.
inline constexpr char kFrozenKind[] = ", frozen";
std::string ProfileKind(const Layer& layer);

// ceil(batch / micro_batch).
// Errors: InvalidArgument  sizes below 1, or more than kMaxPlannedMicroBatches.
absl::StatusOr<int> CountMicroBatches(const TrainSpec& train);

}  // namespace paceline
