// What exchanges make of parts that are wrong in some shard, or of another kind
// than the run's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/round_group.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr size_t kValues = 512;  // two blocks: a shard each

RoundExchangeOptions Options(int number, const AggregationSpec& aggregation) {
  RoundExchangeOptions options;
  options.attempt = 1;
  options.self = MemberOf(number);
  options.aggregation = aggregation;
  options.aggregation.mode = "rolling";
  options.aggregation.shards = std::max(1, aggregation.shards);
  options.values = kValues;
  options.state_bytes = 16;
  options.total_steps = 1000;
  options.state_hash = 7;
  options.retry_period = absl::Milliseconds(20);
  return options;
}

// What a member applied in a step.
struct Applied {
  std::vector<int64_t> divisors;  // [shards]
  std::vector<float> mean;        // [values]

  friend bool operator==(const Applied&, const Applied&) = default;
};

using Spoil = std::function<void(std::vector<float>&, PartOptions&)>;

// Hands in a gradient that is 1 a sample everywhere, until `steps` are applied.
std::map<int64_t, Applied> Train(RoundExchange& exchange, int64_t samples,
                                 int64_t steps, const Spoil& spoil) {
  std::map<int64_t, Applied> applied;
  std::vector<float> gradient;
  while (std::ssize(applied) < steps) {
    auto turn = exchange.AwaitTurn();
    if (!turn.ok()) break;
    exchange.AwaitPartReleased();
    gradient.assign(kValues, static_cast<float>(samples));
    if (turn->kind == RoundTurn::Kind::kPart) {
      PartOptions part;
      part.step = turn->step;
      part.division = DivisionOf(turn->view, turn->step);
      if (spoil) spoil(gradient, part);
      part.gradient = absl::MakeSpan(gradient);
      exchange.BeginPart(part);
      exchange.FinishPart(samples);
    } else if (turn->kind == RoundTurn::Kind::kApply) {
      Applied& now = applied[turn->step];
      for (const ShardResult& shard : turn->result.shards) {
        now.divisors.push_back(shard.divisor);
      }
      WriteResult(*turn, exchange.shape(), absl::MakeSpan(gradient));
      for (const float value : gradient) {
        now.mean.push_back(value / static_cast<float>(turn->divisor));
      }
      exchange.OnApplied(turn->step + 1, 1000 + turn->step);
    }
  }
  return applied;
}

// Members of 2, 4, 6... samples, of which the second is spoilt.
std::vector<std::map<int64_t, Applied>> TrainTogether(
    const AggregationSpec& spec, int members, int64_t steps,
    const Spoil& spoil) {
  MemoryRoundNetwork network;
  const SystemClock clock{};
  std::vector<std::unique_ptr<GroupMember>> group;
  std::vector<ViewMember> all;
  for (int i = 0; i < members; ++i) {
    all.push_back({MemberOf(i), 0});
    group.push_back(
        std::make_unique<GroupMember>(network, Options(i, spec), clock));
  }
  for (auto& member : group) {
    EXPECT_TRUE(member->exchange.Start(*member->transport).ok());
  }
  for (auto& member : group)
    member->exchange.OnGroup(MakeGroup(MakeView(1, all)));
  std::vector<std::map<int64_t, Applied>> applied(members);
  std::vector<std::thread> threads;
  for (int i = 0; i < members; ++i) {
    threads.emplace_back([&, i] {
      applied[i] = Train(group[i]->exchange, 2 * (i + 1), steps,
                         i == 1 ? spoil : Spoil());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return applied;
}

TEST(RoundBorder, EveryShardIsDividedByTheSamplesOfItsOwnContributors) {
  AggregationSpec spec;
  spec.shards = 2;

  const auto applied = TrainTogether(
      spec, 3, 3, [](std::vector<float>& gradient, PartOptions& part) {
        gradient.front() = std::numeric_limits<float>::quiet_NaN();
        part.lies = true;
      });

  // Its second shard is good.  It refuses its own where it serves it itself, in
  // step 0.
  EXPECT_THAT(applied[0].at(0).divisors, ElementsAre(8, 8));
  for (const int64_t step : {1, 2}) {
    EXPECT_THAT(applied[0].at(step).divisors, ElementsAre(8, 12)) << step;
  }
  for (const auto& member : applied) {
    EXPECT_EQ(member, applied[0]);
    for (const auto& [step, now] : member) {
      EXPECT_THAT(now.mean, Each(FloatEq(1))) << step;
    }
  }
}

TEST(RoundBorder, ARuleThatGivesMeansIsDividedByOneInEveryShard) {
  AggregationSpec spec;
  spec.shards = 2;
  spec.rule = "median";

  const auto applied = TrainTogether(
      spec, 3, 3, [](std::vector<float>& gradient, PartOptions& part) {
        gradient.back() = std::numeric_limits<float>::infinity();
        part.lies = true;
      });

  for (const auto& [step, now] : applied[2]) {
    EXPECT_THAT(now.divisors, ElementsAre(1, 1)) << step;
    EXPECT_THAT(now.mean, Each(FloatEq(1))) << step;
  }
}

TEST(RoundBorder, RefusesAPartOfAnotherCodecThanTheRuns) {
  for (const std::string codec : {"fp32", "bf16"}) {
    AggregationSpec spec;
    spec.codec = codec;
    RecordingObserver observer;
    const SystemClock clock{};
    RoundExchange exchange(Options(0, spec), clock, observer);
    const size_t other = codec == "fp32" ? 2 * kValues : 4 * kValues;

    const absl::Status refused =
        exchange
            .OnPayload(MemberOf(1), {PayloadKey::Kind::kPart, 0, 0, 0}, other)
            .status();

    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << codec;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("another model, or in another codec"));
  }
}

}  // namespace
}  // namespace paceline
