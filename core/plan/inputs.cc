#include "core/plan/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/job/spec/job_spec.h"
#include "core/model/operation.h"
#include "core/optim/optimizer.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/plan/pooling.h"
#include "core/plan/why.h"
#include "core/predict/time_predictor.h"
#include "core/transfer/tensor_codec.h"
#include "core/weights/derived.h"

namespace paceline {
namespace {

constexpr double kBackwardToForward = 2;  // a backward multiplies twice

// Returns the profiles of exactly this key by worker.  Workers outside the
// request are pooled too, so that a worker's times do not depend on which
// workers are free.
//   key  its device is empty
std::map<std::string, DeviceProfile> FindProfiles(
    const Measurements& measurements, const ProfileKey& key, size_t layers,
    std::vector<LikeDevices>& like) {
  std::vector<DeviceProfile> found;
  for (auto each = measurements.profiles.lower_bound(key);
       each != measurements.profiles.end(); ++each) {
    ProfileKey same = each->first;
    same.device.clear();
    if (same != key) break;
    // A profile with another number of layers is of another version of the
    // model's description.
    if (each->second.layers.size() == layers) found.push_back(each->second);
  }
  std::map<std::string, DeviceProfile> profiles;
  for (DeviceProfile& profile : PoolLikeDevices(std::move(found), &like)) {
    PoolLikeLayers(profile);
    std::string device = profile.key.device;
    profiles.emplace(std::move(device), std::move(profile));
  }
  return profiles;
}

}  // namespace

double SecondsOf(const MeasuredSeconds& seconds, const DeviceProfile& profile) {
  return profile.cpu_share < 1 ? seconds.cpu : seconds.wall;
}

void UseProfile(const DeviceProfile& profile,
                const std::vector<LinkMeasurement>& links, Device& device,
                DeviceFacts& facts) {
  facts.gate_seconds = profile.gate_seconds;
  facts.cpu_share = profile.cpu_share;
  facts.quota_period_seconds = profile.quota_period_seconds;
  for (const LayerMeasurement& layer : profile.layers) {
    facts.forward_seconds.push_back(SecondsOf(layer.forward, profile));
    facts.backward_seconds.push_back(SecondsOf(layer.backward, profile));
    facts.update_seconds.push_back(layer.update_seconds);
  }
  device.frame_seconds = profile.frame_seconds / profile.cpu_share;
  device.frame_seconds_per_byte =
      FrameSecondsPerByte(profile, links) / profile.cpu_share;
}

namespace {

std::vector<LinkMeasurement> LinksOf(const Measurements& measurements) {
  std::vector<LinkMeasurement> links;
  for (const auto& [ends, link] : measurements.links) links.push_back(link);
  return links;
}

// Returns the bytes that a layer reads and writes in its forward pass.  A
// predictor of times uses them, and FLOPs.
double BytesTouched(const LayerMeasurement& layer) {
  return static_cast<double>(layer.parameter_bytes + layer.output_bytes +
                             layer.kept_bytes);
}

// Predicts layer times on workers that have no profile of this key.
class Guess {
 public:
  Guess(const JobSpec& spec, const ModelDescription& model,
        const Measurements& measurements)
      : spec_(spec),
        model_(model),
        measurements_(measurements),
        links_(LinksOf(measurements)) {
    std::vector<DeviceProfile> all;
    for (const auto& [key, profile] : measurements.profiles) {
      all.push_back(profile);
    }
    Measurements pooled;
    for (DeviceProfile& profile : PoolLikeDevices(std::move(all))) {
      const ProfileKey key = profile.key;
      pooled.profiles.emplace(key, std::move(profile));
    }
    absl::StatusOr<LayerPredictor> fitted =
        LayerPredictor::Fit(RecordsOf(pooled));
    if (fitted.ok()) predictor_ = *std::move(fitted);
  }

  bool predicts() const { return predictor_.has_value(); }

  PredictedTimes Fill(const std::string& worker, Device& device,
                      DeviceFacts& facts) const {
    // Costs of frames and of the gate belong to the worker, so its newest
    // profile of any model has them.
    const DeviceProfile* other = nullptr;
    for (const auto& [key, profile] : measurements_.profiles) {
      if (key.device == worker &&
          (other == nullptr ||
           profile.measured_unix_ms > other->measured_unix_ms)) {
        other = &profile;
      }
    }
    if (other != nullptr) {
      DeviceProfile itself = *other;
      itself.layers.clear();
      UseProfile(itself, links_, device, facts);
    }
    Sums sums;
    for (size_t i = 0; i < model_.layers.size(); ++i) {
      facts.forward_seconds.push_back(
          Seconds(worker, i, LayerPass::kForward, sums));
      facts.backward_seconds.push_back(
          Seconds(worker, i, LayerPass::kBackward, sums));
      facts.update_seconds.push_back(0);
    }
    if (sums.assumed || !(sums.seconds > 0)) return {1, 1, true};
    return {sums.low / sums.seconds, sums.high / sums.seconds, false};
  }

 private:
  // Sums over all predicted layer times.
  struct Sums {
    double seconds = 0;
    double low = 0;
    double high = 0;
    bool assumed = false;
  };

  double Seconds(const std::string& worker, size_t index, LayerPass pass,
                 Sums& sums) const {
    const Layer& layer = model_.layers[index];
    if (layer.skipped) return 0;
    const auto batch = static_cast<double>(spec_.train.micro_batch);
    const double flops = layer.forward_flops * batch;
    const bool forward = pass == LayerPass::kForward;
    const double share = forward ? 1 : layer.backward_share;
    if (predictor_.has_value()) {
      const auto predicted =
          predictor_->Predict(WorkOf(spec_, layer, worker, pass));
      if (predicted.ok()) {
        // Inference runs no backward, so its uncertainty does not count.
        if (forward || !IsInference(spec_)) {
          sums.seconds += share * predicted->seconds;
          sums.low += share * predicted->low_seconds;
          sums.high += share * predicted->high_seconds;
        }
        return share * predicted->seconds;
      }
    }
    sums.assumed = true;
    return share * flops / kAssumedFlopsPerSecond *
           (forward ? 1 : kBackwardToForward);
  }

  const JobSpec& spec_;
  const ModelDescription& model_;
  const Measurements& measurements_;
  const std::vector<LinkMeasurement> links_;
  std::optional<LayerPredictor> predictor_;
};

// Returns the bytes of a micro-batch's output of `layer` on the wire.  The
// gradient that comes back lacks masks and tokens, which are few.
double WireBytes(const JobSpec& spec, const Layer& layer) {
  const Codec codec = FindCodec(spec.pipeline.codec).value_or(Codec::kRaw);
  int64_t bytes = 0;
  for (const SampleTensor& tensor : BoundaryTensors(layer)) {
    const Shape shape = Batched(spec.train.micro_batch, tensor.shape);
    const int64_t encoded = EncodedBytes(codec, tensor.dtype, shape);
    bytes += encoded < 0 ? TensorBytes(tensor.dtype, shape) : encoded;
  }
  return static_cast<double>(bytes);
}

}  // namespace

void FillWeights(const Layer& layer, bool has_casts, LayerCost& cost) {
  const WeightBytes weights = WeightBytesOf(layer);
  cost.parameter_bytes = static_cast<double>(weights.own + weights.borrowed);
  cost.borrowed_bytes = static_cast<double>(weights.borrowed);
  cost.frozen_bytes =
      static_cast<double>(weights.frozen) * (has_casts ? 1.5 : 1);
}

namespace {

void FillLayers(const JobSpec& spec, const ModelDescription& model,
                const DeviceFacts& facts, PlanProblem& problem) {
  const auto batch = static_cast<double>(spec.train.micro_batch);
  const Precision precision = PrecisionOf(spec.precision);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    LayerCost cost;
    cost.name = layer.name;
    // Devices have their own times; these only split them by direction.
    cost.forward_seconds = facts.forward_seconds[i];
    cost.backward_seconds = facts.backward_seconds[i];
    cost.output_bytes = WireBytes(spec, layer);
    cost.decoded_bytes = batch * static_cast<double>(layer.output_bytes);
    FillWeights(layer, precision == Precision::kBf16, cost);
    // The described bytes, not the measured ones: EstimateBytes() and the
    // worker count the same, and a plan must pass their checks.
    cost.kept_bytes = batch * static_cast<double>(KeptBytes(
                                  model, static_cast<int>(i), precision));
    problem.layers.push_back(std::move(cost));
  }
  // The first layer's workers read the data.
  problem.layers.front().frozen_bytes += static_cast<double>(DataBytes(spec));
  problem.input_bytes = batch * static_cast<double>(InputBytes(model, 0));
  // Every worker holds the teacher.
  problem.reserved_bytes =
      static_cast<double>(EstimateBytes(model, spec.train, {}, {}, precision));
  problem.ties = TiesOf(model);
}

// Makes the times those of the job.  Skipped layers take none, since a profile
// measures the whole model; a recomputed backward goes forward first; a forward
// is longer in proportion to the teacher's FLOPs.
void AdaptTimes(const ModelDescription& model, bool recomputes, double slowness,
                DeviceFacts& facts) {
  const double own = FlopsOf(model);
  const bool taught = model.teacher != nullptr && own > 0;
  const double forward = taught ? 1 + FlopsOf(*model.teacher) / own : 1;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (recomputes) facts.backward_seconds[i] += facts.forward_seconds[i];
    facts.forward_seconds[i] *= forward;
    for (auto* const seconds : {&facts.forward_seconds, &facts.backward_seconds,
                                &facts.update_seconds}) {
      (*seconds)[i] *= model.layers[i].skipped ? 0 : slowness;
    }
  }
}

// Returns the micro-batches of a step; for an inference job the micro-batches
// of all samples, as far as the spec says (0: an endless stream).
int64_t PlannedMicroBatches(const JobSpec& spec) {
  if (!IsInference(spec)) return MicroBatchesOfAStep(spec.train);
  int64_t samples = spec.infer.samples;
  if (absl::StartsWith(spec.data.name, "synthetic")) {
    const int64_t there = spec.data.test_samples;
    samples = samples > 0 ? std::min(samples, there) : there;
  }
  const int64_t each = std::max<int64_t>(spec.infer.micro_batch, 1);
  // Above kMaxPlannedMicroBatches the bottleneck alone counts.
  const int64_t count = samples / each + (samples % each != 0);
  return count > kMaxPlannedMicroBatches ? 0 : count;
}

void TakeWider(const PredictedTimes& times,
               std::optional<PredictedTimes>& widest) {
  if (!widest.has_value()) {
    widest = times;
    return;
  }
  widest->low_factor = std::min(widest->low_factor, times.low_factor);
  widest->high_factor = std::max(widest->high_factor, times.high_factor);
  widest->assumed = widest->assumed || times.assumed;
}

// "times of 4 like machines were pooled: they differ by 6 %, which is noise";
// empty where no two of `workers` are alike.
std::vector<std::string> PooledTexts(const std::vector<LikeDevices>& like,
                                     const std::vector<InputWorker>& workers) {
  std::vector<std::string> texts;
  for (const LikeDevices& kind : like) {
    std::vector<std::string> here;
    for (const InputWorker& worker : workers) {
      if (kind.devices.contains(worker.name)) here.push_back(worker.name);
    }
    if (here.size() > 1) {
      texts.push_back(absl::StrFormat(
          "times of %d like machines were pooled: they differ by %.0f %%, "
          "which is noise",
          here.size(), 100 * kind.spread));
    }
    if (here.empty() || kind.apart == 0) continue;
    texts.push_back(absl::StrFormat(
        "%s takes %.0f %% %s than like machines, more than noise",
        FewNames(here), 100 * std::abs(kind.apart),
        kind.apart > 0 ? "longer" : "less"));
  }
  return texts;
}

// Adds `what` and the names, if there are any names.
void AddSentence(std::vector<std::string>& parts, absl::string_view what,
                 const std::vector<std::string>& names) {
  if (names.empty()) return;
  parts.push_back(absl::StrCat(what, FewNames(names)));
}

std::string SourceText(const std::vector<std::string>& measured,
                       const std::vector<std::string>& guessed, bool predicts,
                       const std::optional<PredictedTimes>& predicted,
                       const std::vector<std::string>& pooled) {
  std::vector<std::string> parts;
  AddSentence(parts, "layer times measured on ", measured);
  AddSentence(parts,
              predicts ? "layer times predicted from other measurements for "
                       : "layer times assumed from FLOPs for ",
              guessed);
  if (predicted.has_value()) {
    absl::StrAppend(&parts.back(), " (", IntervalText(*predicted), ")");
  }
  parts.insert(parts.end(), pooled.begin(), pooled.end());
  return absl::StrJoin(parts, "; ");
}

// Fills in all links; returns whether all of them are measured.
bool FillLinks(const std::vector<InputWorker>& workers,
               const Measurements& measurements, PlanProblem& problem) {
  const size_t count = workers.size();
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < count; ++i) index[workers[i].name] = i;
  problem.links.assign(
      count, std::vector<LinkCost>(
                 count, {kAssumedBytesPerSecond, kAssumedLatencySeconds}));
  size_t known = 0;
  for (const auto& [ends, link] : measurements.links) {
    const auto from = index.find(ends.first);
    const auto to = index.find(ends.second);
    if (from == index.end() || to == index.end() || from == to) continue;
    problem.links[from->second][to->second] = {link.bytes_per_second,
                                               link.latency_seconds};
    ++known;
  }
  return known == count * (count - 1);
}

}  // namespace

std::vector<TieCost> TiesOf(const ModelDescription& model) {
  std::vector<TieCost> ties;
  for (const SharedParameter& shared : SharedParameters(model)) {
    const int64_t bytes = TensorBytes(DType::kF32, shared.shape);
    ties.push_back({shared.owner, shared.user, static_cast<double>(bytes)});
  }
  return ties;
}

std::string IntervalText(const PredictedTimes& times) {
  if (times.assumed) return "how far off they are is not known";
  return absl::StrFormat("%.0f %% between %.2g and %.2g times as long",
                         100 * kIntervalLevel, times.low_factor,
                         times.high_factor);
}

std::vector<LayerRecord> RecordsOf(const Measurements& measurements) {
  std::vector<LayerRecord> records;
  for (const auto& [key, profile] : measurements.profiles) {
    for (const LayerMeasurement& layer : profile.layers) {
      for (const LayerPass pass : {LayerPass::kForward, LayerPass::kBackward}) {
        const double seconds = SecondsOf(
            pass == LayerPass::kForward ? layer.forward : layer.backward,
            profile);
        if (!(seconds > 0)) continue;  // the layer has no such pass
        absl::string_view kind = layer.kind;
        const bool frozen = absl::ConsumeSuffix(&kind, kFrozenKind);
        if (frozen && pass == LayerPass::kBackward) continue;
        records.push_back({{.kind = std::string(kind),
                            .dtype = key.dtype,
                            .device = key.device,
                            .threads = key.threads,
                            .pass = pass,
                            .flops = layer.flops,
                            .bytes = BytesTouched(layer)},
                           seconds});
      }
    }
  }
  return records;
}

LayerWork WorkOf(const JobSpec& spec, const Layer& layer,
                 const std::string& worker, LayerPass pass) {
  const auto batch = static_cast<double>(spec.train.micro_batch);
  return {.kind = MainOperation(layer),
          .dtype = ProfileDType(spec.precision),
          .device = worker,
          .threads = spec.threads,
          .pass = pass,
          .flops = layer.forward_flops * batch,
          .bytes = static_cast<double>(layer.parameter_bytes) +
                   batch * static_cast<double>(layer.output_bytes +
                                               layer.activation_bytes)};
}

std::string MainOperation(const Layer& layer) {
  for (const Operation& operation : layer.operations) {
    if (HasTrait(operation.kind, kMultiplies)) return operation.kind;
  }
  return layer.operations.empty() ? "none" : layer.operations.back().kind;
}

std::string ProfileKind(const Layer& layer) {
  return absl::StrCat(MainOperation(layer),
                      layer.backward_share < 1 ? kFrozenKind : "");
}

PlanInputs MakePlanInputs(const JobSpec& spec, const ModelDescription& model,
                          const std::vector<InputWorker>& workers,
                          const Measurements& measurements) {
  PlanInputs inputs;
  PlanProblem& problem = inputs.problem;
  problem.micro_batches = PlannedMicroBatches(spec);
  problem.training = !IsInference(spec);
  problem.sync_overlaps = IsInference(spec);
  // Inference keeps no activations, so it recomputes none.
  const Recompute recompute =
      problem.training ? FindRecompute(spec.train.activation_checkpointing)
                             .value_or(Recompute())
                       : Recompute();
  // Only the owner keeps the optimizer's state and the casts.
  problem.owner_copies =
      (problem.training ? StateSlots(spec.train.optimizer) : 0) +
      (spec.precision == "bf16" ? 0.5 : 0);
  // Training also keeps a gradient.
  problem.parameter_copies = (problem.training ? 2 : 1) + problem.owner_copies;
  if (problem.training) CountMemoryOf(spec.pipeline.schedule, problem);
  problem.same_versions = spec.pipeline.vertical_sync;
  problem.version_copies = spec.precision == "bf16" ? 1.5 : 1;
  if (recompute.recomputes) {
    problem.segment_layers = recompute.every == kWholeStage
                                 ? static_cast<int>(model.layers.size())
                                 : recompute.every;
  }

  std::vector<LikeDevices> like;
  const std::map<std::string, DeviceProfile> profiles = FindProfiles(
      measurements,
      {ModelKey(spec.model, model.input, model.classes), spec.train.micro_batch,
       ProfileDType(spec.precision), spec.threads, ""},
      model.layers.size(), like);
  std::optional<Guess> guess;  // made on first use: it takes time
  const std::vector<LinkMeasurement> links = LinksOf(measurements);
  std::vector<std::string> measured, guessed;
  std::map<std::string, int> machines;
  for (const InputWorker& worker : workers) {
    Device device;
    device.name = worker.name;
    device.memory_bytes = static_cast<double>(worker.memory_bytes);
    device.machine =
        machines.emplace(worker.machine_id, machines.size()).first->second;
    DeviceFacts facts;
    const auto profile = profiles.find(worker.name);
    if (profile != profiles.end()) {
      UseProfile(profile->second, links, device, facts);
      measured.push_back(worker.name);
    } else {
      if (!guess.has_value()) guess.emplace(spec, model, measurements);
      TakeWider(guess->Fill(worker.name, device, facts), inputs.predicted);
      guessed.push_back(worker.name);
    }
    AdaptTimes(model, recompute.recomputes, worker.slowness, facts);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      device.layer_seconds.push_back(
          (facts.forward_seconds[i] +
           (problem.training ? facts.backward_seconds[i] : 0)) /
          facts.cpu_share);
    }
    problem.devices.push_back(std::move(device));
    inputs.facts.push_back(std::move(facts));
  }
  FillLayers(spec, model, inputs.facts.front(), problem);
  const bool links_known = FillLinks(workers, measurements, problem);

  inputs.source =
      SourceText(measured, guessed, guess.has_value() && guess->predicts(),
                 inputs.predicted, PooledTexts(like, workers));
  if (!links_known) {
    absl::StrAppend(&inputs.source, inputs.source.empty() ? "" : "; ",
                    "links that were not measured taken as 1 Gbit/s");
  }
  inputs.measured = guessed.empty() && links_known;
  return inputs;
}

}  // namespace paceline
