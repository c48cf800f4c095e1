// Tests how long an exchange keeps memory: a part's memory is the
// engine's, and an offered state is as large as the model.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/os/thread.h"
#include "tests/support/pieces.h"
#include "tests/worker/rounds/exchange_group.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {
namespace {

// Else its compute thread waits for the next round, and that one for its part.
TEST(RoundExchange, ALatePartGivesItsMemoryBackAtOnce) {
  ExchangeGroup group(2, 1000, {.deadline = 0.05});
  SteadyNotification applied;
  PartPlan late;
  late.steps = 2;
  late.before_part = [&](int64_t step) {
    if (step > 0) return applied.Notify();
    while (!group.exchange(1).IsOver(0)) group.member(1).observer.AwaitChange();
  };
  PartPlan waits;
  waits.steps = 2;
  waits.before_part = [&](int64_t step) {
    if (step == 0) return;
    EXPECT_TRUE(applied.WaitFor(absl::Seconds(60)));
  };

  const auto outcomes = group.Run({waits, late});

  EXPECT_EQ(outcomes[0].at(0).divisor, 2);
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

// As when a view changes while its server still decides.
TEST(RoundExchange, APartIsGivenBackAlthoughItsLossIsStillAskedFor) {
  ExchangeGroup group(1, 1000, {.rule = "zeno", .gamma = 0.1});
  group.Begin();
  RoundExchange& exchange = group.exchange(0);
  std::vector<float>& gradient = group.member(0).gradient;
  gradient.assign(1000, 1);
  ASSERT_EQ(exchange.AwaitTurn()->kind, RoundTurn::Kind::kPart);
  exchange.BeginPart({.step = 0, .gradient = absl::MakeSpan(gradient)});
  exchange.FinishPart(2);
  ASSERT_EQ(exchange.AwaitTurn()->kind, RoundTurn::Kind::kLoss);
  exchange.AnswerLoss(1.0);  // of the present state; that of a step comes next

  exchange.AwaitPartReleased();

  const absl::StatusOr<RoundTurn> turn = exchange.AwaitTurn();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->kind, RoundTurn::Kind::kApply);
  EXPECT_TRUE(turn->result.is_void());
}

TEST(RoundExchange, GivesAPartBackWhenItIsStoppedInTheMiddleOfARound) {
  ExchangeGroup group(2, 300'000, {});
  group.Begin();
  RoundExchange& exchange = group.exchange(0);
  std::vector<float> gradient(300'000, 1);
  ASSERT_EQ(exchange.AwaitTurn()->kind, RoundTurn::Kind::kPart);
  exchange.BeginPart({.step = 0, .gradient = absl::MakeSpan(gradient)});
  exchange.FinishPart(2);

  group.member(0).transport->Close();
  exchange.Stop();
  exchange.AwaitPartReleased();

  EXPECT_EQ(exchange.AwaitTurn().status().code(), absl::StatusCode::kCancelled);
}

// Each result is as large as the gradient.
TEST(RoundExchange, HoldsNoMoreResultsThanItsComputeThreadCanCatchUpWith) {
  ExchangeGroup group(2, 1000, {.deadline = 0.05}, /*unapplied_bytes=*/0);
  group.Begin();
  PartPlan plan;
  plan.steps = 20;
  std::map<int64_t, PartOutcome> first, second;
  std::thread quick(
      [&] { first = ComputeParts(group.member(0), 0, 1000, plan); });
  RecordingObserver& observer = group.member(1).observer;
  while (group.exchange(1).Report().next < kLeastUnapplied)
    observer.AwaitChange();
  for (int i = 0; i < 10; ++i) observer.AwaitChange();

  // It holds one more where it serves itself.
  EXPECT_LE(group.exchange(1).Report().next, kLeastUnapplied + 1);

  second = ComputeParts(group.member(1), 1, 1000, plan);
  quick.join();
  EXPECT_EQ(first.size(), 20u);
  EXPECT_EQ(first, second);
}

// The exchange of the only member of a view.
struct LoneExchange {
  explicit LoneExchange(RoundObserver& observer)
      : exchange(OptionsOfExchange(0, 1000, {}), clock, observer),
        transport(network.Connect(MemberOf(0), &exchange)) {
    EXPECT_TRUE(exchange.Start(*transport).ok());
  }
  ~LoneExchange() {
    transport->Close();
    exchange.Stop();
    exchange.AwaitPartReleased();
  }
  void Begin() { exchange.OnGroup(MakeGroup(MakeView(1, {{MemberOf(0), 0}}))); }

  MemoryRoundNetwork network;
  SystemClock clock;
  RoundExchange exchange;
  std::unique_ptr<RoundTransport> transport;
};

// Stands still when it hears of something first.
struct StandingObserver final : public RoundObserver {
  void OnRound(const v1::RoundRecord&) override {}
  void OnMemberChanged() override {
    if (stands.HasBeenNotified()) return;
    stands.Notify();
    go_on.WaitForNotification();
  }

  SteadyNotification stands;
  SteadyNotification go_on;
};

// Asks at once for what it hears of.
struct AskingObserver final : public RoundObserver {
  void OnRound(const v1::RoundRecord&) override {}
  void OnMemberChanged() override {
    if (asked.HasBeenNotified()) return;
    report = exchange->Report();
    asked.Notify();
  }

  RoundExchange* exchange = nullptr;
  MemberReport report;
  SteadyNotification asked;
};

TEST(RoundExchange, TellsOfAChangeWhenTheReportHasIt) {
  AskingObserver observer;
  LoneExchange lone(observer);
  observer.exchange = &lone.exchange;

  lone.Begin();
  observer.asked.WaitForNotification();

  EXPECT_EQ(observer.report.view, (ViewId{1, 1}));
}

// Peers repeat what was dropped; nobody repeats what this worker has done.
TEST(RoundExchange, PeersNeverCrowdOutWhatThisWorkerSays) {
  StandingObserver observer;
  std::vector<float> gradient(1000, 1);
  LoneExchange lone(observer);
  RoundExchange& exchange = lone.exchange;
  lone.Begin();
  observer.stands.WaitForNotification();
  const RoundMessage wanted = MessageOf(MemberOf(1), Want{0, 0});
  for (int i = 0; i < 20'000; ++i) exchange.OnMessage(wanted, nullptr);
  exchange.BeginPart({.step = 0, .gradient = absl::MakeSpan(gradient)});
  exchange.FinishPart(2);

  observer.go_on.Notify();

  SteadyNotification never;
  for (int i = 0; i < 1000 && !exchange.IsOver(0); ++i) {
    never.WaitFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(exchange.IsOver(0));
}

// A joiner has asked the only member for its state, which answers with `state`.
View OfferAState(ExchangeGroup& group, int64_t step, PiecePtr state) {
  const View view = MakeView(1, {{MemberOf(0), 0}});
  RoundExchange& exchange = group.exchange(0);
  exchange.OnGroup(MakeGroup(view, {MemberOf(1)}));
  exchange.OnMessage(MessageOf(MemberOf(1), StateRequest{}), nullptr);
  std::optional<RoundTurn> turn;
  while (!(turn = exchange.TryTakeOffer()).has_value()) {
    group.member(0).observer.AwaitChange();
  }
  turn->step = step;
  turn->state = {std::move(state)};
  exchange.AnswerState(*std::move(turn));
  return view;
}

TEST(RoundExchange, LetsGoOfAStateForAJoinerThatIsGone) {
  ExchangeGroup group(1, 1000, {});
  RoundExchange& exchange = group.exchange(0);
  RecordingObserver& observer = group.member(0).observer;
  PiecePtr state = MakePiece({1, 3}, 0, "state");
  const std::weak_ptr<const StoredPiece> kept = state;
  const View view = OfferAState(group, 3, std::move(state));

  exchange.OnGroup(MakeGroup(view));

  for (int i = 0; i < 500 && !kept.expired(); ++i) observer.AwaitChange();
  EXPECT_TRUE(kept.expired());
}

// A joiner asks again and again while it waits.
TEST(RoundExchange, OffersNoSecondStateBeforeTheFirstStep) {
  ExchangeGroup group(1, 1000, {});
  RoundExchange& exchange = group.exchange(0);
  RecordingObserver& observer = group.member(0).observer;
  const View view = OfferAState(group, 0, MakePiece({1, 0}, 0, "state"));

  exchange.OnMessage(MessageOf(MemberOf(1), StateRequest{}), nullptr);
  exchange.OnGroup(MakeGroup(MakeView(2, view.members), {MemberOf(1)}));
  while (exchange.view()->id.counter < 2) observer.AwaitChange();

  EXPECT_FALSE(exchange.TryTakeOffer().has_value());
}

TEST(RoundExchange, RefusesAStateOfAnotherHashThanItsOffer) {
  ExchangeGroup group(2, 1000, {});
  RoundExchange& exchange = group.exchange(1);
  exchange.OnGroup(MakeGroup(MakeView(1, {{MemberOf(0), 0}}), {MemberOf(1)}));
  const PiecePtr state = MakePiece({1, 5}, 0, "state");
  RoundTurn fetch;
  fetch.kind = RoundTurn::Kind::kFetch;
  fetch.offer = MessageOf(MemberOf(0), StateOffer{5, 1, state->checksum + 1});
  fetch.state = {state};
  exchange.AnswerState(std::move(fetch));

  for (int i = 0; i < 500 && exchange.Stats().refused_results == 0; ++i) {
    group.member(1).observer.AwaitChange();
  }

  EXPECT_EQ(exchange.Stats().refused_results, 1);
  EXPECT_EQ(exchange.Report().next, 0);
}

}  // namespace
}  // namespace paceline
