#include "core/plan/member_memory.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "core/model/aggregation.h"
#include "core/model/precision.h"
#include "core/optim/optimizer.h"
#include "core/plan/plan.h"
#include "core/plan/saturate.h"
#include "core/round/rule_traits.h"

namespace paceline {
namespace {

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
