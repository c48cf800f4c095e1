// Scripts tell who goes of a group whose lease is three seconds.
#include "core/cluster/eviction.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/golden.h"
#include "tests/support/script.h"

namespace paceline {
namespace {

constexpr absl::Duration kLease = absl::Seconds(3);

MemberId IdOf(int64_t n) { return {WorkerId{n}, {uint64_t(100 + n)}}; }

std::string NameOf(const MemberId& id) {
  return absl::StrCat("w", id.worker.value);
}

// members COUNT [STEP]     that counts them from that step on
// link FROM OF [broken MS] [owes MS] [awaited]
// idle WORKER MS [SLOWEST_MS]   its thread has handled nothing for so long
// late MS                  the coordinator is
// old WORKER               it has not adopted the view
// states HASH...           those of w1, w2, ...
// work WORKER SINCE [turn N] [left AT] [prepares]    in seconds
class EvictionScript final : public Script {
 private:
  bool Do(const std::string& verb) override {
    const MemberId id = IdOf(Number(1));
    if (verb == "members") {
      for (int64_t i = 1; i <= Number(1); ++i) {
        view_.members.push_back({IdOf(i), Number(2)});
        reports_[IdOf(i)].view = view_.id;
      }
    } else if (verb == "link") {
      PeerReport& peer = reports_[id].peers.emplace_back();
      peer.peer = IdOf(Number(2));
      for (size_t i = 3; Has(i); ++i) {
        if (Word(i) == "broken") peer.broken = absl::Milliseconds(Number(++i));
        if (Word(i) == "owes") peer.owing = absl::Milliseconds(Number(++i));
        peer.awaited = peer.awaited || Word(i) == "awaited";
      }
    } else if (verb == "idle") {
      reports_[id].idle = absl::Milliseconds(Number(2));
      reports_[id].slowest = absl::Milliseconds(Number(3));
    } else if (verb == "late") {
      delay_ = absl::Milliseconds(Number(1));
    } else if (verb == "old") {
      reports_[id].view = {1, 3};
    } else if (verb == "states") {
      for (size_t i = 1; Has(i); ++i) states_[IdOf(i)] = Number(i);
    } else if (verb == "work") {
      MemberWork& work = work_[id];
      work.running = true;
      work.next = 5;
      work.turn = 7;
      work.heard = At(10);
      work.progress_since = At(std::stod(Word(2)));
      for (size_t i = 3; Has(i); ++i) {
        if (Word(i) == "turn") work.turn = Number(++i);
        if (Word(i) == "left") work.left_behind = At(std::stod(Word(++i)));
        if (Word(i) == "prepares") work.running = false;
      }
    } else {
      return false;
    }
    return true;
  }
  // Without those that go, the others may owe less.
  void Look() override {
    View view = view_;
    while (const auto next = DecideEviction(view, reports_, kLease, delay_)) {
      Say(absl::StrCat(NameOf(next->member), " goes, says ",
                       NameOf(next->accuser), ": ", next->why));
      std::erase_if(view.members, [&](const ViewMember& member) {
        return member.id == next->member;
      });
    }
    const MismatchVerdict verdict = DecideMismatch(view_, states_);
    if (verdict.torn) Say("torn");
    for (const MemberId& each : verdict.minority) {
      Say(absl::StrCat(NameOf(each), " has another state than ",
                       verdict.majority));
    }
    if (const auto hang = DecideHang(view_, work_, kLease)) {
      Say(absl::StrCat(NameOf(hang->member), " hangs for ",
                       absl::FormatDuration(hang->idle)));
    }
    if (out_.empty()) Say("all stay");
  }

  View view_{.id = {1, 4}, .members = {}, .leveller = IdOf(1)};
  std::map<MemberId, MemberReport> reports_;
  absl::Duration delay_;
  std::map<MemberId, uint64_t> states_;
  std::map<MemberId, MemberWork> work_;
};

TEST(Evictions, FollowTheTable) {
  ExpectAnswers("core/evictions", [](const std::string& script) {
    return EvictionScript().Play(script);
  });
}

TEST(AddAwaited, MarksThoseThatAreThereAndAddsTheOthers) {
  std::vector<PeerReport> peers = {{.peer = IdOf(2)}, {.peer = IdOf(3)}};

  AddAwaited({IdOf(3), IdOf(4)}, peers);

  EXPECT_THAT(peers, testing::ElementsAre(
                         PeerReport{.peer = IdOf(2)},
                         PeerReport{.peer = IdOf(3), .awaited = true},
                         PeerReport{.peer = IdOf(4), .awaited = true}));
}

}  // namespace
}  // namespace paceline
