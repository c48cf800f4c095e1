// Exchanges of several members in one process: what all of them get is the
// same, and what the rule makes of the parts.
#include "worker/rounds/round_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "core/round/rules/rule.h"
#include "tests/support/fake_clock.h"
#include "tests/support/pieces.h"
#include "tests/worker/rounds/exchange_group.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// min_parts is the whole group where a test wants the parts of all: however
// busy the machine is, none is late then.
TEST(RoundExchange, AllMembersGetTheSumInOrderOfIdOverAnyLinks) {
  const MemoryRoundFaults bad = {.lose = 0.1, .repeat = 0.2, .overtake = 0.2};
  for (const int shards : {1, 3}) {
    for (const bool reliable : {true, false}) {
      ExchangeGroup group(3, 200'000, {.shards = shards, .min_parts = 3});
      if (!reliable) group.network.SetFaults(bad);

      const auto outcomes = group.Run();

      for (int64_t step = 0; step < 3; ++step) {
        for (const auto& outcome : outcomes) {
          EXPECT_EQ(outcome.at(step).divisor, 6);
          EXPECT_EQ(outcome.at(step).values, PartSum(3, step, 200'000))
              << "step " << step << ", " << shards << " shards";
        }
      }
    }
  }
}

TEST(RoundExchange, AnyRuleSeesThePartsOfAllMembers) {
  for (const char* const rule :
       {"mean", "median", "trimmed-mean", "krum", "suspicion", "zeno"}) {
    ExchangeGroup group(5, 3000,
                        {.rule = rule, .k = 1, .gamma = 0.1, .min_parts = 5});

    const auto outcomes = group.Run();

    std::vector<std::vector<float>> values;
    std::vector<RulePart> parts;
    for (int i = 0; i < 5; ++i) values.push_back(PartValues(i, 1, 3000));
    for (const auto& each : values) parts.push_back({each, 2});
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.at(1), outcomes[0].at(1)) << rule;
      EXPECT_FALSE(outcome.at(1).is_void) << rule;
    }
    if (std::string(rule) == "zeno") continue;
    RuleSpec plain;
    plain.name = rule;
    plain.k = 1;
    std::vector<float> expected(3000);
    const auto alone = *MakeRule(plain, nullptr);
    const auto verdict = alone->Decide(parts);
    alone->Combine(parts, *verdict, 0, expected.size(),
                   absl::MakeSpan(expected));
    EXPECT_EQ(outcomes[0].at(1).values, expected) << rule;
    EXPECT_EQ(outcomes[0].at(1).divisor, verdict->divisor) << rule;
  }
}

TEST(RoundExchange, NaNIsRefusedAtTheBorderWhoeverServes) {
  for (const char* const rule : {"mean", "median"}) {
    ExchangeGroup group(3, 5000, {.rule = rule, .shards = 2});
    PartPlan sick;
    sick.spoil = [](int64_t, std::vector<float>& gradient, PartOptions& part) {
      gradient.front() = std::numeric_limits<float>::quiet_NaN();
      gradient.back() = std::numeric_limits<float>::infinity();
      part.lies = true;
    };

    const auto outcomes = group.Run({PartPlan{}, sick, PartPlan{}});

    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& outcome : outcomes) {
        EXPECT_EQ(outcome.at(step), outcomes[0].at(step));
        EXPECT_FALSE(outcome.at(step).is_void);
        EXPECT_THAT(outcome.at(step).values, testing::Each(testing::Lt(10.0f)));
      }
    }
    int64_t refused = 0, late = 0;
    for (int i = 0; i < 3; ++i) {
      const RoundStats stats = group.exchange(i).Stats();
      refused += stats.skipped[static_cast<size_t>(SkipReason::kNotFinite)];
      late += stats.skipped[static_cast<size_t>(SkipReason::kLate)];
    }
    // One a step, but of a step whose deadline was over before it came.
    EXPECT_GE(refused + late, 3) << rule;
    EXPECT_GE(refused, 1) << rule;
    EXPECT_LE(refused, 3) << rule;
  }
}

TEST(RoundExchange, AMemberThatFindsNaNInItsOwnPartSaysSo) {
  ExchangeGroup group(3, 1000, {});
  PartPlan sick;
  sick.spoil = [](int64_t step, std::vector<float>& gradient, PartOptions&) {
    if (step == 1) gradient[500] = std::numeric_limits<float>::quiet_NaN();
  };

  const auto outcomes = group.Run({PartPlan{}, sick, PartPlan{}});

  EXPECT_EQ(outcomes[0].at(0).divisor, 6);
  EXPECT_EQ(outcomes[0].at(1).divisor, 4);
  EXPECT_EQ(outcomes[0].at(2).divisor, 6);
  EXPECT_EQ(outcomes[1], outcomes[0]);
  // Member 1 serves step 1 itself.
  const auto& skipped = group.exchange(1).Stats().skipped;
  EXPECT_EQ(skipped[static_cast<size_t>(SkipReason::kNotFinite)], 1);
  EXPECT_EQ(skipped[static_cast<size_t>(SkipReason::kEmpty)], 0);
}

TEST(RoundExchange, APartWhoseBytesAreNotThoseOfItsHashIsRefused) {
  ExchangeGroup group(3, 1000, {});
  PartPlan sick;
  sick.spoil = [](int64_t, std::vector<float>&, PartOptions& part) {
    part.corrupts = true;
  };

  const auto outcomes = group.Run({PartPlan{}, PartPlan{}, sick});

  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(outcomes[0].at(step).divisor, 4) << step;
    EXPECT_EQ(outcomes[0].at(step), outcomes[2].at(step));
  }
}

TEST(RoundExchange, Bf16RoundsPartsAndTheSumForAllMembersAlike) {
  for (const char* const rule : {"mean", "median", "krum"}) {
    ExchangeGroup group(5, 300'000,
                        {.rule = rule, .min_parts = 5, .codec = "bf16"});

    const auto outcomes = group.Run();

    const std::vector<float> exact = PartSum(5, 2, 300'000);
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.at(2), outcomes[0].at(2)) << rule;
    }
    if (std::string(rule) != "mean") continue;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(outcomes[0].at(2).values[i], exact[i], 0.03) << i;
    }
  }
}

// Members of 2, 4 and 6 samples and gradients of 1 a sample; the second lies.
std::vector<PartPlan> OnesAndALiar(
    const std::function<void(std::vector<float>&)>& spoil) {
  std::vector<PartPlan> plans(3);
  for (int i = 0; i < 3; ++i) {
    const int samples = 2 * (i + 1);
    plans[i].samples = samples;
    plans[i].spoil = [=](int64_t, std::vector<float>& gradient,
                         PartOptions& part) {
      gradient.assign(gradient.size(), static_cast<float>(samples));
      part.lies = i == 1;
      if (part.lies) spoil(gradient);
    };
  }
  return plans;
}

constexpr size_t kTwoBlocks = 512;  // a shard each

TEST(RoundExchange, EveryShardIsDividedByTheSamplesOfItsOwnContributors) {
  ExchangeGroup group(3, kTwoBlocks, {.shards = 2});

  const auto outcomes = group.Run(OnesAndALiar([](auto& gradient) {
    gradient.front() = std::numeric_limits<float>::quiet_NaN();
  }));

  // Its second shard is good.  It refuses its own where it serves it itself, in
  // step 0.
  EXPECT_THAT(outcomes[0].at(0).divisors, ElementsAre(8, 8));
  for (const int64_t step : {1, 2}) {
    EXPECT_THAT(outcomes[0].at(step).divisors, ElementsAre(8, 12)) << step;
  }
  for (const auto& member : outcomes) {
    EXPECT_EQ(member, outcomes[0]);
    for (const auto& [step, outcome] : member) {
      const auto divisor = static_cast<float>(outcome.divisor);
      EXPECT_THAT(outcome.values, Each(FloatEq(divisor))) << step;
    }
  }
}

TEST(RoundExchange, ARuleThatGivesMeansIsDividedByOneInEveryShard) {
  ExchangeGroup group(3, kTwoBlocks, {.rule = "median", .shards = 2});

  const auto outcomes = group.Run(OnesAndALiar([](auto& gradient) {
    gradient.back() = std::numeric_limits<float>::infinity();
  }));

  for (const auto& [step, outcome] : outcomes[2]) {
    EXPECT_THAT(outcome.divisors, ElementsAre(1, 1)) << step;
    EXPECT_THAT(outcome.values, Each(FloatEq(1))) << step;
  }
}

TEST(RoundExchange, RefusesAPartOfAnotherCodecThanTheRuns) {
  for (const std::string codec : {"fp32", "bf16"}) {
    ExchangeGroup group(1, kTwoBlocks, {.codec = codec});
    const size_t other = codec == "fp32" ? 2 * kTwoBlocks : 4 * kTwoBlocks;

    const absl::Status refused =
        group.exchange(0)
            .OnPayload(MemberOf(1), {PayloadKey::Kind::kPart, 0, 0, 0}, other)
            .status();

    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << codec;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("another model, or in another codec"));
  }
}

TEST(RoundExchange, RefusesBytesThatThisRunHasNot) {
  ExchangeGroup group(2, 1024, {.shards = 2});
  group.Begin();
  RoundExchange& exchange = group.exchange(0);
  const MemberId peer = MemberOf(1);
  using Kind = PayloadKey::Kind;
  const auto code = [&](const PayloadKey& key, size_t bytes) {
    return exchange.OnPayload(peer, key, bytes).status().code();
  };

  const std::pair<PayloadKey, size_t> kBad[] = {
      {{Kind::kPart, 0, 0, 0}, 2049},
      {{Kind::kPart, 0, 2, 0}, 2048},
      {{Kind::kPart, 0, -1, 0}, 2048},
      {{Kind::kPart, -1, 0, 0}, 2048},
      {{Kind::kResult, 0, 0, 1}, 1024}};
  for (const auto& [key, bytes] : kBad) {
    EXPECT_EQ(code(key, bytes), absl::StatusCode::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(code({Kind::kPart, 0, 0, 0}, 2048), absl::StatusCode::kOk);
  EXPECT_EQ(exchange.OnPayload(peer, {Kind::kPart, 0, 0, 0}, 2048).value(),
            exchange.OnPayload(peer, {Kind::kPart, 0, 0, 0}, 2048).value());
}

// Its server would take it for dead: it says nothing before all are here.
TEST(RoundExchange, ReportsThatItWaitsWhileAResultArrives) {
  const size_t values = 3 * kRoundChunkBytes / sizeof(float);
  MemoryRoundNetwork network;
  FakeClock clock;
  RoundExchangeOptions options = OptionsOfExchange(0, values, {});
  options.lease = absl::Seconds(3);
  GroupMember member(network, options, clock);
  ASSERT_TRUE(member.exchange.Start(*member.transport).ok());
  // In no view yet: nobody owes it anything else.
  const auto owing = [&] {
    absl::Duration sum = absl::ZeroDuration();
    for (const PeerReport& peer : member.exchange.Report().peers) {
      if (peer.peer == MemberOf(1)) sum += peer.owing;
    }
    return sum;
  };
  EXPECT_EQ(owing(), absl::ZeroDuration());

  const auto payload = member.exchange.OnPayload(
      MemberOf(1), {PayloadKey::Kind::kResult, 0, 0, 1}, values * 4);
  ASSERT_TRUE(payload.ok()) << payload.status();
  for (int chunk = 0; chunk < 2; ++chunk) {
    clock.Advance(absl::Seconds(2));
    (*payload)->MarkReady(chunk, 1);
    EXPECT_GT(owing(), absl::ZeroDuration());
    EXPECT_LT(owing(), options.lease);
  }
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(owing(), absl::ZeroDuration()) << "nothing comes any more";
}

TEST(RoundExchange, DropsBytesOfStepsThatAreFarAway) {
  ExchangeGroup group(2, 1024, {});
  PartPlan plan;
  plan.steps = 1;
  group.Run({plan});

  const auto far = group.exchange(0).OnPayload(
      MemberOf(1), {PayloadKey::Kind::kPart, 1'000'000, 0, 0}, 4096);
  const auto past = group.exchange(0).OnPayload(
      MemberOf(1), {PayloadKey::Kind::kPart, 0, 0, 0}, 4096);

  EXPECT_EQ(far.value(), nullptr);
  EXPECT_EQ(past.value(), nullptr);
}

// The lag of a joiner is bounded before it counts as level,
// unless no further state would help.
TEST(RoundExchange, AJoinerThatLagsIsNotLevelBeforeItsSecondState) {
  MemoryRoundNetwork network;
  SystemClock clock;
  GroupMember joiner(network, OptionsOfExchange(0, 1000, {}), clock);
  RoundExchange& exchange = joiner.exchange;
  ASSERT_TRUE(exchange.Start(*joiner.transport).ok());
  exchange.OnGroup(MakeGroup(MakeView(1, {{MemberOf(1), 0}}), {MemberOf(0)}));
  const auto hear = [&exchange](int64_t group_next, Body body) {
    RoundMessage message = MessageOf(MemberOf(1), std::move(body));
    message.committed_through = group_next;
    exchange.OnMessage(std::move(message), nullptr);
  };
  const auto take_state = [&](int64_t next) {
    const PiecePtr state = MakePiece({1, next}, 0, absl::StrCat(next));
    hear(next, StateOffer{next, 1, state->checksum});
    auto fetch = exchange.AwaitTurn();
    ASSERT_TRUE(fetch.ok()) << fetch.status();
    ASSERT_EQ(fetch->kind, RoundTurn::Kind::kFetch);
    // Until it has come the group goes on without this member.
    hear(next + 1, StateOffer{next + 1, 1, 7});
    EXPECT_EQ(exchange.AwaitTurn(absl::Milliseconds(1))->kind,
              RoundTurn::Kind::kWait);
    fetch->state = {state};
    exchange.AnswerState(*std::move(fetch));
    const auto turn = exchange.AwaitTurn();
    ASSERT_TRUE(turn.ok()) << turn.status();
    ASSERT_EQ(turn->kind, RoundTurn::Kind::kRestore);
    exchange.OnApplied(next, state->checksum);
  };
  const auto becomes = [&](bool level) {
    for (int i = 0; i < 1000 && exchange.Report().level != level; ++i) {
      joiner.observer.AwaitChange();
    }
    return exchange.Report().level == level;
  };

  take_state(10);
  EXPECT_TRUE(becomes(true));
  hear(15, TooOld{10});
  EXPECT_TRUE(becomes(false)) << "it lags by five steps";
  take_state(20);
  EXPECT_TRUE(becomes(true));
  hear(46, TooOld{20});
  take_state(41);
  EXPECT_TRUE(becomes(true)) << "it has tried to catch up";

  joiner.transport->Close();
  exchange.Stop();
}

TEST(RoundExchange, AMessageOfAnotherAttemptChangesNothing) {
  ExchangeGroup group(2, 1024, {});
  group.Begin();
  RoundMessage message = MessageOf(MemberOf(1), PartOffer{0, 0, 1000, 1, 1});
  message.attempt = 2;
  group.exchange(0).OnMessage(message, nullptr);
  group.exchange(0).OnMessage(MessageOf(MemberOf(1), PartOffer{0, 7, -5, 1, 1}),
                              nullptr);
  PartPlan plan;
  plan.steps = 2;

  const auto outcomes = group.Run({plan});

  EXPECT_EQ(outcomes[0].at(0).divisor, 4);
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(group.exchange(0).Stats().refused_messages, 1);
}

TEST(RoundExchange, AResultWhoseHashDoesNotMatchItsBytesIsRefused) {
  ExchangeGroup group(2, 1024, {});
  group.Begin();
  const std::shared_ptr<RoundPayload> bytes = BytesOf(4096);
  ShardResult result;
  result.hash = bytes->hash() + 1;
  result.divisor = 1;
  group.exchange(1).OnMessage(MessageOf(MemberOf(0), Spread{0, result}), bytes);
  PartPlan plan;
  plan.steps = 1;

  const auto outcomes = group.Run({plan});

  EXPECT_EQ(outcomes[1].at(0).values, PartSum(2, 0, 1024));
  EXPECT_EQ(group.exchange(1).Stats().refused_results, 1);
}

TEST(RoundExchange, StatesThatDifferStopTheRoundsAndAreReported) {
  ExchangeGroup group(2, 1024, {});
  group.Begin();
  // Member 1 applies something else than member 0 after step 0.
  std::thread other([&] {
    std::vector<float> gradient(1024, 1);
    for (;;) {
      auto turn = group.exchange(1).AwaitTurn();
      if (!turn.ok()) return;
      group.exchange(1).AwaitPartReleased();
      if (turn->kind == RoundTurn::Kind::kPart) {
        group.exchange(1).BeginPart(
            {.step = turn->step,
             .division = DivisionOf(turn->view, turn->step),
             .gradient = absl::MakeSpan(gradient)});
        group.exchange(1).FinishPart(1);
      } else if (turn->kind == RoundTurn::Kind::kApply) {
        group.exchange(1).OnApplied(turn->step + 1, 666);
      }
    }
  });
  std::thread first(
      [&] { ComputeParts(group.member(0), 0, 1024, PartPlan{}); });
  MemberReport report;
  // Step 1 is served by member 1.
  while (report.mismatch.empty()) {
    group.member(1).observer.AwaitChange();
    report = group.exchange(1).Report();
  }
  group.exchange(0).Cancel(absl::CancelledError("over"));
  group.exchange(1).Cancel(absl::CancelledError("over"));
  first.join();
  other.join();

  EXPECT_EQ(report.mismatch_step, 1);
  EXPECT_THAT(report.mismatch,
              testing::UnorderedElementsAre(testing::Pair(MemberOf(0), 1001),
                                            testing::Pair(MemberOf(1), 666)));
  EXPECT_EQ(report.next, 1);
}

// Holds the thread "rounds" at its first change.
class HoldingObserver final : public RoundObserver {
 public:
  void OnRound(const v1::RoundRecord&) override {}
  void OnMemberChanged() override {
    if (held.HasBeenNotified()) {
      if (!again.HasBeenNotified()) again.Notify();
      return;
    }
    held.Notify();
    go_on.WaitForNotification();
  }

  absl::Notification held, go_on, again;
};

TEST(RoundExchange, SaysForHowLongItsThreadHasHandledNothing) {
  MemoryRoundNetwork network;
  FakeClock clock;
  HoldingObserver observer;
  const RoundExchangeOptions options = OptionsOfExchange(0, 10, {});
  RoundExchange exchange(options, clock, observer);
  const auto transport = network.Connect(MemberOf(0), &exchange);
  ASSERT_TRUE(exchange.Start(*transport).ok());
  exchange.OnGroup(MakeGroup(MakeView(1, {{MemberOf(0), 0}})));
  observer.held.WaitForNotification();

  exchange.OnLink(MemberOf(1), /*up=*/false, /*refused=*/false);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(exchange.Report().idle, absl::Seconds(2));
  EXPECT_EQ(exchange.Report().slowest, absl::ZeroDuration());
  observer.go_on.Notify();

  observer.again.WaitForNotification();
  EXPECT_EQ(exchange.Report().slowest, absl::Seconds(2));
  EXPECT_EQ(exchange.Report().idle, absl::ZeroDuration());
  transport->Close();
  exchange.Stop();
}

}  // namespace
}  // namespace paceline
