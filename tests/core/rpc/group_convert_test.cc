#include "core/rpc/convert/group_convert.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "core/rpc/convert/report_convert.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

v1::GroupMember Process(int64_t worker, uint64_t incarnation) {
  v1::GroupMember member;
  member.set_worker_id(worker);
  member.set_incarnation(incarnation);
  return member;
}

// Two members; a third process listens.
v1::GroupOrder Group() {
  v1::GroupOrder group;
  group.mutable_view()->set_term(2);
  group.mutable_view()->set_counter(7);
  for (const int64_t worker : {1, 2}) {
    v1::ViewMember& member = *group.add_members();
    *member.mutable_member() = Process(worker, 10 * worker);
    member.set_from_step(worker);
    member.set_share(0.5 * worker);
  }
  *group.mutable_leveller() = Process(2, 20);
  for (const int64_t worker : {1, 2, 3}) {
    v1::GroupWorker& into = *group.add_workers();
    *into.mutable_member() = Process(worker, 10 * worker);
    into.set_name("w" + std::to_string(worker));
    into.set_address("host:" + std::to_string(worker));
  }
  *group.mutable_uploader() = Process(1, 10);
  group.set_lease_ms(1500);
  return group;
}

TEST(ConvertGroupOrder, KeepsEveryFieldThatTheProtoKnows) {
  v1::RunOrder order;
  *order.mutable_group() = Group();

  const absl::StatusOr<RunOrder> there = FromProto(order);

  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(Difference(order.group(), ToProto(*there).group()), "");
  EXPECT_EQ(there->group->view.id, (ViewId{2, 7}));
  EXPECT_EQ(there->group->workers.size(), 3u);
  EXPECT_EQ(there->group->lease, absl::Milliseconds(1500));
}

TEST(ConvertGroupOrder, MayHaveNoUploaderAndNoListener) {
  v1::GroupOrder group = Group();
  group.clear_uploader();
  group.mutable_workers()->RemoveLast();

  EXPECT_EQ(LostOnTheWay(group), "");
}

TEST(ConvertGroupOrder, RefusesWhatIsNoGroup) {
  using Spoil = void (*)(v1::GroupOrder&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& g) { g.mutable_view()->set_term(-1); },
           [](auto& g) { g.clear_members(); },
           [](auto& g) { g.set_lease_ms(-1); },
           [](auto& g) { g.clear_leveller(); },
           [](auto& g) { g.mutable_members()->SwapElements(0, 1); },
           [](auto& g) { g.mutable_members(0)->set_share(0); },
           [](auto& g) { g.mutable_members(0)->set_share(NAN); },
           [](auto& g) { g.mutable_members(0)->set_from_step(-1); },
           [](auto& g) { g.mutable_workers()->SwapElements(0, 1); },
           // One of them is a member's.
           [](auto& g) { g.mutable_workers()->DeleteSubrange(1, 2); },
           [](auto& g) { g.mutable_uploader()->set_incarnation(0); },
           [](auto& g) {
             while (g.workers_size() < 5000) g.add_workers();
           }}) {
    v1::GroupOrder group = Group();
    ASSERT_TRUE(FromProto(group).ok());

    spoil(group);

    EXPECT_EQ(FromProto(group).status().code(), kBad) << group.DebugString();
  }
}

TEST(ConvertMemberReport, KeepsEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(Filled<v1::MemberState>()), "");
}

TEST(ConvertMemberReport, OfAQuietMemberHasNoMismatch) {
  v1::MemberState proto;
  proto.mutable_view()->set_counter(0);

  EXPECT_EQ(LostOnTheWay(proto), "");
}

// Zero means that nothing is broken.
TEST(ConvertMemberReport, NeverRoundsABrokenLinkToAWorkingOne) {
  MemberReport report;
  report.peers.push_back(
      {{WorkerId{1}, {5}}, absl::Microseconds(3), false, absl::ZeroDuration()});

  const v1::MemberState proto = ToProto(report);

  EXPECT_EQ(proto.peers(0).broken_ms(), 1);
  EXPECT_EQ(proto.peers(0).owing_ms(), 0);
}

TEST(ConvertMemberReport, RefusesWhatNoMemberWouldSay) {
  using Spoil = void (*)(v1::MemberState&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& p) { p.set_next(-1); },
           // A sum from there on would overflow.
           [](auto& p) { p.set_next(std::numeric_limits<int64_t>::max()); },
           [](auto& p) { p.set_state_step(-1); },
           [](auto& p) { p.set_turn(-1); }, [](auto& p) { p.set_idle_ms(-1); },
           [](auto& p) { p.set_slowest_ms(-1); },
           [](auto& p) { p.mutable_view()->set_counter(-1); },
           [](auto& p) { p.mutable_peers(0)->clear_peer(); },
           [](auto& p) { p.mutable_peers(0)->set_broken_ms(-1); },
           [](auto& p) { p.mutable_peers(1)->set_owing_ms(-1); },
           [](auto& p) { p.mutable_mismatch()->set_step(-1); },
           [](auto& p) {
             *p.mutable_mismatch()->add_entries() = p.mismatch().entries(0);
           },
           [](auto& p) {
             while (p.peers_size() < 5000) p.add_peers();
           }}) {
    auto proto = Filled<v1::MemberState>();

    spoil(proto);

    EXPECT_EQ(FromProto(proto).status().code(), kBad) << proto.DebugString();
  }
}

v1::RoundRecord FilledRecord() {
  auto proto = Filled<v1::RoundRecord>();
  for (v1::RoundRecord::Skip& skip : *proto.mutable_skipped()) {
    skip.set_reason("not-finite");
  }
  proto.set_cosine(-0.5);
  return proto;
}

TEST(CheckRoundRecord, RefusesWhatNoMemberWouldSay) {
  using Spoil = void (*)(v1::RoundRecord&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& p) { p.set_step(-1); },
           [](auto& p) { p.set_step(std::numeric_limits<int64_t>::max()); },
           [](auto& p) { p.set_contributors(-1); },
           [](auto& p) { p.set_seconds(INFINITY); },
           [](auto& p) { p.set_takeover_seconds(-1); },
           [](auto& p) { p.mutable_view()->set_term(-1); },
           [](auto& p) { p.set_cosine(1.5); },
           [](auto& p) { p.set_cosine(NAN); },
           [](auto& p) { p.set_server(-1); },
           [](auto& p) { p.set_lost_server(-1); },
           [](auto& p) { p.mutable_skipped(0)->set_worker_id(-1); },
           [](auto& p) {
             while (p.skipped_size() < 5000)
               p.add_skipped()->set_reason("late");
           },
           [](auto& p) { p.mutable_skipped(0)->set_reason("\x1b[31mlate"); },
           [](auto& p) { p.mutable_skipped(0)->clear_reason(); }}) {
    v1::RoundRecord proto = FilledRecord();
    ASSERT_TRUE(CheckRoundRecord(proto).ok());

    spoil(proto);

    EXPECT_EQ(CheckRoundRecord(proto).code(), kBad) << proto.DebugString();
  }
}

}  // namespace
}  // namespace paceline
