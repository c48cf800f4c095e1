#include "core/plan/memory.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"
#include "core/job/spec/job_spec.h"
#include "core/model/operation.h"
#include "core/optim/optimizer.h"
#include "core/plan/plan.h"
#include "core/round/rules/rule.h"

namespace paceline {
namespace {

// Returns the bytes of one sample's activation and gradient at each boundary of
// `range`.
Bytes BoundaryBytes(const ModelDescription& model, const LayerRange& range) {
  constexpr int64_t kFramesOfABoundary = 2;
  Bytes bytes;
  if (range.first > 0) bytes += model.layers[range.first - 1].output_bytes;
  if (range.last < static_cast<int>(model.layers.size())) {
    bytes += model.layers[range.last - 1].output_bytes;
  }
  return kFramesOfABoundary * bytes;
}

// Returns the bytes that `range` keeps from forward to backward, for one
// sample.
Bytes ActivationBytes(const ModelDescription& model, const LayerRange& range,
                      const StageKeeps& keeps, Precision precision,
                      const Recompute& recompute) {
  Bytes inputs;      // of segments
  Bytes everything;  // of layers
  Bytes outputs;     // of layers
  Bytes largest;     // everything of one segment
  Bytes widest;      // everything of one layer, and its output
  for (const auto& [first, last] :
       SegmentsOf(recompute, range.last - range.first)) {
    Bytes segment;
    for (int layer = range.first + first; layer < range.first + last; ++layer) {
      const Bytes kept = KeptBytes(model, layer, precision);
      const Bytes output = model.layers[layer].output_bytes;
      segment += kept;
      outputs += output;
      widest = std::max(widest, kept + output);
    }
    inputs += InputBytes(model, range.first + first);
    everything += segment;
    largest = std::max(largest, segment);
  }
  // Inference has the activations of one layer at a time.
  if (keeps.versions == 0) return widest;
  if (!recompute.recomputes) {
    return keeps.micro_batches * everything + keeps.split * outputs;
  }
  // Recomputed activations stay until the second half of the backward.
  return keeps.micro_batches * inputs +
         (keeps.micro_batches > 0 ? largest : Bytes()) +
         keeps.split * everything + keeps.split * outputs;
}

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

int64_t TrainableElements(const Layer& layer) {
  Bytes elements;
  for (const Parameter& parameter : layer.parameters) {
    if (!parameter.trainable) continue;
    elements += std::max<int64_t>(0, NumElements(parameter.shape));
  }
  return elements.count;
}

int64_t TrainableElements(const ModelDescription& model) {
  Bytes elements;
  for (const Layer& layer : model.layers) elements += TrainableElements(layer);
  return elements.count;
}

WeightBytes WeightBytesOf(const Layer& layer) {
  WeightBytes bytes{layer.parameter_bytes, layer.borrowed_bytes, 0};
  for (const Parameter& parameter : layer.parameters) {
    if (!parameter.frozen) continue;
    bytes.own -= TensorBytes(parameter.dtype, parameter.shape);
  }
  for (const Parameter& parameter : layer.borrowed) {
    if (!parameter.frozen) continue;
    bytes.borrowed -= TensorBytes(parameter.dtype, parameter.shape);
  }
  bytes.frozen =
      layer.parameter_bytes - bytes.own + layer.borrowed_bytes - bytes.borrowed;
  return bytes;
}

int64_t InputBytes(const ModelDescription& model, int layer) {
  if (layer > 0) return model.layers[layer - 1].output_bytes;
  return TensorBytes(model.input_dtype, model.input);
}

int64_t KeptBytes(const ModelDescription& model, int layer,
                  Precision precision) {
  const int64_t bytes = model.layers[layer].activation_bytes;
  const std::vector<Operation>& operations = model.layers[layer].operations;
  // Gates and cells are float32 under both precisions.
  const bool recurrent = std::any_of(
      operations.begin(), operations.end(), [](const Operation& operation) {
        return HasTrait(operation.kind, kIsRecurrent);
      });
  if (precision == Precision::kF32 || recurrent) return bytes;
  // Two copies of the input, one as received and one cast for the product; the
  // rest in two bytes.
  return (Bytes(bytes / 2) + InputBytes(model, layer)).count;
}

std::vector<int> StageNumbers(const std::vector<StageOfPlan>& stages) {
  std::vector<int> numbers;
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool replica = i > 0 && stages[i].layers == stages[i - 1].layers;
    numbers.push_back(i == 0 ? 0 : numbers.back() + (replica ? 0 : 1));
  }
  return numbers;
}

std::vector<RouteTable> RoutesOf(const std::vector<StageOfPlan>& stages) {
  const std::vector<int> numbers = StageNumbers(stages);
  std::vector<RouteTable> routes;
  std::vector<double> shares;
  for (size_t i = 0; i < stages.size(); ++i) {
    shares.push_back(stages[i].share);
    if (i + 1 < stages.size() && numbers[i + 1] == numbers[i]) continue;
    routes.push_back(MakeRouteTable(shares));
    shares.clear();
  }
  return routes;
}

int64_t BytesOn(const Plan& plan, WorkerId worker) {
  for (const WorkerBytes& need : plan.memory) {
    if (need.worker == worker) return need.bytes;
  }
  return 0;
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  size_t unit = 0;
  int64_t whole = bytes;
  int64_t rest = 0;
  for (; whole >= 1024; ++unit) {
    rest = whole % 1024;
    whole /= 1024;
  }
  return absl::StrCat(whole, ".", rest * 10 / 1024, " ", kUnits[unit - 1]);
}

std::string BytesTextOfSum(double bytes) {
  constexpr double kMostBytes = 9e18;  // fits int64_t
  return BytesText(static_cast<int64_t>(std::min(bytes, kMostBytes)));
}

std::vector<StageKeeps> KeepsOfStages(const ScheduleBounds& bounds) {
  std::vector<StageKeeps> keeps;
  for (size_t s = 0; s < bounds.kept_micro_batches.size(); ++s) {
    keeps.push_back({bounds.kept_micro_batches[s],
                     bounds.split_micro_batches[s], bounds.kept_versions[s]});
  }
  return keeps;
}

int64_t EstimateBytes(const ModelDescription& model, const TrainSpec& train,
                      const std::vector<LayerRange>& ranges,
                      const std::vector<StageKeeps>& keeps,
                      Precision precision) {
  PACELINE_CHECK_EQ(ranges.size(), keeps.size());
  const Recompute recompute =
      FindRecompute(train.activation_checkpointing).value_or(Recompute());
  Bytes total;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t versions = keeps[i].versions;
    // The summed gradient, the optimizer's state, and each version of the
    // value.
    const int64_t copies = 1 + StateSlots(train.optimizer) + versions;
    for (int layer = ranges[i].first; layer < ranges[i].last; ++layer) {
      const WeightBytes weights = WeightBytesOf(model.layers[layer]);
      total += copies * Bytes(weights.own) + weights.frozen;
      // The gradient, and each version of the value.
      total += (1 + versions) * Bytes(weights.borrowed);
      if (precision != Precision::kBf16) continue;
      total += std::max<int64_t>(1, versions) * Bytes(weights.own / 2) +
               weights.frozen / 2;
    }
    total += train.micro_batch * (BoundaryBytes(model, ranges[i]) +
                                  ActivationBytes(model, ranges[i], keeps[i],
                                                  precision, recompute));
  }
  if (model.teacher != nullptr) {
    const LayerRange all{0, static_cast<int>(model.teacher->layers.size())};
    TrainSpec forward = train;
    forward.optimizer = {};
    total += EstimateBytes(*model.teacher, forward, {all}, {kInferenceKeeps},
                           precision);
  }
  return total.count;
}

RoundBytes RoundBytesOf(const JobSpec& spec, const ModelDescription& model,
                        int64_t members) {
  PACELINE_CHECK(members >= 1, "a group has members");
  const bool narrow = spec.aggregation.codec == "bf16";
  const int64_t width = narrow ? 2 : 4;
  const int64_t elements = TrainableElements(model);
  const int64_t shards = ShardsOf(spec, model, members);
  const Bytes shard = Bytes(width) * CeilDivide(elements, shards);
  RoundBytes bytes;
  bytes.gradient = (Bytes(width) * elements).count;
  bytes.part = narrow ? bytes.gradient : 0;
  bytes.held = bytes.gradient;
  // Gossip has no results that all members share.
  if (!IsGossip(spec)) {
    bytes.kept = (kKeptResults * Bytes(bytes.gradient)).count;
  }
  // The member's own part is already counted, in `part` or as the gradient.
  bytes.served = ((members - 1) * (CeilDivide(shards, members) * shard)).count;
  const RuleTraits* const rule = FindRule(spec.aggregation.rule);
  if (rule != nullptr && rule->trusts_a_batch) {
    bytes.trial = (4 * Bytes(elements)).count;
  }
  return bytes;
}

int64_t OrderBytes(const JobSpec& spec, int64_t train_samples) {
  if (IsInference(spec)) return 0;
  // With samples of their own, each member has a queue of them, and a table
  // says which member has each.
  const int64_t each = spec.data.distribution == "iid" ? 4 : 4 + 4 + 2;
  return (Bytes(each) * train_samples).count;
}

int64_t DataBytes(const JobSpec& spec) {
  const int64_t samples = TrainSamplesOf(spec.data);
  Bytes bytes = OrderBytes(spec, samples);
  const DataSetTraits* const set = FindDataSet(spec.data.name);
  if (set != nullptr && set->in_memory) {
    bytes += Bytes(samples) *
             (std::max<int64_t>(0, NumElements(FormatOf(spec.data).shape)) + 1);
  }
  return bytes.count;
}

int64_t MemberBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members) {
  const RoundBytes rounds = RoundBytesOf(spec, model, members);
  // In a round group a borrowed parameter uses its owner's memory, for value
  // and gradient.
  Bytes borrowed;
  for (const Layer& layer : model.layers) {
    const int64_t trained = WeightBytesOf(layer).borrowed;
    borrowed += 2 * Bytes(trained) + (layer.borrowed_bytes - trained);
  }
  const LayerRange all{0, static_cast<int>(model.layers.size())};
  const int64_t training =
      EstimateBytes(model, spec.train, {all}, {{.micro_batches = 1}},
                    PrecisionOf(spec.precision));
  Bytes sum = training < Bytes::kMost ? training - borrowed.count : training;
  for (const int64_t more :
       {rounds.part, rounds.held, rounds.kept, rounds.served, rounds.trial}) {
    sum += more;
  }
  // A deposit stays until the next one is safe.
  if (spec.train.checkpoint_every > 0) sum += GroupStateBytes(spec, model);
  return (sum + DataBytes(spec)).count;
}

int64_t StateBytes(const JobSpec& spec, const ModelDescription& model,
                   const LayerRange& layers) {
  Bytes bytes;
  for (int i = layers.first; i < layers.last; ++i) {
    const Layer& layer = model.layers[i];
    bytes += layer.parameter_bytes;
    bytes +=
        4 * StateSlots(spec.train.optimizer) * Bytes(TrainableElements(layer));
  }
  return bytes.count;
}

int64_t GroupStateBytes(const JobSpec& spec, const ModelDescription& model) {
  return StateBytes(spec, model, {0, static_cast<int>(model.layers.size())});
}

int64_t JoinerBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members) {
  JobSpec idle = spec;
  idle.train.micro_batch = 0;  // it computes nothing meanwhile
  const LayerRange all{0, static_cast<int>(model.layers.size())};
  const Bytes stays =
      EstimateBytes(model, idle.train, {all}, {{.micro_batches = 1}},
                    PrecisionOf(spec.precision));
  return std::max(
      MemberBytes(spec, model, members),
      (stays + GroupStateBytes(spec, model) + DataBytes(spec)).count);
}

std::vector<int> PlacesFor(const std::vector<double>& needs,
                           const std::vector<double>& sizes) {
  std::vector<int> order(needs.size()), places(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&needs](int a, int b) { return needs[a] > needs[b]; });
  const int count = static_cast<int>(sizes.size());
  std::vector<bool> taken(sizes.size(), false);
  for (const int i : order) {
    const auto holds = [&](int place) {
      return place < count && !taken[place] &&
             (sizes[place] == 0 || needs[i] <= sizes[place]);
    };
    int place = holds(i) ? i : 0;
    while (place < count && !holds(place)) ++place;
    if (place == count) return {};
    taken[place] = true;
    places[i] = place;
  }
  return places;
}

int64_t LeastMembers(const AggregationSpec& aggregation) {
  return std::max<int64_t>(
      {1, KnownMembers(aggregation), aggregation.min_parts});
}

}  // namespace paceline
