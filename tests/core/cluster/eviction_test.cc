#include "core/cluster/eviction.h"

#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(3);
constexpr absl::Duration kLong = absl::Milliseconds(3200);
constexpr absl::Duration kShort = absl::Milliseconds(200);

MemberId Number(int64_t n) { return {WorkerId{n}, {uint64_t(100 + n)}}; }

View ViewOf(int members) {
  View view;
  view.id = {1, 4};
  for (int i = 1; i <= members; ++i) view.members.push_back({Number(i), 0});
  view.leveller = Number(1);
  return view;
}

struct Word {
  int from;
  int of;
  bool broken = false;
  absl::Duration owing = absl::ZeroDuration();
};

std::map<MemberId, MemberReport> Reports(const View& view,
                                         const std::vector<Word>& words) {
  std::map<MemberId, MemberReport> reports;
  for (const ViewMember& member : view.members) {
    reports[member.id].view = view.id;
  }
  for (const Word& word : words) {
    reports[Number(word.from)].peers.push_back(
        {Number(word.of),
         word.broken ? absl::Milliseconds(10) : absl::ZeroDuration(), false,
         word.owing});
  }
  return reports;
}

// 0: nobody goes.
int64_t Gone(int members, const std::vector<Word>& words) {
  const View view = ViewOf(members);
  const auto eviction = DecideEviction(view, Reports(view, words), kLease);
  return eviction.has_value() ? eviction->member.worker.value : 0;
}

TEST(DecideEviction, FollowsTheTable) {
  const struct {
    const char* what;
    int members;
    std::vector<Word> words;
    int64_t gone;
  } kCases[] = {
      {"nobody says anything", 3, {}, 0},
      {"a broken link alone removes nobody", 3, {{1, 2, true}}, 0},
      {"owed for less than a lease", 3, {{1, 2, false, kLease * 0.9}}, 0},
      {"owed for a lease exactly", 3, {{1, 2, false, kLease}}, 2},
      {"one does not answer", 3, {{1, 2, false, kLong}}, 2},
      {"the lower id does not answer", 3, {{3, 1, false, kLong}}, 1},
      {"who waits itself is excused",
       4,
       {{3, 1, false, kLong}, {4, 1, false, kLong}, {1, 2, false, kLong}},
       2},
      {"two wait for each other over a working link: the first accused goes",
       2,
       {{1, 2, false, kLong}, {2, 1, false, kLong}},
       2},
      {"a cut link, otherwise equal: the higher id goes",
       4,
       {{2, 3, true, kLong}, {3, 2, true, kLong}},
       3},
      {"a cut link seen from one end: the higher id goes, whoever complains",
       4,
       {{3, 2, true, kLong}},
       3},
      {"a cut link: fewer working links go before higher ids",
       4,
       {{2, 3, true, kLong}, {2, 4, true}},
       2},
      {"a link that the other end reports counts as cut",
       4,
       {{2, 3, true, kLong}, {4, 2, true}},
       2},
      {"all wait in a circle for a link that is cut: its worse end goes",
       4,
       {{1, 3, false, kLong},
        {3, 2, true, kLong},
        {2, 1, false, kLong},
        {2, 4, true}},
       2},
      {"what holds up who is accused is not due yet: not by the others",
       4,
       {{1, 3, false, kLong}, {3, 2, true, kShort}},
       0},
      {"who waits for less than a lease is excused",
       4,
       {{1, 3, false, kLong}, {1, 4, false, kLong}, {3, 2, true, kShort}},
       4},
      {"the result is still arriving at who is accused, and the others wait "
       "for who sends it",
       3,
       {{1, 2, false, kLong},
        {2, 1, false, absl::Milliseconds(1)},
        {3, 1, false, kLong}},
       0},
      {"a process accuses itself", 2, {{1, 1, false, kLong}}, 0},
      {"of somebody who is no member", 2, {{1, 7, false, kLong}}, 0},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Gone(test.members, test.words), test.gone) << test.what;
  }
}

// w1 is owed an answer by w2, whose thread has handled nothing for `idle`.
int64_t GoneWith(absl::Duration idle, absl::Duration slowest,
                 absl::Duration delay = absl::ZeroDuration(),
                 bool cut = false) {
  const View view = ViewOf(3);
  auto reports = Reports(view, {{1, 2, cut, kLong}});
  reports[Number(2)].idle = idle;
  reports[Number(2)].slowest = slowest;
  const auto eviction = DecideEviction(view, reports, kLease, delay);
  return eviction.has_value() ? eviction->member.worker.value : 0;
}

TEST(DecideEviction, ADebtCountsOnlyWhileTheDebtorsThreadHandlesNothing) {
  constexpr absl::Duration kMoment = absl::Milliseconds(1);
  constexpr absl::Duration kQuick = absl::Milliseconds(2);
  const struct {
    const char* what;
    absl::Duration idle, slowest, delay;
    bool cut;
    int64_t gone;
  } kCases[] = {
      {"it is at work", kMoment, kQuick, {}, false, 0},
      {"just below the lease", kLease - kMoment, kQuick, {}, false, 0},
      {"the lease", kLease, kQuick, {}, false, 2},
      {"just below 5 of its answers", 5 * kLong - kMoment, kLong, {}, false, 0},
      {"5 of its answers", 5 * kLong, kLong, {}, false, 2},
      {"the coordinator is late", kLong, kQuick, kLong + kMoment, false, 0},
      {"it is later than that", kLong, kQuick, kLong, false, 2},
      {"its link is cut: fewer links", kMoment, kLong, kLong, true, 2},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(GoneWith(test.idle, test.slowest, test.delay, test.cut),
              test.gone)
        << test.what;
  }
}

TEST(DecideEviction, SaysForHowLongTheDebtorHasHandledNothing) {
  const View view = ViewOf(2);
  auto reports = Reports(view, {{1, 2, false, kLong}});
  reports[Number(2)].idle = absl::Seconds(4);

  EXPECT_EQ(DecideEviction(view, reports, kLease)->why,
            "owes an answer for 3.2 s and has handled nothing for 4.0 s");
}

// A server whose thread hangs before it spreads the result owes nobody anything
// yet.
TEST(DecideEviction, WhatIsAwaitedOfAHungThreadIsOwed) {
  const View view = ViewOf(3);
  for (const auto& [idle, gone] :
       {std::pair(absl::Seconds(2.9), false), {absl::Seconds(3), true}}) {
    auto reports = Reports(view, {});
    for (const int from : {1, 3}) {
      PeerReport awaited;
      awaited.peer = Number(2);
      awaited.awaited = true;
      reports[Number(from)].peers.push_back(awaited);
    }
    reports[Number(2)].idle = idle;

    EXPECT_EQ(DecideEviction(view, reports, kLease).has_value(), gone);
  }
}

// Its report is of the time before it hung, when it waited itself.
TEST(DecideEviction, AHungThreadIsNoExcusedOne) {
  const View view = ViewOf(3);
  auto reports = Reports(view, {{1, 2, false, kLong}, {2, 3, false, kLong}});
  reports[Number(2)].idle = absl::Seconds(9);
  reports[Number(3)].idle = absl::Milliseconds(1);

  EXPECT_EQ(DecideEviction(view, reports, kLease)->member, Number(2));
}

TEST(DecideEviction, ListensOnlyToThoseWhoHaveThePresentView) {
  const View view = ViewOf(3);
  auto reports = Reports(view, {{1, 2, false, kLong}});
  reports[Number(1)].view = {1, 3};

  EXPECT_FALSE(DecideEviction(view, reports, kLease).has_value());
}

TEST(DecideEviction, SplitsHalvesUntilOneIsLeft) {
  View view = ViewOf(4);
  const std::vector<Word> words = {
      {1, 3, true, kLong}, {1, 4, true, kLong}, {2, 3, true}, {2, 4, true}};
  std::vector<int64_t> gone;
  for (;;) {
    const auto next = DecideEviction(view, Reports(view, words), kLease);
    if (!next.has_value()) break;
    gone.push_back(next->member.worker.value);
    std::erase_if(view.members, [&](const ViewMember& member) {
      return member.id == next->member;
    });
  }

  EXPECT_THAT(gone, ElementsAre(3, 4));
}

// 1 waits for what 2 is to send; nobody owes anything by itself.
TEST(DecideEviction, WhatIsAwaitedIsOwedOverALinkThatEitherEndSaysIsBroken) {
  const View view = ViewOf(3);
  const auto gone = [&](int broken_at, absl::Duration broken) {
    auto reports = Reports(view, {});
    AddAwaited({Number(2)}, reports[Number(1)].peers);
    if (broken_at != 0) {
      const MemberId other = Number(3 - broken_at);
      auto& peers = reports[Number(broken_at)].peers;
      if (peers.empty()) peers.push_back({.peer = other});
      peers[0].broken = broken;
    }
    const auto eviction = DecideEviction(view, reports, kLease);
    return eviction.has_value() ? eviction->member.worker.value : 0;
  };

  EXPECT_EQ(gone(0, {}), 0) << "it may wait itself";
  for (const int end : {1, 2}) {
    EXPECT_EQ(gone(end, kShort), 0) << end;
    EXPECT_EQ(gone(end, kLong), 2) << end;
  }
}

TEST(AddAwaited, MarksThoseThatAreThereAndAddsTheOthers) {
  std::vector<PeerReport> peers = {{.peer = Number(2)}, {.peer = Number(3)}};

  AddAwaited({Number(3), Number(4)}, peers);

  ASSERT_EQ(peers.size(), 3u);
  EXPECT_FALSE(peers[0].awaited);
  EXPECT_TRUE(peers[1].awaited);
  EXPECT_EQ(peers[2].peer, Number(4));
  EXPECT_TRUE(peers[2].awaited);
}

TEST(DecideEviction, SaysWhoComplainsAndForHowLong) {
  const View view = ViewOf(3);

  const auto late =
      DecideEviction(view, Reports(view, {{1, 2, false, kLong}}), kLease);
  const auto cut =
      DecideEviction(view, Reports(view, {{1, 2, true, kLong}}), kLease);

  EXPECT_EQ(late->accuser, Number(1));
  EXPECT_EQ(late->why, "owes an answer for 3.2 s");
  EXPECT_THAT(cut->why, HasSubstr("its link is cut"));
}

// --- states that differ
// -------------------------------------------------------

MismatchVerdict Judge(int members, const std::vector<uint64_t>& hashes) {
  std::map<MemberId, uint64_t> states;
  for (size_t i = 0; i < hashes.size(); ++i) states[Number(i + 1)] = hashes[i];
  return DecideMismatch(ViewOf(members), states);
}

TEST(DecideMismatch, TheMinorityGoes) {
  const MismatchVerdict verdict = Judge(5, {7, 9, 7, 8, 7});

  EXPECT_FALSE(verdict.torn);
  EXPECT_EQ(verdict.majority, 3u);
  EXPECT_THAT(verdict.minority, ElementsAre(Number(2), Number(4)));
}

TEST(DecideMismatch, OfATieNobodyIsBelieved) {
  const MismatchVerdict verdict = Judge(5, {7, 9, 7, 9, 8});

  EXPECT_TRUE(verdict.torn);
  EXPECT_THAT(verdict.minority, IsEmpty());
}

TEST(DecideMismatch, EqualStatesAreNone) {
  EXPECT_THAT(Judge(3, {7, 7, 7}).minority, IsEmpty());
  EXPECT_FALSE(Judge(3, {}).torn);
}

TEST(DecideMismatch, WhoIsNoMemberAndWhoDoesNotKnowHaveNoVoice) {
  EXPECT_THAT(Judge(2, {7, 7, 9, 9, 9}).minority, IsEmpty());
  EXPECT_THAT(Judge(3, {7, 7, 0}).minority, IsEmpty());
  EXPECT_THAT(Judge(4, {0, 7, 7, 9}).minority, ElementsAre(Number(4)));
}

// --- members that hang
// --------------------------------------------------------

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
  const auto hang = DecideHang(view, work, kLease);
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
      view, {{Number(1), Work(6, 0)}, {Number(2), Work(5.5)}}, kLease);

  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(hang->idle, absl::Seconds(4.5));
}

TEST(DecideHang, SaysNothingOfWhoIsNotKnown) {
  View view;
  view.members = {{Number(1), 0}, {Number(2), 0}};

  EXPECT_FALSE(DecideHang(view, {{Number(1), Work(6, 0)}}, kLease).has_value());
}

}  // namespace
}  // namespace paceline
