#include <vector>

#include "core/cluster/eviction.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr absl::Duration kBound = absl::Seconds(3);

Instant At(double seconds) { return {absl::Seconds(seconds)}; }
MemberId Number(int64_t n) { return {WorkerId{n}, {uint64_t(100 + n)}}; }

// All are heard at 10 s.
MemberWork Work(double progress_since, int64_t turn = 7) {
  MemberWork work;
  work.running = true;
  work.next = 5;
  work.turn = turn;
  work.heard = At(10);
  work.progress_since = At(progress_since);
  return work;
}

MemberWork LeftBehind(MemberWork work, double since) {
  work.left_behind = At(since);
  return work;
}

MemberWork Preparing(MemberWork work) {
  work.running = false;
  return work;
}

// 0: nobody hangs.
int64_t Hung(const std::vector<MemberWork>& all, int64_t joins_at = 0) {
  View view;
  std::map<MemberId, MemberWork> work;
  for (const MemberWork& each : all) {
    const MemberId id = Number(std::ssize(view.members) + 1);
    view.members.push_back({id, joins_at});
    work[id] = each;
  }
  const auto hang = DecideHang(view, work, kBound);
  return hang.has_value() ? hang->member.worker.value : 0;
}

TEST(DecideHang, FollowsTheTable) {
  const MemberWork busy = Work(9.9);
  const MemberWork waits = Work(6, /*turn=*/0);
  const struct {
    const char* what;
    std::vector<MemberWork> work;
    int64_t hung;
  } kCases[] = {
      {"all go on", {busy, busy}, 0},
      {"all are at work for long", {Work(1), Work(1)}, 0},
      {"all wait for long", {waits, waits}, 0},
      {"one is at work while another has waited for the bound",
       {waits, Work(6)},
       2},
      {"one is at work, and the other has not waited for the bound",
       {Work(7.1, 0), Work(6)},
       0},
      {"at work for less than the bound", {waits, Work(7.1)}, 0},
      {"the group goes on without it", {busy, LeftBehind(Work(1, 0), 7)}, 2},
      {"the group goes on without it, not for long yet",
       {busy, LeftBehind(Work(1, 0), 7.1)},
       0},
      {"it prepares", {waits, Preparing(Work(1))}, 0},
      {"who waits prepares still", {Preparing(waits), Work(1)}, 0},
      {"one at a time, by id", {waits, Work(1), Work(1)}, 2},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Hung(test.work), test.hung) << test.what;
  }
}

TEST(DecideHang, LeavesAJoinerAloneUntilItsStep) {
  const std::vector<MemberWork> work = {Work(6, 0), Work(6)};

  EXPECT_EQ(Hung(work, /*joins_at=*/5), 2);
  EXPECT_EQ(Hung(work, /*joins_at=*/6), 0);
}

TEST(DecideHang, SaysForHowLong) {
  View view;
  view.members = {{Number(1), 0}, {Number(2), 0}};

  const auto hang = DecideHang(
      view, {{Number(1), Work(6, 0)}, {Number(2), Work(5.5)}}, kBound);

  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->idle, absl::Seconds(4.5));
}

TEST(DecideHang, SaysNothingOfWhoIsNotKnown) {
  View view;
  view.members = {{Number(1), 0}, {Number(2), 0}};

  EXPECT_FALSE(DecideHang(view, {{Number(1), Work(6, 0)}}, kBound).has_value());
}

}  // namespace
}  // namespace paceline
