// Three sides of a member that no schedule shows by itself.
#include "core/round/round_member.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

// --- A result's last word that comes late ------------------------------------
// It comes from the view before while a new one is being levelled (the member
// that commits may be out of it, and alive), or to a member that holds what the
// others have forgotten.

const MemberId kOut = Member(0), kSelf = Member(1), kOther = Member(2);

ShardResult Shard() {
  return {0, false, 77, {{kOut, 1}, {kSelf, 1}, {kOther, 1}}, 3, {}};
}

RoundResult Result(const View& view) { return {0, view.id, {Shard()}}; }

View Without(const View& view, const MemberId& leveller) {
  View next = view;
  ++next.id.counter;
  next.members.erase(next.members.begin());
  next.leveller = leveller;
  return next;
}

// kSelf holds the result of step 0, which kOut serves; then kOut is taken out,
// and its view has not reached it.
class LateWord : public ::testing::Test {
 protected:
  LateWord() {
    member_.emplace(RoundOptions(), kSelf, 0, 9);
    member_->OnView(before_, At(0), actions_);
    Hear(kOut, before_, LevelDone{});
    member_->OnPart({PartOffer{0, 0, 1, 5, 0}}, At(0), actions_);
    Hear(kOut, before_, Spread{0, Shard()});
    EXPECT_TRUE(member_->held().has_value());
  }

  void Adopt(const MemberId& leveller) {
    now_ = Without(before_, leveller);
    actions_.clear();
    member_->OnView(now_, At(1), actions_);
  }
  void Hear(const MemberId& from, const View& view, Body body,
            int64_t committed_through = 0) {
    actions_.clear();
    member_->OnMessage(
        {0, view.id, from, committed_through, 0, std::move(body)}, At(1),
        actions_);
  }
  void HearCommitted() {
    Hear(kOut, before_, Committed{Result(before_)}, 1);
    EXPECT_EQ(member_->next(), 1);
  }
  // Its words of this kind to `to`.
  template <typename T>
  std::vector<T> Said(const MemberId& to) const {
    std::vector<T> said;
    for (const RoundAction& action : actions_) {
      const auto* const send = std::get_if<SendMessage>(&action);
      if (send == nullptr || send->to != to) continue;
      if (const auto* body = std::get_if<T>(&send->message.body)) {
        said.push_back(*body);
      }
    }
    return said;
  }

  const View before_ = SmallView(3);
  View now_;
  std::optional<RoundMember> member_;
  RoundActions actions_;
};

TEST_F(LateWord, AMemberThatHasAppliedTheTargetSaysThatItIsThere) {
  Adopt(/*leveller=*/kOther);
  HearCommitted();

  Hear(kOther, now_, Level{Result(now_)});

  const std::vector<Hold> holds = Said<Hold>(kOther);
  ASSERT_EQ(holds.size(), 1u);
  EXPECT_EQ(holds[0].step, 0);
  EXPECT_EQ(holds[0].hash, Result(now_).hash());
  Hear(kOther, now_, LevelDone{}, 1);
  EXPECT_EQ(member_->phase(), RoundMember::Phase::kRunning);
}

TEST_F(LateWord, AnotherResultOfThatStepIsNotSaidToBeThere) {
  Adopt(/*leveller=*/kOther);
  HearCommitted();
  RoundResult other = Result(now_);
  other.shards[0].hash = 78;

  Hear(kOther, now_, Level{other});

  EXPECT_TRUE(Said<Hold>(kOther).empty());
}

// Its own answer says that it only holds the result: it would ask itself for
// the bytes, for ever.
TEST_F(LateWord, ALevellerThatHasAppliedTheTargetIsDoneWithIt) {
  Adopt(/*leveller=*/kSelf);
  HearCommitted();

  Hear(kOther, now_, Answer{0, 0, Result(before_)});

  EXPECT_EQ(member_->phase(), RoundMember::Phase::kRunning);
  ASSERT_EQ(Said<LevelDone>(kOther).size(), 1u);
  for (const RoundAction& action : actions_) {
    const auto* const send = std::get_if<SendMessage>(&action);
    if (send == nullptr) continue;
    EXPECT_EQ(send->message.committed_through, 1);
    EXPECT_EQ(send->message.committed_hash, Result(now_).hash());
  }
}

// The word comes while it fetches the bytes from another.
TEST_F(LateWord, ALevellerNeedNotFetchWhatItHasAppliedMeanwhile) {
  member_.emplace(RoundOptions(), kSelf, 0, 9);  // that holds nothing
  member_->OnView(before_, At(0), actions_);
  Hear(kOut, before_, LevelDone{});
  Adopt(/*leveller=*/kSelf);
  Hear(kOther, now_, Answer{0, 0, Result(before_)});
  ASSERT_EQ(Said<Fetch>(kOther).size(), 1u);

  HearCommitted();

  EXPECT_EQ(member_->phase(), RoundMember::Phase::kRunning);
  EXPECT_EQ(Said<LevelDone>(kOther).size(), 1u);
}

// A joiner that a step does not count may hold it late: the others have gone
// on, and have forgotten its result.
TEST_F(LateWord, AHoldOfAForgottenStepIsToldThatItIsTooOld) {
  RoundOptions options;
  options.kept_results = 1;
  member_.emplace(options, kSelf, 0, 9);
  member_->OnView(before_, At(0), actions_);
  Hear(kOut, before_, LevelDone{});
  RoundResult second = Result(before_);
  second.step = 1;
  Hear(kOut, before_, Committed{Result(before_)}, 1);
  Hear(kOut, before_, Committed{second}, 2);
  ASSERT_EQ(member_->next(), 2);

  Hear(kOther, before_, Hold{0, Result(before_).hash(), 0, 0});
  ASSERT_EQ(Said<TooOld>(kOther).size(), 1u);
  EXPECT_EQ(Said<TooOld>(kOther)[0].step, 0);

  Hear(kOther, before_, Hold{1, second.hash(), 1, 0});
  EXPECT_TRUE(Said<TooOld>(kOther).empty());
  ASSERT_EQ(Said<Commit>(kOther).size(), 1u);
  EXPECT_EQ(Said<Commit>(kOther)[0].step, 1);
}

TEST_F(LateWord, WhoHoldsAStepThatIsTooOldAsksForAState) {
  Hear(kOther, before_, TooOld{0});
  EXPECT_EQ(Said<StateRequest>(kOther).size(), 1u);

  Hear(kOther, before_, StateOffer{4, 5, 6});

  EXPECT_EQ(member_->next(), 4);
  EXPECT_FALSE(member_->held().has_value());
}

// --- Messages that are sent again
// --------------------------------------------

TEST(Repeats, GetRarerTheLongerARoundTakes) {
  RoundMember member(RoundOptions(), kSelf, 0, 9);
  const View view = SmallView(3);
  RoundActions actions;
  member.OnView(view, At(0), actions);
  member.OnMessage({0, view.id, kOut, 0, 0, LevelDone{}}, At(0), actions);
  member.OnPart({PartOffer{0, 0, 1, 5, 0}}, At(0), actions);

  std::vector<int> offered;  // ms
  for (int ms = 10; ms < 2900; ms += 10) {
    actions.clear();
    member.OnTick(At(ms / 1e3), actions);
    for (const RoundAction& action : actions) {
      const auto* const send = std::get_if<SendMessage>(&action);
      if (send != nullptr &&
          std::holds_alternative<PartOffer>(send->message.body)) {
        offered.push_back(ms);
      }
    }
  }

  // Twice as long each time, and at most a quarter of the lease.
  EXPECT_EQ(offered, (std::vector<int>{100, 200, 400, 800, 1550, 2300}));
}

// --- A joiner must not level a view
// ------------------------------------------- A member that is gone may have
// applied what the joiner lacks.

// As a coordinator decides it that has just started, and has heard of nobody
// but of kOut's end.
View Alone() {
  View view;
  view.id = {2, 1};
  view.members = {{kSelf, 3}};
  view.leveller = kSelf;
  return view;
}

TEST(Joiner, LevelsNoViewThoughItIsNamed) {
  RoundActions actions;
  RoundMember joiner(RoundOptions(), kSelf, 0, /*state_hash=*/0);
  joiner.Join(kOut, At(0), actions);
  joiner.OnMessage({0, {1, 1}, kOut, 3, 0, StateOffer{3, 5, 6}}, At(0),
                   actions);
  ASSERT_EQ(joiner.next(), 3);

  joiner.OnView(Alone(), At(1), actions);
  joiner.OnTick(At(2), actions);

  EXPECT_EQ(joiner.phase(), RoundMember::Phase::kLevelling);
  EXPECT_FALSE(joiner.has_taken_part());
}

TEST(Joiner, WhoBeganTheAttemptLevelsItsViewAlone) {
  RoundActions actions;
  RoundMember member(RoundOptions(), kSelf, 3, /*state_hash=*/9);

  member.OnView(Alone(), At(1), actions);

  EXPECT_EQ(member.phase(), RoundMember::Phase::kRunning);
}

// --- A member that serves: how long its rounds wait
// ----------------------------

const MemberId kFirst = Member(0), kSecond = Member(1);

class Server : public ::testing::Test {
 protected:
  Server() {
    RoundOptions options;
    options.mode = ServerMode::kCentral;
    options.min_parts = 1;
    member_.emplace(options, kFirst, 0, 9);
    member_->OnView(view_, At(0), actions_);
    Hear(Answer{0, 0, {}}, At(0));
    EXPECT_EQ(member_->phase(), RoundMember::Phase::kRunning);
  }

  void Hear(Body body, Instant now) {
    member_->OnMessage(
        {0, view_.id, kSecond, member_->next(), 0, std::move(body)}, now,
        actions_);
  }
  // Both parts come `spread` apart, and are committed at `last`.  The other one
  // says that its state after `state_step` steps has this hash.
  void Round(Instant first, absl::Duration spread, int64_t state_step = 0,
             uint64_t state_hash = 0) {
    const int64_t step = member_->next();
    const Instant last = first + spread;
    member_->OnPart({PartOffer{step, 0, 1, 5, 0}}, first, actions_);
    Hear(PartOffer{step, 0, 1, 5, 0}, last);
    const auto* request = std::get_if<Aggregate>(&actions_.back());
    ASSERT_NE(request, nullptr);
    member_->OnAggregated(Aggregate(*request), 77, 2, last, actions_);
    ASSERT_TRUE(member_->held().has_value());
    Hear(Hold{step, member_->held()->hash(), state_step, state_hash}, last);
    ASSERT_EQ(member_->next(), step + 1);
  }

  // In the newest result.
  int64_t ComparedThrough() const {
    int64_t compared = -1;
    for (const RoundAction& action : actions_) {
      const auto* apply = std::get_if<Apply>(&action);
      if (apply != nullptr) compared = apply->result.compared_through;
    }
    return compared;
  }

  const View view_ = SmallView(2);
  RoundActions actions_;
  std::optional<RoundMember> member_;
};

TEST_F(Server, ComparesStatesThatTheOtherTellsSomeStepsLater) {
  const absl::Duration spread = absl::Milliseconds(1);
  Round(At(0), spread);
  member_->OnState(1, 11);
  Round(At(1), spread);  // nothing is known of the other's state
  EXPECT_EQ(ComparedThrough(), 0);
  member_->OnState(2, 22);
  Round(At(2), spread, 1, 11);
  EXPECT_EQ(ComparedThrough(), 1);
  Round(At(3), spread, 3, 33);  // its own state after three steps comes late
  EXPECT_EQ(ComparedThrough(), 1);
  member_->OnState(3, 33);
  Round(At(4), spread, 3, 33);
  EXPECT_EQ(ComparedThrough(), 3);
}

TEST_F(Server, HasNoComparedStateInAStepOfAnotherView) {
  RoundResult result{0, view_.id, {}, /*compared_through=*/5};
  Hear(Committed{result}, At(0));
  EXPECT_EQ(ComparedThrough(), 5);
  result.step = 1;
  result.view = {1, 0};
  Hear(Committed{result}, At(1));
  EXPECT_EQ(member_->next(), 2);
  EXPECT_EQ(ComparedThrough(), 0);
}

TEST_F(Server, WaitsInProportionToWhatTheStepTook) {
  Round(At(0), absl::Milliseconds(1));
  EXPECT_EQ(member_->deadline(), RoundOptions().deadline.ceiling);

  // Ten seconds later, though the other was a millisecond behind till now.
  const Instant first = At(10.001);
  member_->OnPart({PartOffer{1, 0, 1, 5, 0}}, first, actions_);
  EXPECT_EQ(member_->DueAt(), first + absl::Milliseconds(2500));
  member_->OnTick(first + absl::Milliseconds(2500), actions_);
  EXPECT_EQ(member_->deadline(), absl::Milliseconds(2500));
}

TEST_F(Server, ComputedForAnInstantItsRoundsWaitForTheFloor) {
  Round(At(0), absl::Milliseconds(1));
  Round(At(0.011), absl::Milliseconds(1));
  EXPECT_EQ(member_->deadline(), RoundOptions().deadline.floor);
}

}  // namespace
}  // namespace paceline
