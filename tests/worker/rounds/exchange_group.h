// Members of a round group with an exchange each, and compute threads that hand
// in parts made of numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/round_group.h"

namespace paceline {

// The settings of AggregationSpec that these tests change.
struct GroupSettings {
  std::string rule = "mean";
  int64_t k = 0;
  double gamma = 0;
  int32_t shards = 1;
  int32_t min_parts = 1;
  double deadline = 30;
  std::string codec = "fp32";
};

inline RoundExchangeOptions OptionsOfExchange(int number, size_t values,
                                              const GroupSettings& settings) {
  RoundExchangeOptions options;
  options.attempt = 1;
  options.self = MemberOf(number);
  AggregationSpec& aggregation = options.aggregation;
  aggregation.mode = "rolling";
  aggregation.rule = settings.rule;
  aggregation.k = settings.k;
  aggregation.gamma = settings.gamma;
  aggregation.shards = settings.shards;
  aggregation.min_parts = settings.min_parts;
  aggregation.deadline = settings.deadline;
  aggregation.codec = settings.codec;
  options.values = values;
  options.total_steps = 1000;
  options.state_hash = 7;
  options.retry_period = absl::Milliseconds(20);
  options.lease = absl::Milliseconds(200);
  return options;
}

inline std::vector<float> PartValues(int member, int64_t step, size_t count) {
  SplitMix64 random(MixSeed({uint64_t(member), uint64_t(step)}));
  std::vector<float> values(count);
  for (float& value : values) value = random.Unit() - 0.5f;
  return values;
}

// A message of `from` in the first view of the first attempt.
inline RoundMessage MessageOf(const MemberId& from, Body body) {
  RoundMessage message;
  message.attempt = 1;
  message.view = {1, 1};
  message.from = from;
  message.body = std::move(body);
  return message;
}

// So many bytes of that value, all here.
inline std::shared_ptr<RoundPayload> BytesOf(size_t count, uint8_t value = 1) {
  std::shared_ptr<RoundPayload> bytes = BlockPool(0).Make(count);
  std::fill_n(bytes->mutable_bytes().begin(), count, value);
  MarkAllReady(*bytes);
  return bytes;
}

// A member's view of a step.
struct PartOutcome {
  bool is_void = false;
  int64_t divisor = 0;
  std::vector<int64_t> divisors;  // [shards]
  std::vector<float> values;

  friend bool operator==(const PartOutcome&, const PartOutcome&) = default;
};

// A compute thread that hands parts in until `steps` are applied.
struct PartPlan {
  int64_t steps = 3;
  int64_t samples = 2;
  std::function<void(int64_t, std::vector<float>&, PartOptions&)> spoil =
      nullptr;
  std::function<void(int64_t)> before_part = nullptr;
};

inline std::map<int64_t, PartOutcome> ComputeParts(GroupMember& member,
                                                   int number, size_t values,
                                                   const PartPlan& plan) {
  RoundExchange& exchange = member.exchange;
  std::map<int64_t, PartOutcome> outcomes;
  int64_t next = 0;
  while (next < plan.steps) {
    auto turn = exchange.AwaitTurn();
    if (!turn.ok()) return outcomes;
    if (turn->kind == RoundTurn::Kind::kPart) {
      if (plan.before_part) plan.before_part(turn->step);
      exchange.AwaitPartReleased();
      member.gradient = PartValues(number, turn->step, values);
      PartOptions part;
      part.step = turn->step;
      part.division = DivisionOf(turn->view, turn->step);
      if (plan.spoil) plan.spoil(turn->step, member.gradient, part);
      part.gradient = absl::MakeSpan(member.gradient);
      exchange.BeginPart(part);
      exchange.MarkReady(values / 2);
      exchange.FinishPart(plan.samples);
    } else if (turn->kind == RoundTurn::Kind::kApply) {
      exchange.AwaitPartReleased();
      PartOutcome outcome{turn->result.is_void(), turn->divisor, {}, {}};
      for (const ShardResult& shard : turn->result.shards) {
        outcome.divisors.push_back(shard.divisor);
      }
      if (!outcome.is_void) {
        outcome.values.resize(values);
        WriteResult(*turn, exchange.shape(), absl::MakeSpan(outcome.values));
      }
      outcomes[turn->step] = outcome;
      next = turn->step + 1;
      exchange.OnApplied(next, 1000 + next);
    } else if (turn->kind == RoundTurn::Kind::kLoss) {
      // f(x) = |x|^2 at x = (1, 1, ...).
      double loss = 0;
      for (size_t i = 0; i < values; ++i) {
        const double direction =
            turn->direction.empty() ? 0 : turn->direction[i];
        loss += std::pow(1 - turn->loss_step * direction, 2);
      }
      exchange.AnswerLoss(loss);
    }
  }
  return outcomes;
}

// Exchanges that can reach one another.
class ExchangeGroup {
 public:
  ExchangeGroup(int members, size_t values, const GroupSettings& settings,
                size_t unapplied_bytes = size_t{256} << 20)
      : values_(values) {
    std::vector<ViewMember> all;
    for (int i = 0; i < members; ++i) all.push_back({MemberOf(i), 0});
    view_ = MakeView(1, all);
    for (int i = 0; i < members; ++i) {
      RoundExchangeOptions options = OptionsOfExchange(i, values, settings);
      options.unapplied_bytes = unapplied_bytes;
      members_.push_back(
          std::make_unique<GroupMember>(network, options, clock_));
    }
    for (auto& member : members_) {
      EXPECT_TRUE(member->exchange.Start(*member->transport).ok());
    }
  }

  void Begin() {
    if (std::exchange(begun_, true)) return;
    for (auto& member : members_) member->exchange.OnGroup(MakeGroup(view_));
  }
  // plans: of the members; the last one is that of all after it too.
  std::vector<std::map<int64_t, PartOutcome>> Run(
      const std::vector<PartPlan>& plans = {PartPlan()}) {
    Begin();
    std::vector<std::map<int64_t, PartOutcome>> outcomes(members_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < members_.size(); ++i) {
      threads.emplace_back([&, i] {
        outcomes[i] = ComputeParts(*members_[i], static_cast<int>(i), values_,
                                   plans[std::min(i, plans.size() - 1)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  RoundExchange& exchange(int i) { return members_[i]->exchange; }
  GroupMember& member(int i) { return *members_[i]; }

  MemoryRoundNetwork network;

 private:
  const size_t values_;
  SystemClock clock_;
  View view_;
  bool begun_ = false;
  std::vector<std::unique_ptr<GroupMember>> members_;
};

inline std::vector<float> PartSum(int members, int64_t step, size_t values) {
  std::vector<float> sum(values);
  for (int i = 0; i < members; ++i) {
    const std::vector<float> part = PartValues(i, step, values);
    for (size_t j = 0; j < values; ++j)
      sum[j] = (i == 0 ? part[j] : sum[j] + part[j]);
  }
  return sum;
}

}  // namespace paceline
