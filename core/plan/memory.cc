#include "core/plan/memory.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/tensor.h"
#include "core/model/aggregation.h"
#include "core/model/checkpointing.h"
#include "core/optim/optimizer.h"
#include "core/plan/plan.h"
#include "core/round/rule_traits.h"

namespace paceline {
namespace {

// For one sample: an activation and a gradient at each boundary of `range`.
int64_t BoundaryBytes(const ModelDescription& model, const LayerRange& range) {
  constexpr int64_t kFramesOfABoundary = 2;
  int64_t bytes = 0;
  if (range.first > 0) {
    bytes = AddBytes(bytes, model.layers[range.first - 1].output_bytes);
  }
  if (range.last < static_cast<int>(model.layers.size())) {
    bytes = AddBytes(bytes, model.layers[range.last - 1].output_bytes);
  }
  return MultiplyBytes(kFramesOfABoundary, bytes);
}

// For one sample: what `range` keeps from forward to backward.
int64_t ActivationBytes(const ModelDescription& model, const LayerRange& range,
                        const StageKeeps& keeps, Precision precision,
                        const Checkpointing& checkpointing) {
  int64_t inputs = 0;      // of segments
  int64_t everything = 0;  // of layers
  int64_t outputs = 0;     // of layers
  int64_t largest = 0;     // everything of one segment
  int64_t widest = 0;      // everything of one layer, and its output
  for (const auto& [first, last] :
       SegmentsOf(checkpointing, range.last - range.first)) {
    int64_t segment = 0;
    for (int layer = range.first + first; layer < range.first + last; ++layer) {
      const int64_t kept = KeptBytes(model, layer, precision);
      segment = AddBytes(segment, kept);
      widest =
          std::max(widest, AddBytes(kept, model.layers[layer].output_bytes));
      outputs = AddBytes(outputs, model.layers[layer].output_bytes);
    }
    inputs = AddBytes(inputs, InputBytes(model, range.first + first));
    everything = AddBytes(everything, segment);
    largest = std::max(largest, segment);
  }
  // Forward only: one layer at a time.
  if (keeps.versions == 0) return widest;
  const int64_t between_halves = MultiplyBytes(keeps.split, outputs);
  if (!checkpointing.recomputes) {
    return AddBytes(MultiplyBytes(keeps.micro_batches, everything),
                    between_halves);
  }
  // Outputs that were computed again stay until the second half.
  return AddBytes(
      AddBytes(MultiplyBytes(keeps.micro_batches, inputs),
               keeps.micro_batches > 0 ? largest : 0),
      AddBytes(MultiplyBytes(keeps.split, everything), between_halves));
}

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t TrainableElements(const ModelDescription& model) {
  int64_t elements = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (!parameter.trainable) continue;
      elements = AddBytes(elements,
                          std::max<int64_t>(0, NumElements(parameter.shape)));
    }
  }
  return elements;
}

}  // namespace

int64_t InputBytes(const ModelDescription& model, int layer) {
  if (layer > 0) return model.layers[layer - 1].output_bytes;
  return TensorBytes(model.input_dtype, model.input);
}

int64_t KeptBytes(const ModelDescription& model, int layer,
                  Precision precision) {
  const int64_t bytes = model.layers[layer].activation_bytes;
  const std::vector<Operation>& operations = model.layers[layer].operations;
  // Gates and cells are float32 in both.
  const bool recurrent = std::any_of(
      operations.begin(), operations.end(), [](const Operation& operation) {
        return operation.kind == "lstm" ||
               operation.kind == "bidirectional_lstm";
      });
  if (precision == Precision::kF32 || recurrent) return bytes;
  // The input as it came and as a product takes it; the rest in two bytes.
  return AddBytes(bytes / 2, InputBytes(model, layer));
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
  PACELINE_CHECK(
      ranges.size() == keeps.size(),
      absl::StrCat("ranges=", ranges.size(), " keeps=", keeps.size()));
  const Checkpointing checkpointing =
      FindCheckpointing(train.activation_checkpointing)
          .value_or(Checkpointing());
  int64_t total = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    // The parameter itself, its summed gradient, the optimizer's state.
    const int64_t copies = 1 + StateSlots(train.optimizer) + keeps[i].versions;
    for (int layer = ranges[i].first; layer < ranges[i].last; ++layer) {
      const Layer& described = model.layers[layer];
      const int64_t bytes = described.parameter_bytes;
      total = AddBytes(total, MultiplyBytes(copies, bytes));
      // A value a version, and the gradient.
      total = AddBytes(total, MultiplyBytes(1 + keeps[i].versions,
                                            described.borrowed_bytes));
      if (precision != Precision::kBf16) continue;
      total = AddBytes(
          total, MultiplyBytes(std::max(1, keeps[i].versions), bytes / 2));
    }
    const int64_t sample_bytes = AddBytes(
        BoundaryBytes(model, ranges[i]),
        ActivationBytes(model, ranges[i], keeps[i], precision, checkpointing));
    total = AddBytes(total, MultiplyBytes(train.micro_batch, sample_bytes));
  }
  return total;
}

RoundBytes RoundBytesOf(const JobSpec& spec, const ModelDescription& model,
                        int64_t members) {
  PACELINE_CHECK(members >= 1, "a group has members");
  const bool narrow = spec.aggregation.codec == "bf16";
  const int64_t width = narrow ? 2 : 4;
  const int64_t elements = TrainableElements(model);
  const int64_t shards = ShardsOf(spec, model, members);
  const int64_t shard = MultiplyBytes(width, CeilDivide(elements, shards));
  RoundBytes bytes;
  bytes.gradient = MultiplyBytes(width, elements);
  bytes.part = narrow ? bytes.gradient : 0;
  bytes.held = bytes.gradient;
  // Gossip has no results that all have in common.
  if (!IsGossip(spec)) {
    bytes.kept = MultiplyBytes(kKeptResults, bytes.gradient);
  }
  // Its own part is among these: it is there already, in `part` or in place.
  bytes.served = MultiplyBytes(
      members - 1, MultiplyBytes(CeilDivide(shards, members), shard));
  const RuleTraits* const rule = FindRule(spec.aggregation.rule);
  if (rule != nullptr && rule->trusts_a_batch) {
    bytes.trial = MultiplyBytes(4, elements);
  }
  return bytes;
}

int64_t MemberBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members) {
  const RoundBytes rounds = RoundBytesOf(spec, model, members);
  // A borrowed parameter has its owner's memory here, for value and gradient.
  int64_t borrowed = 0;
  for (const Layer& layer : model.layers) {
    borrowed = AddBytes(borrowed, MultiplyBytes(2, layer.borrowed_bytes));
  }
  const LayerRange all{0, static_cast<int>(model.layers.size())};
  const int64_t training =
      EstimateBytes(model, spec.train, {all}, {{.micro_batches = 1}},
                    FindPrecision(spec.precision).value_or(Precision::kF32));
  int64_t sum = training < std::numeric_limits<int64_t>::max()
                    ? training - borrowed
                    : training;
  for (const int64_t more :
       {rounds.part, rounds.held, rounds.kept, rounds.served, rounds.trial}) {
    sum = AddBytes(sum, more);
  }
  return sum;
}

int64_t GroupStateBytes(const JobSpec& spec, const ModelDescription& model) {
  int64_t bytes = MultiplyBytes(4 * StateSlots(spec.train.optimizer),
                                TrainableElements(model));
  for (const Layer& layer : model.layers) {
    bytes = AddBytes(bytes, layer.parameter_bytes);
  }
  return bytes;
}

int64_t JoinerBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members) {
  JobSpec idle = spec;
  idle.train.micro_batch = 0;  // it computes nothing meanwhile
  const LayerRange all{0, static_cast<int>(model.layers.size())};
  const int64_t stays =
      EstimateBytes(model, idle.train, {all}, {{.micro_batches = 1}},
                    FindPrecision(spec.precision).value_or(Precision::kF32));
  return std::max(MemberBytes(spec, model, members),
                  AddBytes(stays, GroupStateBytes(spec, model)));
}

int64_t LeastMembers(const AggregationSpec& aggregation) {
  return std::max<int64_t>(
      {1, KnownMembers(aggregation), aggregation.min_parts});
}

}  // namespace paceline
