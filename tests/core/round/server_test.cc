// A member that serves: how long its rounds wait.
#include <optional>
#include <utility>
#include <variant>

#include "core/round/round_member.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

const MemberId kServer = Member(0), kOther = Member(1);

class Server : public ::testing::Test {
 protected:
  Server() {
    RoundOptions options;
    options.mode = ServerMode::kCentral;
    options.min_parts = 1;
    member_.emplace(options, kServer, 0, 9);
    member_->OnView(view_, At(0), actions_);
    Hear(Answer{0, 0, {}}, At(0));
    EXPECT_EQ(member_->phase(), RoundMember::Phase::kRunning);
  }

  void Hear(Body body, Instant now) {
    member_->OnMessage(
        {0, view_.id, kOther, member_->next(), 0, std::move(body)}, now,
        actions_);
  }
  // Both parts come `spread` apart, and are committed at `last`.
  void Round(Instant first, absl::Duration spread) {
    const int64_t step = member_->next();
    const Instant last = first + spread;
    member_->OnPart({PartOffer{step, 0, 1, 5, 0}}, first, actions_);
    Hear(PartOffer{step, 0, 1, 5, 0}, last);
    const auto* request = std::get_if<Aggregate>(&actions_.back());
    ASSERT_NE(request, nullptr);
    member_->OnAggregated(Aggregate(*request), 77, 2, last, actions_);
    ASSERT_TRUE(member_->held().has_value());
    Hear(Hold{step, member_->held()->hash(), 0, 0}, last);
    ASSERT_EQ(member_->next(), step + 1);
  }

  const View view_ = SmallView(2);
  RoundActions actions_;
  std::optional<RoundMember> member_;
};

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
