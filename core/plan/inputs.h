// Builds a policy's input from the measurements of a mesh.  Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/measurement.h"
#include "core/plan/problem.h"
#include "core/predict/layer_predictor.h"

namespace paceline {

// A worker that could hold stages.
struct InputWorker {
  std::string name;
  std::string machine_id;    // workers of one machine are near each other
  int64_t memory_bytes = 0;  // 0: not known
  // Factor by which its layers now take longer than measured or predicted.
  double slowness = 1;
};

// All stored measurements, also of other models and batches.
struct Measurements {
  std::map<ProfileKey, DeviceProfile> profiles;
  std::map<std::pair<std::string, std::string>, LinkMeasurement> links;
};

// Costs of a device in a run besides its layers.
struct DeviceFacts {
  double gate_seconds = 0;  // CPU time of a step gate's report, each end
  // Below 1: a quota stops a busy thread every quota_period_seconds.
  double cpu_share = 1;
  double quota_period_seconds = 0;
  std::vector<double> forward_seconds;   // [layers], CPU time at full speed
  std::vector<double> backward_seconds;  // [layers]
  std::vector<double> update_seconds;    // [layers], once a step

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// How well layer times are known that were not measured.  The true sum is
// between low_factor and high_factor times the predicted sum in about
// kIntervalLevel (core/predict/time_predictor.h) of cases or more, because the
// errors of layers are taken to add up.  The factors are the widest of all
// devices.
struct PredictedTimes {
  double low_factor = 1;
  double high_factor = 1;
  bool assumed = false;  // from FLOPs: the factors are unknown

  friend bool operator==(const PredictedTimes&,
                         const PredictedTimes&) = default;
};

// "90 % between 0.42 and 2.4 times as long", or that the factors are unknown.
std::string IntervalText(const PredictedTimes& times);

struct PlanInputs {
  // Objective, limits and memory are as the spec says, stages too where there
  // are at least as many workers.
  PlanProblem problem;
  std::vector<DeviceFacts> facts;  // [devices]
  // The origin of the times and their pooling, for people: "measured on a, b;
  // predicted for c from other measurements; links of d assumed to be 1
  // Gbit/s".
  std::string source;
  bool measured = false;  // all times and links are measured
  // Set where some layer time is not measured.
  std::optional<PredictedTimes> predicted = std::nullopt;
};

// Assumed where nothing was measured.
inline constexpr double kAssumedFlopsPerSecond = 1e10;
inline constexpr double kAssumedBytesPerSecond = 1.25e8;  // 1 Gbit/s
inline constexpr double kAssumedLatencySeconds = 2e-4;
// A refused link counts as so slow that a plan avoids it if it can.
inline constexpr double kRefusedBytesPerSecond = 1;

// workers: at least one; they are the devices of the problem, in this order.
// The layer times of a worker come from its profile of this model, micro-batch
// and threads, pooled with those of all like machines and over like layers
// (pooling.h).  Without a profile they are predicted from other profiles
// (core/predict), scaled by known facts of the worker; without any profile they
// come from FLOPs.
PlanInputs MakePlanInputs(const JobSpec& spec, const ModelDescription& model,
                          const std::vector<InputWorker>& workers,
                          const Measurements& measurements);

// Returns CPU time at full speed where a quota stops the thread, since wall
// time would then measure the quota; wall time elsewhere.
double SecondsOf(const MeasuredSeconds& seconds, const DeviceProfile& profile);

// Fills in the measurements of a device and its links; does not change
// layer_seconds.
void UseProfile(const DeviceProfile& profile,
                const std::vector<LinkMeasurement>& links, Device& device,
                DeviceFacts& facts);

// Fills in the bytes of a layer's weights.
//   has_casts  bf16: a copy of half the bytes beside frozen ones
void FillWeights(const Layer& layer, bool has_casts, LayerCost& cost);

// Lists the weights that layers of `model` share and steps change.
std::vector<TieCost> TiesOf(const ModelDescription& model);

// Returns the records that a predictor of layer times learns from: both passes
// of all layers that take any time, but no backward of a partly frozen layer.
std::vector<LayerRecord> RecordsOf(const Measurements& measurements);

// Returns the query to such a predictor about a layer of spec's model on
// `worker`.
LayerWork WorkOf(const JobSpec& spec, const Layer& layer,
                 const std::string& worker, LayerPass pass);

// Returns the kind of the operation that has most of a layer's FLOPs, for a
// predictor of times.
std::string MainOperation(const Layer& layer);

// Returns the layer's kind in a profile; layers of one kind are pooled.  It
// ends in kFrozenKind where a part of the layer is frozen, since the backward
// of such a layer computes less.
inline constexpr char kFrozenKind[] = ", frozen";
std::string ProfileKind(const Layer& layer);

}  // namespace paceline
