// Desks of several members in one process: what all of them get is the same,
// and what the rule makes of the parts.
#include "worker/round_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "core/base/random.h"
#include "core/round/rule.h"
#include "tests/support/round_group.h"

namespace paceline {
namespace {

RoundDeskOptions Options(int number, size_t values,
                         const AggregationSpec& aggregation) {
  RoundDeskOptions options;
  options.attempt = 1;
  options.self = MemberOf(number);
  options.aggregation = aggregation;
  options.aggregation.mode = "rolling";
  options.values = values;
  options.state_bytes = 16;
  options.total_steps = 1000;
  options.state_hash = 7;
  options.retry_period = absl::Milliseconds(20);
  options.lease = absl::Milliseconds(200);
  return options;
}

std::vector<float> Values(int member, int64_t step, size_t count) {
  SplitMix64 random(MixSeed({uint64_t(member), uint64_t(step)}));
  std::vector<float> values(count);
  for (float& value : values) value = random.Unit() - 0.5f;
  return values;
}

// What a member saw in a step.
struct Outcome {
  bool is_void = false;
  int64_t divisor = 0;
  std::vector<float> values;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A compute thread that hands parts in until `steps` are applied.
struct Plan {
  int64_t steps = 3;
  int64_t samples = 2;
  std::function<void(int64_t, std::vector<float>&, PartOptions&)> spoil =
      nullptr;
  std::function<void(int64_t)> before_part = nullptr;
};

std::map<int64_t, Outcome> Compute(RoundDesk& desk, int number, size_t values,
                                   const Plan& plan) {
  std::map<int64_t, Outcome> outcomes;
  std::vector<float> gradient;
  int64_t next = 0;
  while (next < plan.steps) {
    auto turn = desk.AwaitTurn();
    if (!turn.ok()) return outcomes;
    if (turn->kind == RoundTurn::Kind::kPart) {
      if (plan.before_part) plan.before_part(turn->step);
      desk.AwaitPartReleased();
      gradient = Values(number, turn->step, values);
      PartOptions part;
      part.step = turn->step;
      part.division = DivisionOf(turn->view, turn->step);
      if (plan.spoil) plan.spoil(turn->step, gradient, part);
      part.gradient = absl::MakeSpan(gradient);
      desk.BeginPart(part);
      desk.MarkReady(values / 2);
      desk.FinishPart(plan.samples);
    } else if (turn->kind == RoundTurn::Kind::kApply) {
      desk.AwaitPartReleased();
      Outcome outcome{turn->result.is_void(), turn->divisor, {}};
      if (!outcome.is_void) {
        outcome.values.resize(values);
        WriteResult(*turn, desk.shape(), absl::MakeSpan(outcome.values));
      }
      outcomes[turn->step] = outcome;
      next = turn->step + 1;
      desk.OnApplied(next, 1000 + next);
    } else if (turn->kind == RoundTurn::Kind::kLoss) {
      // f(x) = |x|^2 at x = (1, 1, ...).
      double loss = 0;
      for (size_t i = 0; i < values; ++i) {
        const double direction =
            turn->direction.empty() ? 0 : turn->direction[i];
        loss += std::pow(1 - turn->loss_step * direction, 2);
      }
      desk.AnswerLoss(loss);
    }
  }
  return outcomes;
}

class Group {
 public:
  Group(int members, size_t values, AggregationSpec aggregation)
      : values_(values) {
    std::vector<ViewMember> all;
    for (int i = 0; i < members; ++i) all.push_back({MemberOf(i), 0});
    view_ = MakeView(1, all);
    for (int i = 0; i < members; ++i) {
      members_.push_back(std::make_unique<GroupMember>(
          network, Options(i, values, aggregation), clock_));
    }
    for (auto& member : members_) {
      EXPECT_TRUE(member->desk.Start(*member->transport).ok());
    }
  }

  void Begin() {
    for (auto& member : members_) member->desk.OnGroup(MakeGroup(view_));
  }
  // Without some.
  void Change(const std::vector<int>& left) {
    std::vector<ViewMember> members;
    for (const ViewMember& member : view_.members) {
      for (const int number : left) {
        if (member.id == MemberOf(number)) members.push_back(member);
      }
    }
    view_ = MakeView(view_.id.counter + 1, members);
    for (const int number : left) {
      members_[number]->desk.OnGroup(MakeGroup(view_));
    }
  }
  std::vector<std::map<int64_t, Outcome>> Run(const std::vector<Plan>& plans) {
    std::vector<std::map<int64_t, Outcome>> outcomes(members_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < members_.size(); ++i) {
      threads.emplace_back([&, i] {
        outcomes[i] = Compute(members_[i]->desk, static_cast<int>(i), values_,
                              plans[std::min(i, plans.size() - 1)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  RoundDesk& desk(int i) { return members_[i]->desk; }
  GroupMember& member(int i) { return *members_[i]; }

  MemoryRoundNetwork network;

 private:
  const size_t values_;
  SystemClock clock_;
  View view_;
  std::vector<std::unique_ptr<GroupMember>> members_;
};

std::vector<float> SumOf(int members, int64_t step, size_t values) {
  std::vector<float> sum(values);
  for (int i = 0; i < members; ++i) {
    const std::vector<float> part = Values(i, step, values);
    for (size_t j = 0; j < values; ++j)
      sum[j] = (i == 0 ? part[j] : sum[j] + part[j]);
  }
  return sum;
}

TEST(RoundDesk, AllMembersGetTheSumInOrderOfId) {
  for (const int shards : {1, 3}) {
    AggregationSpec spec;
    spec.shards = shards;
    Group group(3, 200'000, spec);
    group.Begin();

    const auto outcomes = group.Run({Plan{}});

    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& outcome : outcomes) {
        EXPECT_EQ(outcome.at(step).divisor, 6);
        EXPECT_EQ(outcome.at(step).values, SumOf(3, step, 200'000))
            << "step " << step << ", " << shards << " shards";
      }
    }
  }
}

TEST(RoundDesk, AnyRuleSeesThePartsOfAllMembers) {
  for (const char* const rule :
       {"mean", "median", "trimmed-mean", "krum", "suspicion", "zeno"}) {
    AggregationSpec spec;
    spec.rule = rule;
    spec.k = 1;
    spec.gamma = 0.1;
    Group group(5, 3000, spec);
    group.Begin();

    const auto outcomes = group.Run({Plan{}});

    std::vector<std::vector<float>> values;
    std::vector<RulePart> parts;
    for (int i = 0; i < 5; ++i) values.push_back(Values(i, 1, 3000));
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
    const auto verdict =
        Aggregate(**MakeRule(plain, nullptr), parts, absl::MakeSpan(expected));
    EXPECT_EQ(outcomes[0].at(1).values, expected) << rule;
    EXPECT_EQ(outcomes[0].at(1).divisor, verdict->divisor) << rule;
  }
}

TEST(RoundDesk, LiarsAreOutvotedByRulesThatWithstandThem) {
  Plan liar;
  liar.spoil = [](int64_t, std::vector<float>& gradient, PartOptions&) {
    for (float& value : gradient) value *= -10;
  };
  const auto error = [&](const std::string& rule) {
    AggregationSpec spec;
    spec.rule = rule;
    spec.k = 1;
    spec.gamma = 0.1;
    Group group(5, 1000, spec);
    group.Begin();
    const auto outcomes = group.Run({Plan{}, Plan{}, liar, Plan{}, Plan{}});
    double most = 0;
    for (int64_t step = 0; step < 3; ++step) {
      for (const float value : outcomes[0].at(step).values) {
        most = std::max<double>(most,
                                std::abs(value) / outcomes[0].at(step).divisor);
      }
    }
    return most;
  };

  // Honest values are below 0.5 a part, that is 0.25 a sample; the liar's are
  // up to 2.5.
  EXPECT_GT(error("mean"), 0.3);
  for (const char* const rule :
       {"median", "trimmed-mean", "krum", "suspicion"}) {
    EXPECT_LE(error(rule), 0.2501) << rule;
  }
}

TEST(RoundDesk, NaNIsRefusedAtTheBorderWhoeverServes) {
  for (const char* const rule : {"mean", "median"}) {
    AggregationSpec spec;
    spec.rule = rule;
    spec.shards = 2;
    Group group(3, 5000, spec);
    group.Begin();
    Plan sick;
    sick.spoil = [](int64_t, std::vector<float>& gradient, PartOptions& part) {
      gradient.front() = std::numeric_limits<float>::quiet_NaN();
      gradient.back() = std::numeric_limits<float>::infinity();
      part.lies = true;
    };

    const auto outcomes = group.Run({Plan{}, sick, Plan{}});

    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& outcome : outcomes) {
        EXPECT_EQ(outcome.at(step), outcomes[0].at(step));
        EXPECT_FALSE(outcome.at(step).is_void);
        EXPECT_THAT(outcome.at(step).values, testing::Each(testing::Lt(10.0f)));
      }
    }
    int64_t refused = 0;
    for (int i = 0; i < 3; ++i) {
      refused += group.desk(i)
                     .Stats()
                     .skipped[static_cast<size_t>(SkipReason::kNotFinite)];
    }
    EXPECT_EQ(refused, 3) << rule;
  }
}

TEST(RoundDesk, AMemberThatFindsNaNInItsOwnPartSaysSo) {
  Group group(3, 1000, {});
  group.Begin();
  Plan sick;
  sick.spoil = [](int64_t step, std::vector<float>& gradient, PartOptions&) {
    if (step == 1) gradient[500] = std::numeric_limits<float>::quiet_NaN();
  };

  const auto outcomes = group.Run({Plan{}, sick, Plan{}});

  EXPECT_EQ(outcomes[0].at(0).divisor, 6);
  EXPECT_EQ(outcomes[0].at(1).divisor, 4);
  EXPECT_EQ(outcomes[0].at(2).divisor, 6);
  EXPECT_EQ(outcomes[1], outcomes[0]);
  // Member 1 serves step 1 itself.
  const auto& skipped = group.desk(1).Stats().skipped;
  EXPECT_EQ(skipped[static_cast<size_t>(SkipReason::kNotFinite)], 1);
  EXPECT_EQ(skipped[static_cast<size_t>(SkipReason::kEmpty)], 0);
}

TEST(RoundDesk, APartWhoseBytesAreNotThoseOfItsHashIsRefused) {
  Group group(3, 1000, {});
  group.Begin();
  Plan sick;
  sick.spoil = [](int64_t, std::vector<float>&, PartOptions& part) {
    part.corrupts = true;
  };

  const auto outcomes = group.Run({Plan{}, Plan{}, sick});

  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(outcomes[0].at(step).divisor, 4) << step;
    EXPECT_EQ(outcomes[0].at(step), outcomes[2].at(step));
  }
}

TEST(RoundDesk, TooFewUsablePartsMakeAVoidRoundAndTheNextGoesOn) {
  AggregationSpec spec;
  spec.min_parts = 3;
  Group group(3, 1000, spec);
  group.Begin();
  Plan empty;
  empty.samples = 0;
  Plan at_times;
  at_times.spoil = [](int64_t step, std::vector<float>& gradient,
                      PartOptions&) {
    if (step == 1) gradient[0] = std::numeric_limits<float>::infinity();
  };

  const auto outcomes = group.Run({Plan{}, at_times, Plan{}});

  for (const auto& outcome : outcomes) {
    EXPECT_FALSE(outcome.at(0).is_void);
    EXPECT_TRUE(outcome.at(1).is_void);
    EXPECT_FALSE(outcome.at(2).is_void);
  }
}

TEST(RoundDesk, Bf16RoundsPartsAndTheSumForAllMembersAlike) {
  for (const char* const rule : {"mean", "median", "krum"}) {
    AggregationSpec spec;
    spec.codec = "bf16";
    spec.rule = rule;
    Group group(5, 300'000, spec);
    group.Begin();

    const auto outcomes = group.Run({Plan{}});

    const std::vector<float> exact = SumOf(5, 2, 300'000);
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.at(2), outcomes[0].at(2)) << rule;
    }
    if (std::string(rule) != "mean") continue;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(outcomes[0].at(2).values[i], exact[i], 0.03) << i;
    }
  }
}

TEST(RoundDesk, UnreliableLinksChangeNothing) {
  AggregationSpec spec;
  spec.shards = 3;
  Group group(3, 100'000, spec);
  group.network.SetFaults({.lose = 0.1, .repeat = 0.2, .overtake = 0.2});
  group.Begin();
  Plan plan;
  plan.steps = 6;

  const auto outcomes = group.Run({plan});

  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome, outcomes[0]);
    EXPECT_EQ(outcome.at(5).values, SumOf(3, 5, 100'000));
  }
}

TEST(RoundDesk, ALatePartIsLeftOutAndNeverAddedToAnotherRound) {
  AggregationSpec spec;
  spec.deadline = 0.05;
  Group group(3, 1000, spec);
  group.Begin();
  absl::Notification go_on;
  Plan slow;
  slow.before_part = [&](int64_t step) {
    if (step == 0) go_on.WaitForNotification();
  };
  Plan quick;
  quick.before_part = [&](int64_t step) {
    if (step == 1 && !go_on.HasBeenNotified()) go_on.Notify();
  };

  const auto outcomes = group.Run({quick, Plan{}, slow});

  EXPECT_EQ(outcomes[0].at(0).divisor, 4);
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0].at(0), outcomes[2].at(0));
}

TEST(RoundDesk, RefusesBytesThatThisRunHasNot) {
  AggregationSpec spec;
  spec.shards = 2;
  Group group(2, 1024, spec);
  group.Begin();
  RoundDesk& desk = group.desk(0);
  const MemberId peer = MemberOf(1);
  using Kind = PayloadKey::Kind;
  const auto code = [&](const PayloadKey& key, size_t bytes) {
    return desk.OnPayload(peer, key, bytes).status().code();
  };

  EXPECT_EQ(code({Kind::kPart, 0, 0, 0}, 2049),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kPart, 0, 2, 0}, 2048),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kPart, 0, -1, 0}, 2048),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kPart, -1, 0, 0}, 2048),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kResult, 0, 0, 1}, 1024),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kState, 9, 0, 1}, 15),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kState, 9, 1, 1}, 16),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Kind::kPart, 0, 0, 0}, 2048), absl::StatusCode::kOk);
  EXPECT_EQ(desk.OnPayload(peer, {Kind::kPart, 0, 0, 0}, 2048).value(),
            desk.OnPayload(peer, {Kind::kPart, 0, 0, 0}, 2048).value());
}

TEST(RoundDesk, DropsBytesOfStepsThatAreFarAway) {
  Group group(2, 1024, {});
  group.Begin();
  Plan plan;
  plan.steps = 1;
  group.Run({plan});

  const auto far = group.desk(0).OnPayload(
      MemberOf(1), {PayloadKey::Kind::kPart, 1'000'000, 0, 0}, 4096);
  const auto past = group.desk(0).OnPayload(
      MemberOf(1), {PayloadKey::Kind::kPart, 0, 0, 0}, 4096);

  EXPECT_EQ(far.value(), nullptr);
  EXPECT_EQ(past.value(), nullptr);
}

TEST(RoundDesk, AMessageOfAnotherAttemptChangesNothing) {
  Group group(2, 1024, {});
  group.Begin();
  RoundMessage message;
  message.attempt = 2;
  message.view = {1, 1};
  message.from = MemberOf(1);
  message.body = PartOffer{0, 0, 1000, 1, 1};
  group.desk(0).OnMessage(message, nullptr);
  message.body = PartOffer{0, 7, -5, 1, 1};
  message.attempt = 1;
  group.desk(0).OnMessage(message, nullptr);
  Plan plan;
  plan.steps = 2;

  const auto outcomes = group.Run({plan});

  EXPECT_EQ(outcomes[0].at(0).divisor, 4);
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(group.desk(0).Stats().refused_messages, 1);
}

TEST(RoundDesk, AResultWhoseHashDoesNotMatchItsBytesIsRefused) {
  Group group(2, 1024, {});
  group.Begin();
  std::shared_ptr<RoundPayload> bytes = RoundPayload::Make(4096);
  std::fill(bytes->mutable_bytes().begin(), bytes->mutable_bytes().end(), 1);
  MarkAllReady(*bytes);
  RoundMessage message;
  message.attempt = 1;
  message.view = {1, 1};
  message.from = MemberOf(0);
  ShardResult result;
  result.hash = bytes->hash() + 1;
  result.divisor = 1;
  message.body = Spread{0, result};
  group.desk(1).OnMessage(message, bytes);
  Plan plan;
  plan.steps = 1;

  const auto outcomes = group.Run({plan});

  EXPECT_EQ(outcomes[1].at(0).values, SumOf(2, 0, 1024));
  EXPECT_EQ(group.desk(1).Stats().refused_results, 1);
}

TEST(RoundDesk, StatesThatDifferStopTheRoundsAndAreReported) {
  Group group(2, 1024, {});
  group.Begin();
  // Member 1 applies something else than member 0 after step 0.
  std::thread other([&] {
    std::vector<float> gradient(1024, 1);
    for (;;) {
      auto turn = group.desk(1).AwaitTurn();
      if (!turn.ok()) return;
      group.desk(1).AwaitPartReleased();
      if (turn->kind == RoundTurn::Kind::kPart) {
        group.desk(1).BeginPart({.step = turn->step,
                                 .division = DivisionOf(turn->view, turn->step),
                                 .gradient = absl::MakeSpan(gradient)});
        group.desk(1).FinishPart(1);
      } else if (turn->kind == RoundTurn::Kind::kApply) {
        group.desk(1).OnApplied(turn->step + 1, 666);
      }
    }
  });
  std::thread first([&] { Compute(group.desk(0), 0, 1024, Plan{}); });
  MemberReport report;
  // Step 1 is served by member 1.
  while (report.mismatch.empty()) {
    group.member(1).observer.AwaitChange();
    report = group.desk(1).Report();
  }
  group.desk(0).Cancel(absl::CancelledError("over"));
  group.desk(1).Cancel(absl::CancelledError("over"));
  first.join();
  other.join();

  EXPECT_EQ(report.mismatch_step, 1);
  EXPECT_THAT(report.mismatch,
              testing::UnorderedElementsAre(testing::Pair(MemberOf(0), 1001),
                                            testing::Pair(MemberOf(1), 666)));
  EXPECT_EQ(report.next, 1);
}

TEST(RoundDesk, ExcludedFromAViewItEnds) {
  Group group(3, 1024, {});
  group.Begin();
  std::vector<std::map<int64_t, Outcome>> outcomes;
  Plan plan;
  plan.steps = 200;
  plan.before_part = [&](int64_t step) {
    if (step == 3) {
      group.desk(2).OnGroup(MakeGroup(
          MakeView(2, {{MemberOf(0), 0}, {MemberOf(1), 0}}), {MemberOf(2)}));
    }
  };
  auto ends = std::thread([&] { Compute(group.desk(2), 2, 1024, plan); });
  std::thread a([&] { Compute(group.desk(0), 0, 1024, Plan{.steps = 200}); });
  std::thread b([&] { Compute(group.desk(1), 1, 1024, Plan{.steps = 200}); });
  ends.join();
  group.desk(0).Cancel(absl::CancelledError("over"));
  group.desk(1).Cancel(absl::CancelledError("over"));
  a.join();
  b.join();

  EXPECT_EQ(group.desk(2).AwaitTurn().status().code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace paceline
