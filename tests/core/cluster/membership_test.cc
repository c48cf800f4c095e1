#include "core/cluster/membership.h"

#include <string>
#include <vector>

#include "core/cluster/registration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

Instant AtMs(int64_t ms) { return {absl::Milliseconds(ms)}; }

v1::Registration Of(const std::string& name, uint64_t incarnation,
                    const std::string& machine = "m1") {
  v1::Registration registration;
  registration.set_name(name);
  registration.set_machine_id(machine);
  registration.set_incarnation(incarnation);
  registration.set_address("10.0.0.1:7401");
  registration.set_cpu_capability("avx2");
  return registration;
}

// The first of them is worker 1 on stream 1, and so on.
Membership Workers(std::initializer_list<const char*> names) {
  Membership membership(MembershipPolicy{}, AtMs(0));
  int64_t id = 0;
  for (const char* name : names) {
    ++id;
    membership.OnAttach(Of(name, id), StreamId{id}, AtMs(0)).IgnoreError();
  }
  return membership;
}

MemberState StateOf(const Membership& membership, int64_t id) {
  return membership.Find(WorkerId{id})->state;
}

TEST(Membership, ReattachKeepsTheIdAndReplacesTheStream) {
  Membership membership = Workers({"a"});

  const auto again = membership.OnAttach(Of("a", 1), StreamId{2}, AtMs(10));

  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->id, WorkerId{1});
  EXPECT_EQ(again->arrival, Arrival::kReattached);
  EXPECT_EQ(again->replaced, StreamId{1});
  EXPECT_EQ(membership.OnHeard(StreamId{1}, AtMs(11)), nullptr);
  EXPECT_NE(membership.OnHeard(StreamId{2}, AtMs(11)), nullptr);
  membership.OnStreamBroken(StreamId{1}, AtMs(11));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLive);
}

TEST(Membership, RestartOnTheSameMachineTakesTheNameOverForGood) {
  Membership membership = Workers({"a"});

  const auto restarted = membership.OnAttach(Of("a", 2), StreamId{2}, AtMs(10));

  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_EQ(restarted->arrival, Arrival::kRestarted);
  EXPECT_EQ(restarted->id, WorkerId{1});
  const auto stale = membership.OnAttach(Of("a", 1), StreamId{3}, AtMs(20));

  EXPECT_EQ(stale.status().code(), absl::StatusCode::kAborted)
      << stale.status();
}

TEST(Membership, NameOfALiveWorkerIsRefusedToAnotherMachine) {
  Membership membership = Workers({"a"});

  const auto refused =
      membership.OnAttach(Of("a", 2, "m2"), StreamId{2}, AtMs(10));

  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists)
      << refused.status();
}

// Two boards from one card image have one host name and one machine id.  Once
// it is known that both live, the second one is told to stay away.  Before, a
// person may be exchanging the machines.
TEST(Membership,
     NameOfALiveWorkerIsRefusedForGoodOnceItWasHeardForThreeLeases) {
  Membership membership = Workers({"a"});
  v1::Registration twin = Of("a", 2);
  twin.set_address("10.0.0.2:7401");

  const auto first = membership.OnAttach(twin, StreamId{2}, AtMs(10));
  membership.OnHeard(StreamId{1}, AtMs(9'009));
  const auto second = membership.OnAttach(twin, StreamId{3}, AtMs(9'010));
  membership.OnHeard(StreamId{1}, AtMs(9'010));
  const auto third = membership.OnAttach(twin, StreamId{4}, AtMs(9'020));

  EXPECT_TRUE(absl::IsAlreadyExists(first.status())) << first.status();
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_TRUE(absl::IsAborted(third.status())) << third.status();
  EXPECT_THAT(third.status().message(), testing::HasSubstr("machine id"));
  EXPECT_EQ(membership.Find(WorkerId{1})->stream, StreamId{1});
}

// Counted as a sign of life: the newcomer ended for good, and the old one was
// dead.
TEST(Membership, StandstillOfTheCoordinatorRefusesNoNewcomerForGood) {
  Membership membership = Workers({"a"});
  membership.OnAttach(Of("a", 2, "m2"), StreamId{2}, AtMs(10)).IgnoreError();

  membership.OnStandstill(absl::Seconds(30), AtMs(30'010));
  const auto again =
      membership.OnAttach(Of("a", 2, "m2"), StreamId{3}, AtMs(30'020));

  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
}

TEST(Membership, NameOfALostWorkerMayMoveToAnotherMachine) {
  Membership membership = Workers({"a"});
  membership.OnStreamBroken(StreamId{1}, AtMs(0));
  membership.OnTick(AtMs(500));

  const auto moved =
      membership.OnAttach(Of("a", 2, "m2"), StreamId{2}, AtMs(600));

  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->id, WorkerId{1});
}

TEST(Membership, BrokenStreamIsLostAfterTheGraceAndNotBefore) {
  Membership membership = Workers({"a"});
  membership.OnStreamBroken(StreamId{1}, AtMs(100));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kSuspect);

  EXPECT_TRUE(membership.OnTick(AtMs(599)).empty());
  EXPECT_EQ(StateOf(membership, 1), MemberState::kSuspect);

  const auto changes = membership.OnTick(AtMs(600));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].state, MemberState::kLost);
  EXPECT_EQ(membership.Find(WorkerId{1})->why,
            "its stream broke and it did not come back for 0.5 s");
}

TEST(Membership, SilenceIsSuspectAtHalfTheLeaseAndLostAtTheLease) {
  Membership membership = Workers({"a"});

  EXPECT_TRUE(membership.OnTick(AtMs(1499)).empty());
  EXPECT_EQ(membership.OnTick(AtMs(1500))[0].state, MemberState::kSuspect);
  EXPECT_TRUE(membership.OnTick(AtMs(2999)).empty());
  EXPECT_EQ(membership.OnTick(AtMs(3000))[0].state, MemberState::kLost);
}

TEST(Membership, NobodyIsSilentWhileTheCoordinatorStandsStill) {
  Membership membership = Workers({"a", "b"});
  membership.OnStreamBroken(StreamId{2}, AtMs(100));

  membership.OnStandstill(absl::Seconds(2), AtMs(2'100));

  EXPECT_TRUE(membership.OnTick(AtMs(2'100)).empty());
  EXPECT_EQ(membership.OnTick(AtMs(2'600))[0].id, WorkerId{2}) << "its grace";
  EXPECT_EQ(membership.OnTick(AtMs(5'000))[0].state, MemberState::kLost);
}

// Its heartbeat was taken before the tick that noticed the standstill.
TEST(Membership, AShortStandstillGivesNobodyMoreThanTheLease) {
  Membership membership = Workers({"a"});
  membership.OnHeard(StreamId{1}, AtMs(2'000));

  membership.OnStandstill(absl::Seconds(2), AtMs(2'000));

  EXPECT_EQ(membership.OnTick(AtMs(5'000))[0].state, MemberState::kLost);
}

TEST(Membership, NobodyIsLostForAsLongAsAfterARestartOnceItStoodStill) {
  Membership membership = Workers({"a", "b"});
  membership.OnStandstill(absl::Milliseconds(29'500), AtMs(30'000));
  membership.OnStreamBroken(StreamId{1}, AtMs(30'000));
  membership.OnLinks(WorkerId{2}, {{WorkerId{1}, "its link broke"}},
                     AtMs(30'000));

  membership.OnTick(AtMs(33'400));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kSuspect);
  EXPECT_EQ(StateOf(membership, 2), MemberState::kSuspect);

  membership.OnTick(AtMs(33'500));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLost);
}

TEST(Membership, StandstillsWithoutEndDoNotKeepADeadMember) {
  Membership membership = Workers({"a"});
  membership.OnStreamBroken(StreamId{1}, AtMs(0));
  int64_t ms = 0;
  for (int i = 0; i < 10; ++i) {
    ms += 10'000;
    membership.OnStandstill(absl::Milliseconds(9'500), AtMs(ms));
    membership.OnTick(AtMs(ms));
  }

  EXPECT_EQ(StateOf(membership, 1), MemberState::kLost);
}

TEST(Membership, WorkerThatStopsIsStoppedUntilItAttachesAgain) {
  Membership membership = Workers({"a"});

  EXPECT_TRUE(membership.OnStopping(StreamId{1}, AtMs(10)).has_value());
  EXPECT_FALSE(membership.OnStopping(StreamId{1}, AtMs(20)).has_value());
  EXPECT_NE(membership.OnHeard(StreamId{1}, AtMs(30)), nullptr);
  membership.OnStreamBroken(StreamId{1}, AtMs(40));
  membership.OnTick(AtMs(60'000));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kStopped);

  membership.OnAttach(Of("a", 2, "m2"), StreamId{2}, AtMs(60'000))
      .IgnoreError();
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLive);
}

TEST(Membership, HeartbeatJustInTimeKeepsItAlive) {
  Membership membership = Workers({"a"});
  membership.OnTick(AtMs(2999));

  membership.OnHeard(StreamId{1}, AtMs(2999));

  EXPECT_TRUE(membership.OnTick(AtMs(4000)).empty());
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLive);
}

TEST(Membership, LostMemberIsNotHeardUntilItAttachesAgain) {
  Membership membership = Workers({"a"});
  membership.OnTick(AtMs(3000));

  EXPECT_EQ(membership.OnHeard(StreamId{1}, AtMs(3001)), nullptr);
  membership.OnAttach(Of("a", 1), StreamId{2}, AtMs(3002)).IgnoreError();
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLive);
}

TEST(Membership, RestoredWorkerIsLostUntilItAttachesAndKeepsItsId) {
  Membership membership = Workers({});
  membership.Restore(WorkerId{7}, Of("a", 1));
  EXPECT_EQ(StateOf(membership, 7), MemberState::kLost);
  EXPECT_FALSE(membership.Find(WorkerId{7})->seen);

  const auto back = membership.OnAttach(Of("a", 1), StreamId{1}, AtMs(5));
  const auto other = membership.OnAttach(Of("b", 2), StreamId{2}, AtMs(5));

  EXPECT_EQ(back->id, WorkerId{7});
  EXPECT_EQ(back->arrival, Arrival::kReattached);
  EXPECT_EQ(other->id, WorkerId{8});
}

struct Bad {
  const char* field;
  void (*spoil)(v1::Registration&);
};

TEST(CheckRegistration, NamesTheFieldThatIsWrong) {
  const Bad all[] = {
      {"name", [](v1::Registration& r) { r.set_name("has blank"); }},
      {"name", [](v1::Registration& r) { r.set_name(""); }},
      {"name", [](v1::Registration& r) { r.set_name(std::string(64, 'a')); }},
      {"name", [](v1::Registration& r) { r.set_name("a\xff\"\n"); }},
      {"machine_id", [](v1::Registration& r) { r.set_machine_id(""); }},
      {"incarnation", [](v1::Registration& r) { r.set_incarnation(0); }},
      {"address", [](v1::Registration& r) { r.set_address("nowhere"); }},
      {"address", [](v1::Registration& r) { r.set_address(":7401"); }},
      {"address", [](v1::Registration& r) { r.set_address("host:0"); }},
      {"address", [](v1::Registration& r) { r.set_address("a\"b:1"); }},
      {"http_address",
       [](v1::Registration& r) { r.set_http_address("x:99999"); }},
      {"cpu_capability",
       [](v1::Registration& r) { r.set_cpu_capability("mmx"); }},
      {"cpu_model",
       [](v1::Registration& r) { r.set_cpu_model(std::string(999, 'x')); }},
      {"memory_bytes", [](v1::Registration& r) { r.set_memory_bytes(-1); }},
  };
  ASSERT_TRUE(CheckRegistration(Of("pi-2.local_x", 1)).ok());
  for (const Bad& bad : all) {
    v1::Registration registration = Of("a", 1);
    bad.spoil(registration);

    const absl::Status status = CheckRegistration(registration);

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(bad.field), absl::string_view::npos)
        << status;
  }
}

// A worker with a long --data-dir was refused, though its list is for people
// only.
TEST(CheckRegistration, TakesAListOfWhateverFoldersThereAre) {
  std::vector<std::string> folders(150, "/" + std::string(300, 'a'));
  folders[0] = "/srv/a\nb\xff";
  v1::Registration registration = Of("a", 1);

  SetDataDirs(folders, registration);

  EXPECT_TRUE(CheckRegistration(registration).ok())
      << CheckRegistration(registration);
  EXPECT_EQ(registration.data_dirs_size(), 100);
  EXPECT_EQ(registration.data_dirs(0), "/srv/a?b\\xff");
}

TEST(Membership, AnnouncedRestartHasTheLeaseToComeBack) {
  Membership membership = Workers({"a"});
  membership.OnRestarting(StreamId{1});
  membership.OnStreamBroken(StreamId{1}, AtMs(100));

  membership.OnTick(AtMs(3050));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kSuspect);

  membership.OnTick(AtMs(3100));
  EXPECT_EQ(StateOf(membership, 1), MemberState::kLost);
  EXPECT_EQ(membership.Find(WorkerId{1})->why,
            "it was to execute itself anew and it did not come back for 3.0 s");
}

TEST(Membership, AnnouncementIsOverWhenTheNewProcessAttaches) {
  Membership membership = Workers({"a"});
  membership.OnRestarting(StreamId{1});
  membership.OnAttach(Of("a", 2), StreamId{2}, AtMs(1000)).IgnoreError();
  membership.OnStreamBroken(StreamId{2}, AtMs(2000));

  membership.OnTick(AtMs(2500));

  EXPECT_EQ(StateOf(membership, 1), MemberState::kLost);
}

TEST(Registration, RanksCapabilitiesAndKnowsWhatAPrecisionGains) {
  int rank = 0;
  for (const char* each : {"default", "avx2", "avx512", "avx512_bf16"}) {
    EXPECT_EQ(CapabilityRank(each), rank++);
  }
  EXPECT_EQ(CapabilityRank("avx"), -1);
  EXPECT_EQ(HighestUseful("fp32"), "avx512");
  EXPECT_EQ(HighestUseful("bf16"), "avx512_bf16");
}

TEST(Membership, BrokenStreamAndABrokenLinkLoseAtOnceInEitherOrder) {
  Membership link_first = Workers({"w1", "w2", "w3"});
  EXPECT_TRUE(
      link_first
          .OnLinks(WorkerId{1}, {{WorkerId{2}, "its link broke"}}, AtMs(100))
          .empty());
  EXPECT_EQ(StateOf(link_first, 2), MemberState::kLive);
  const auto broken = link_first.OnStreamBroken(StreamId{2}, AtMs(101));

  Membership stream_first = Workers({"w1", "w2", "w3"});
  EXPECT_FALSE(stream_first.OnStreamBroken(StreamId{2}, AtMs(100)).has_value());
  const auto linked = stream_first.OnLinks(
      WorkerId{1}, {{WorkerId{2}, "its link broke"}}, AtMs(101));

  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->id, WorkerId{2});
  EXPECT_EQ(StateOf(link_first, 2), MemberState::kLost);
  ASSERT_EQ(linked.size(), 1u);
  EXPECT_EQ(StateOf(stream_first, 2), MemberState::kLost);
  EXPECT_EQ(stream_first.Find(WorkerId{2})->why,
            "its stream broke, and worker w1 says that its link broke");
}

TEST(Membership, LinkThatWorksAgainIsNoWitness) {
  Membership membership = Workers({"w1", "w2", "w3"});
  membership.OnLinks(WorkerId{1}, {{WorkerId{2}, "its link broke"}}, AtMs(100));
  membership.OnLinks(WorkerId{1}, {}, AtMs(200));

  membership.OnStreamBroken(StreamId{2}, AtMs(300));

  EXPECT_EQ(StateOf(membership, 2), MemberState::kSuspect);
}

TEST(Membership, WitnessThatIsGoneItselfIsNone) {
  Membership membership = Workers({"w1", "w2", "w3"});
  membership.OnLinks(WorkerId{1}, {{WorkerId{2}, "its link broke"}}, AtMs(100));

  membership.OnStreamBroken(StreamId{1}, AtMs(101));
  membership.OnStreamBroken(StreamId{2}, AtMs(102));

  EXPECT_EQ(StateOf(membership, 1), MemberState::kSuspect);
  EXPECT_EQ(StateOf(membership, 2), MemberState::kSuspect);
}

TEST(Membership, WordsAboutAnEarlierProcessDoNotConcernItsSuccessor) {
  Membership membership = Workers({"w1", "w2", "w3"});
  membership.OnLinks(WorkerId{1}, {{WorkerId{2}, "its link broke"}}, AtMs(100));
  membership.OnAttach(Of("w2", 22), StreamId{9}, AtMs(101)).IgnoreError();

  membership.OnStreamBroken(StreamId{9}, AtMs(102));

  EXPECT_EQ(StateOf(membership, 2), MemberState::kSuspect);
}

TEST(Membership, ProcessThatAnnouncedToRestartKeepsTheLeaseAgainstWitnesses) {
  Membership membership = Workers({"w1", "w2", "w3"});
  membership.OnRestarting(StreamId{2});
  membership.OnStreamBroken(StreamId{2}, AtMs(100));

  membership.OnLinks(WorkerId{1}, {{WorkerId{2}, "refused"}}, AtMs(101));

  EXPECT_EQ(StateOf(membership, 2), MemberState::kSuspect);
}

}  // namespace
}  // namespace paceline
