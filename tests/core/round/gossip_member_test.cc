#include "core/round/gossip_member.h"

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/round/rules/rule_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/gossip_world.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;
using Verdict = ParameterAnswer::Verdict;

// --- Many members, from a seed ----------------------------------------------

struct Tally {
  int averaged = 0;   // pairs of which both did
  int one_sided = 0;  // of which one did
  int neither = 0;
};

// Over all pairs of all steps that both members ended.
Tally Count(GossipWorld& world) {
  Tally tally;
  for (auto& [id, process] : world.processes()) {
    for (const auto& [step, end] : process.ends) {
      if (!end.partner.worker.assigned() || end.partner < id) continue;
      const auto& others = world.processes().at(end.partner).ends;
      const auto other = others.find(step);
      if (other == others.end() || other->second.partner != id) continue;
      const int did = (end.outcome == GossipOutcome::kAveraged) +
                      (other->second.outcome == GossipOutcome::kAveraged);
      ++(did == 2   ? tally.averaged
         : did == 1 ? tally.one_sided
                    : tally.neither);
    }
  }
  return tally;
}

TEST(GossipMember, WithoutFaultsEveryPairOfEveryStepAverages) {
  for (const int members : {1, 2, 5, 6}) {
    GossipWorld world(members, 60, 7, {});
    world.Begin();
    world.Run();

    EXPECT_EQ(world.violation(), "");
    const Tally tally = Count(world);
    EXPECT_EQ(tally.averaged, 60 * (members / 2));
    EXPECT_EQ(tally.one_sided + tally.neither, 0);
    float sum = 0;
    for (auto& [id, process] : world.processes()) {
      EXPECT_EQ(process.ends.size(), 60u);
      EXPECT_NEAR(process.value, (members - 1) / 2.0, 1e-3)
          << "they come together";
      sum += process.value;
    }
    EXPECT_NEAR(sum, members * (members - 1) / 2.0, 1e-3)
        << "and their mean stays";
  }
}

TEST(GossipMember, LostRepeatedAndLateMessagesCostExchangesAndNothingElse) {
  Tally all;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    GossipWorld world(3 + static_cast<int>(seed % 5), 20, seed,
                      {0.2, 0.2, absl::Milliseconds(60)});
    world.Begin();
    world.Run();

    ASSERT_EQ(world.violation(), "") << "seed " << seed;
    for (auto& [id, process] : world.processes()) {
      ASSERT_EQ(process.ends.size(), 20u) << "seed " << seed;
      for (const auto& [step, end] : process.ends) {
        if (end.outcome != GossipOutcome::kAveraged) continue;
        // The other one did too, or its time was over before it heard so.
        const EndExchange& other =
            world.processes().at(end.partner).ends.at(step);
        ASSERT_EQ(other.partner, id);
        ASSERT_TRUE(other.outcome == GossipOutcome::kAveraged ||
                    other.outcome == GossipOutcome::kLate)
            << "seed " << seed;
      }
    }
    const Tally tally = Count(world);
    all.averaged += tally.averaged;
    all.one_sided += tally.one_sided;
    all.neither += tally.neither;
  }
  EXPECT_GT(all.averaged, 4 * (all.one_sided + all.neither));
}

TEST(GossipMember, AStoppedOneIsWaitedForAsLongAsItEverTookAndCatchesUp) {
  GossipWorld world(4, 200, 3, {});
  world.Begin();
  world.Run([&] { return world.furthest() == 20; });
  const Instant stopped = world.Now();
  world.Stop(1);
  world.Run([&] { return world.furthest() == 40; });

  // 20 steps of 10 ms, each with somebody who waits 200 for the stopped one, or
  // for one that did.
  EXPECT_LT(world.Now() - stopped, absl::Milliseconds(20 * (10 + 300)));
  EXPECT_LE(world.at(1).member.next(), 21);
  world.GoOn(1);
  world.Run();

  EXPECT_EQ(world.violation(), "");
  int late_ones = 0;  // at the end it is one of them again
  for (int64_t step = 190; step < 200; ++step) {
    late_ones += world.at(1).ends.at(step).outcome != GossipOutcome::kAveraged;
  }
  EXPECT_EQ(late_ones, 0);
}

TEST(GossipMember, OneThatIsAlwaysSlowerIsWaitedForAndAveragesAllTheSame) {
  GossipWorld world(5, 40, 11, {});
  world.at(0).compute = absl::Milliseconds(250);
  world.Begin();
  world.Run();

  EXPECT_EQ(world.violation(), "");
  const Tally tally = Count(world);
  EXPECT_EQ(tally.one_sided, 0);
  // Whoever waits for one that waits for the slow one may lose patience.
  EXPECT_GE(tally.averaged, 3 * tally.neither);
}

// --- Two or three, message by message ---------------------------------------

RoundMessage From(int member, Body body) {
  RoundMessage message;
  message.attempt = 1;
  message.from = Member(member);
  message.body = std::move(body);
  return message;
}

struct Node {
  explicit Node(int number, bool has_state = true)
      : member(Options(), Member(number), 0, has_state) {}

  static GossipOptions Options() {
    GossipOptions options;
    options.attempt = 1;
    options.partner_wait.ceiling = absl::Seconds(2);
    return options;
  }
  void View(int members, double now = 0) { View(SmallView(members), now); }
  void View(const paceline::View& view, double now) {
    member.OnView(view, At(now), actions);
  }
  void Ready(int64_t step, uint64_t hash, double now) {
    member.OnParameters(step, hash, At(now), actions);
  }
  void Hear(const RoundMessage& message, double now,
            Verdict bytes = Verdict::kTaken) {
    member.OnMessage(message, bytes, At(now), actions);
  }
  // Its words since, to be delivered or lost.
  std::vector<RoundMessage> Said() {
    std::vector<RoundMessage> said;
    for (const GossipAction& action : actions) {
      if (const auto* send = std::get_if<SendMessage>(&action)) {
        said.push_back(send->message);
      }
    }
    return said;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (const RoundMessage& said : Said()) texts.push_back(MessageText(said));
    return texts;
  }
  std::vector<EndExchange> Ends() const {
    std::vector<EndExchange> ends;
    for (const GossipAction& action : actions) {
      if (const auto* end = std::get_if<EndExchange>(&action)) {
        ends.push_back(*end);
      }
    }
    return ends;
  }
  GossipOutcome outcome() const {
    return Ends().empty() ? GossipOutcome::kAlone : Ends().back().outcome;
  }

  GossipMember member;
  GossipActions actions;
};

// Both have offered step 0; what they said is still to be heard.
struct Pair {
  Pair() {
    for (Node* node : {&a, &b}) node->View(2);
    a.Ready(0, 10, 1);
    b.Ready(0, 20, 1);
    offer_of_a = a.Said().back();
    offer_of_b = b.Said().back();
    a.actions.clear();
    b.actions.clear();
  }

  Node a{0};
  Node b{1};
  RoundMessage offer_of_a, offer_of_b;
};

TEST(GossipMember, AveragesWhenItHasThePartnersAndThePartnerItsOwn) {
  Pair pair;

  pair.a.Hear(pair.offer_of_b, 1.1);
  EXPECT_THAT(pair.a.Texts(),
              testing::ElementsAre("parameters of step 0 taken"));
  EXPECT_THAT(pair.a.Ends(), IsEmpty()) << "the partner may not have its own";
  pair.b.Hear(pair.offer_of_a, 1.2);
  pair.b.Hear(pair.a.Said().back(), 1.2);
  pair.a.Hear(pair.b.Said().back(), 1.3);

  ASSERT_EQ(pair.a.Ends().size(), 1u);
  EXPECT_EQ(pair.a.outcome(), GossipOutcome::kAveraged);
  EXPECT_EQ(pair.a.Ends()[0].hash, 20u);
  EXPECT_EQ(pair.b.Ends().at(0).hash, 10u);
  EXPECT_EQ(pair.a.member.next(), 1);
}

TEST(GossipMember, SaysAgainThatItHasThemToOneThatDidNotHear) {
  Pair pair;
  pair.a.Hear(pair.offer_of_b, 1.1);  // its word is lost
  pair.b.Hear(pair.offer_of_a, 1.1);
  pair.a.Hear(pair.b.Said().back(), 1.1);
  ASSERT_EQ(pair.a.outcome(), GossipOutcome::kAveraged);
  pair.a.actions.clear();

  pair.b.member.OnTick(At(1.3), pair.b.actions);
  pair.a.Hear(pair.b.Said().back(), 1.3);
  pair.b.Hear(pair.a.Said().back(), 1.3);

  EXPECT_EQ(pair.b.outcome(), GossipOutcome::kAveraged);
}

// Refused at once, the partner goes on, and is refused again.
TEST(GossipMember, RemembersWhyEachOfSomeEarlyOffersWasRefused) {
  Node a(0);
  a.View(2);
  for (const int64_t step : {0, 1}) {
    a.Hear(From(1, ParameterOffer{step, 20}), 1, Verdict::kNotFinite);
  }
  EXPECT_EQ(a.Texts().front(), "parameters of step 0 refused: not finite");

  a.Ready(0, 10, 1.1);
  a.Ready(1, 11, 1.2);

  ASSERT_EQ(a.Ends().size(), 2u);
  for (const auto& end : a.Ends()) {
    EXPECT_EQ(end.outcome, GossipOutcome::kNotFinite);
  }
}

TEST(GossipMember, AnAnswerToOtherParametersChangesNothing) {
  Pair pair;
  pair.a.Hear(pair.offer_of_b, 1.1);
  const ParameterAnswer good{0, 10, Verdict::kTaken};
  RoundMessage other_attempt = From(1, good);
  other_attempt.attempt = 2;
  for (const RoundMessage& wrong :
       {From(1, ParameterAnswer{0, 11, Verdict::kTaken}),
        From(1, ParameterAnswer{1, 10, Verdict::kTaken}),
        From(1, ParameterAnswer{0, 11, Verdict::kPast}), other_attempt,
        From(9, good)}) {
    pair.a.Hear(wrong, 1.2);
  }

  EXPECT_THAT(pair.a.Ends(), IsEmpty());
}

TEST(GossipMember, RefusesNonFiniteAndWrongBytesAndNeitherAverages) {
  for (const Verdict bytes : {Verdict::kNotFinite, Verdict::kWrongBytes}) {
    Pair pair;
    pair.b.Hear(pair.offer_of_a, 1.1);
    pair.a.Hear(pair.b.Said().back(), 1.1);

    pair.a.Hear(pair.offer_of_b, 1.2, bytes);
    pair.b.Hear(pair.a.Said().back(), 1.2);

    EXPECT_EQ(pair.a.outcome(), bytes == Verdict::kNotFinite
                                    ? GossipOutcome::kNotFinite
                                    : GossipOutcome::kWrongBytes);
    EXPECT_EQ(pair.b.outcome(), GossipOutcome::kRefused);
    EXPECT_EQ(pair.a.member.next(), 1);
    EXPECT_EQ(pair.b.member.next(), 1);
  }
}

TEST(GossipMember, OneThatIsTooFarBehindSaysSoAndIsNotWaitedFor) {
  Pair pair;

  pair.b.Hear(pair.offer_of_a, 1.1, Verdict::kBehind);
  pair.a.Hear(pair.b.Said().back(), 1.1);

  EXPECT_EQ(pair.a.outcome(), GossipOutcome::kLate);
  EXPECT_EQ(pair.b.outcome(), GossipOutcome::kPast);
}

TEST(GossipMember, GivesUpAtTheDeadlineAndTellsOneThatComesLater) {
  Node a(0);
  a.View(2);
  a.Ready(0, 10, 1);
  EXPECT_EQ(a.member.DueAt(), At(3));
  a.member.OnTick(At(2.9), a.actions);
  EXPECT_THAT(a.Ends(), IsEmpty());

  a.member.OnTick(At(3), a.actions);
  EXPECT_EQ(a.outcome(), GossipOutcome::kLate);
  EXPECT_EQ(a.member.DueAt(), std::nullopt);

  Pair pair;
  a.Hear(pair.offer_of_b, 3.5);
  EXPECT_EQ(a.Texts().back(), "parameters of step 0 refused: the step is past");
  pair.b.Hear(a.Said().back(), 3.6);
  EXPECT_EQ(pair.b.outcome(), GossipOutcome::kPast);
}

TEST(GossipMember, OneWithAnotherViewMayMeetSomebodyElse) {
  // In the younger view of three, step 0's pairs are others.
  View three = SmallView(3, 2);
  int64_t step = 0;
  while (GossipPartner(MembersAt(three, step), 0, step, Member(1)) ==
         Member(0)) {
    ++step;
  }
  Node a(0), b(1);
  for (Node* node : {&a, &b}) {
    node->View(2);
    for (int64_t s = 0; s < step; ++s) {
      node->Ready(s, 5, 1);
      node->member.OnTick(At(100 * static_cast<double>(s + 1)), node->actions);
    }
  }
  b.View(three, 900);
  a.Ready(step, 10, 1000);
  b.Ready(step, 20, 1000);

  b.Hear(a.Said().back(), 1000);
  ASSERT_FALSE(b.Texts().empty());
  a.Hear(b.Said().back(), 1000);

  EXPECT_TRUE(a.outcome() == GossipOutcome::kOtherPartner ||
              a.outcome() == GossipOutcome::kPast);
}

TEST(GossipMember, APartnerThatIsDeadOrNoMemberAnyMoreIsNotWaitedFor) {
  Node a(0);
  a.View(2);
  a.Ready(0, 10, 1);
  View alone = SmallView(1, 2);

  a.View(alone, 1.1);
  EXPECT_EQ(a.outcome(), GossipOutcome::kLost);
  a.View(SmallView(2, 3), 1.2);
  a.member.OnLink(Member(1), /*dead=*/true, At(1.3), a.actions);
  a.Ready(1, 11, 1.4);
  EXPECT_EQ(a.outcome(), GossipOutcome::kLost);
  a.member.OnLink(Member(1), /*dead=*/false, At(1.5), a.actions);
  a.Ready(2, 12, 1.6);
  EXPECT_EQ(a.Ends().size(), 2u) << "it is waited for again";
  a.member.OnLink(Member(1), /*dead=*/true, At(1.7), a.actions);
  EXPECT_EQ(a.Ends().size(), 3u);
}

TEST(GossipMember, AnOlderViewChangesNothingAndOneWithoutItEndsItsPart) {
  Node a(0);
  a.View(SmallView(2, 5), 0);
  a.View(SmallView(3, 4), 0);
  EXPECT_EQ(a.member.view()->id.counter, 5);
  EXPECT_TRUE(a.member.needs_part());

  View others = SmallView(3, 6);
  others.members.erase(others.members.begin());
  a.View(others, 0);

  EXPECT_FALSE(a.member.is_member());
  EXPECT_FALSE(a.member.needs_part());
}

TEST(GossipMember, AListenerAsksUntilItHasAStateAndGivesNone) {
  Node joiner(5, /*has_state=*/false);
  joiner.member.Join(Member(0), At(0), joiner.actions);
  joiner.member.OnTick(At(0.05), joiner.actions);
  joiner.member.OnTick(At(0.2), joiner.actions);
  EXPECT_EQ(joiner.Texts(),
            (std::vector<std::string>{"state wanted", "state wanted"}));
  joiner.actions.clear();
  joiner.Hear(From(6, StateRequest{}), 0.3);
  EXPECT_THAT(joiner.actions, IsEmpty());

  joiner.Hear(From(0, StateOffer{30, 0, 77}), 0.4);
  joiner.Hear(From(0, StateOffer{30, 0, 77}), 0.5);  // again
  View view = SmallView(2, 3);
  view.members.push_back({Member(5), 41});
  joiner.View(view, 0.6);

  ASSERT_EQ(joiner.actions.size(), 1u);
  EXPECT_EQ(std::get<TakeState>(joiner.actions[0]).next, 30);
  EXPECT_EQ(joiner.member.next(), 41);
  EXPECT_TRUE(joiner.member.needs_part());
}

// The members had the view before it, and the first of them is there already.
TEST(GossipMember, AJoinerMeetsOneThatOfferedBeforeItsViewCame) {
  Node joiner(1, /*has_state=*/false);
  joiner.Hear(From(0, StateOffer{3, 0, 77}), 0.1);
  for (const int64_t step : {4, 5}) {
    joiner.Hear(From(0, ParameterOffer{step, 20}), 0.2);
  }
  View view = SmallView(1, 3);
  view.members.push_back({Member(1), 5});
  joiner.View(view, 0.3);
  joiner.actions.clear();

  joiner.Ready(5, 10, 0.4);
  EXPECT_THAT(joiner.Texts(),
              testing::ElementsAre("parameters of step 5",
                                   "parameters of step 5 taken"));
  joiner.Hear(From(0, ParameterAnswer{5, 10, Verdict::kTaken}), 0.5);

  EXPECT_EQ(joiner.outcome(), GossipOutcome::kAveraged);
}

TEST(GossipMember, AMemberWithoutParametersGoesOnAlone) {
  Node a(0);
  a.View(2);

  a.Ready(0, 0, 1);

  EXPECT_EQ(a.outcome(), GossipOutcome::kAlone);
  EXPECT_EQ(a.member.next(), 1);
}

// --- Pairs, and the mean of two
// ------------------------------------------------

std::vector<MemberId> MembersUpTo(int count) {
  std::vector<MemberId> members;
  for (int i = 1; i <= count; ++i) {
    members.push_back({WorkerId(i), Incarnation(1000 + i)});
  }
  return members;
}

TEST(Gossip, EverybodyMeetsAtMostOneWhoAgreesAndOneOfAnOddNumberNobody) {
  for (const int count : {0, 1, 2, 3, 8, 9}) {
    const std::vector<MemberId> members = MembersUpTo(count);
    for (int64_t step = 0; step < 50; ++step) {
      std::map<MemberId, MemberId> met;
      for (const auto& [first, second] : GossipPairs(members, 7, step)) {
        EXPECT_LT(first, second);
        EXPECT_TRUE(met.emplace(first, second).second);
        EXPECT_TRUE(met.emplace(second, first).second);
      }
      EXPECT_EQ(std::ssize(met), count / 2 * 2);
      for (const MemberId& self : members) {
        const auto partner = GossipPartner(members, 7, step, self);
        EXPECT_EQ(partner.has_value(), met.count(self) > 0);
        if (partner.has_value()) {
          EXPECT_EQ(*partner, met.at(self));
        }
      }
    }
  }
  EXPECT_EQ(GossipPartner(MembersUpTo(7), 3, 0, Member(99)), std::nullopt);
}

TEST(Gossip, EveryPairMeetsSoonerOrLaterAndSeedsDiffer) {
  const std::vector<MemberId> members = MembersUpTo(6);
  std::set<std::pair<MemberId, MemberId>> seen;
  bool differs = false;
  for (int64_t step = 0; step < 200; ++step) {
    const auto pairs = GossipPairs(members, 1, step);
    seen.insert(pairs.begin(), pairs.end());
    differs |= pairs != GossipPairs(members, 2, step);
    EXPECT_EQ(pairs, GossipPairs(members, 1, step));
  }
  EXPECT_EQ(seen.size(), 15u);
  EXPECT_TRUE(differs);
}

TEST(Gossip, BothPartnersEndWithTheSameBytes) {
  SplitMix64 random(5);
  std::vector<float> a, b;
  for (int i = 0; i < 1000; ++i) {
    a.push_back(static_cast<float>(random.Unit() - 0.5));
    b.push_back(static_cast<float>(1e3 * random.Unit()));
  }
  for (const float value : {3.4e38f, -3.4e38f, 1e-45f, 0.0f}) {
    a.push_back(value);
    b.push_back(value);
  }
  const std::vector<float> before = a;

  AverageWith(absl::MakeSpan(a), b);
  AverageWith(absl::MakeSpan(b), before);

  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  EXPECT_FLOAT_EQ(a[1000], 3.4e38f) << "no overflow";
  EXPECT_FLOAT_EQ(a[1002], 1e-45f) << "nor underflow of equal values";
}

}  // namespace
}  // namespace paceline
