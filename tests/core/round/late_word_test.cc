// A result's last word that comes late: from the view before while a new one is
// being levelled (who commits may be out of it, and alive), or to one who holds
// what the others have forgotten.
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/round/round_member.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

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
  // What it says to `to`.
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

TEST_F(LateWord, WhoHoldsAStepThatIsTooOldAsksForACopy) {
  Hear(kOther, before_, TooOld{0});
  EXPECT_EQ(Said<CopyRequest>(kOther).size(), 1u);

  Hear(kOther, before_, Copy{4, 5, 6});

  EXPECT_EQ(member_->next(), 4);
  EXPECT_FALSE(member_->held().has_value());
}

}  // namespace
}  // namespace paceline
