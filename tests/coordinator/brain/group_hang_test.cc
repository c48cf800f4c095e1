// A member that hangs is taken out: the others go on without it.  Where all of
// them waited, nobody is taken out.
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;

MemberId MemberOf(int worker) {
  return {WorkerId{worker}, Incarnation{100u + worker}};
}

// Three members; bound and lease are three seconds.
class Group {
 public:
  Group() : group_(GroupOptions(), std::nullopt) {
    std::vector<GroupWorker> workers;
    for (int i = 1; i <= 3; ++i) workers.push_back({MemberOf(i), "w", "a:1"});
    group_.Begin(workers, {}, 0, At(0));
    group_.TakeNews();
  }

  // A heartbeat, and the coordinator's look at all.
  void Say(int worker, double seconds, int64_t next, int64_t progress,
           v1::RunState::Phase phase = v1::RunState::PHASE_RUNNING) {
    MemberReport report;
    report.view = group_.view()->id;
    report.next = next;
    report.has_taken_part = next > 0;
    report.idle = idle[worker];
    if (worker == accuser) {
      report.peers.push_back({MemberOf(2), {}, false, absl::Seconds(3.2)});
    }
    group_.OnReport(MemberOf(worker), phase, report, progress, At(seconds));
    group_.OnTick(At(seconds));
  }

  std::vector<GroupLeaver> Leavers() { return group_.TakeNews().leavers; }

  // Their threads have handled nothing for so long.
  std::map<int, std::optional<absl::Duration>> idle;
  int accuser = 0;  // says that the second one owes it an answer

 private:
  JobGroup group_;
};

// A busy machine takes long to make an engine ready.
TEST(GroupHang, PreparingIsNotHanging) {
  Group group;
  for (int i = 0; i <= 10; ++i) {
    for (int w = 1; w <= 3; ++w) {
      group.Say(w, 0.5 * i, 0, 0, v1::RunState::PHASE_PREPARING);
    }
  }
  for (int w = 1; w <= 3; ++w) group.Say(w, 5.1, 0, 0);

  // The third one's next heartbeat is not due yet.
  group.Say(1, 5.4, 9, 27);

  EXPECT_THAT(group.Leavers(), IsEmpty());
}

// The first one to speak after it is not the only one who goes on.
TEST(GroupHang, WhoWaitedForASlowRoundLikeAllDoesNotHangWhenItEnds) {
  Group group;
  for (int w = 1; w <= 3; ++w) group.Say(w, 0, 3, 9);
  for (int i = 1; i <= 10; ++i) {
    for (int w = 1; w <= 3; ++w) group.Say(w, 0.5 * i, 3, 10);
  }

  group.Say(1, 5.1, 4, 11);
  group.Say(2, 5.2, 3, 10);

  EXPECT_THAT(group.Leavers(), IsEmpty());
}

// The worker, the coordinator or the whole machine was stopped.
TEST(GroupHang, TimeOfWhichNobodyHeardIsNotHeldAgainstAMember) {
  Group group;
  for (int w = 1; w <= 3; ++w) group.Say(w, 0, 3, 9);
  group.Say(1, 0.1, 4, 10);

  group.Say(2, 24.2, 3, 9);
  group.Say(3, 24.2, 3, 9);

  EXPECT_THAT(group.Leavers(), IsEmpty());
}

// On a starved machine an answer is late, and so is who waits for it.
TEST(GroupDebt, OfAMemberThatAnswersOthersIsNotHeldAgainstIt) {
  for (const bool hangs : {false, true}) {
    Group group;
    for (int w = 1; w <= 3; ++w) group.Say(w, 0, 3, 9);
    group.idle[2] = hangs ? absl::Seconds(3.1) : absl::Seconds(2.9);
    group.accuser = 1;
    group.Say(2, 0.4, 3, 10);

    group.Say(1, 0.5, 3, 10);

    ASSERT_EQ(group.Leavers().size(), hangs ? 1u : 0u);
  }
}

TEST(GroupDebt, WaitsForACoordinatorThatIsLateItself) {
  for (const double pause : {0.5, 3.5}) {
    Group group;
    for (int w = 1; w <= 3; ++w) group.Say(w, 0, 3, 9);
    group.idle[2] = absl::Seconds(3.3);
    group.Say(2, pause, 3, 10);
    group.accuser = 1;

    group.Say(1, pause + 0.1, 3, 10);

    EXPECT_EQ(group.Leavers().size(), pause < 3 ? 1u : 0u) << pause;
  }
}

}  // namespace
}  // namespace paceline
