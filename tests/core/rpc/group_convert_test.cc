#include "core/rpc/group_convert.h"

#include <limits>
#include <string>

#include "core/rpc/report_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

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

template <typename Proto>
std::string LostOnTheWay(const Proto& proto) {
  const auto there = FromProto(proto);
  if (!there.ok()) return there.status().ToString();
  return Difference(proto, ToProto(*there));
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

TEST(ConvertGroupOrder, MayHaveNoUploader) {
  v1::GroupOrder group = Group();
  group.clear_uploader();

  EXPECT_EQ(LostOnTheWay(group), "");
}

TEST(ConvertGroupOrder, RefusesWhatIsNoGroup) {
  const auto refused = [](auto change) {
    v1::GroupOrder group = Group();
    change(group);
    return FromProto(group).status().code();
  };

  EXPECT_EQ(refused([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(refused([](auto& g) { g.mutable_view()->set_term(-1); }), kBad);
  EXPECT_EQ(refused([](auto& g) { g.clear_members(); }), kBad);
  EXPECT_EQ(refused([](auto& g) { g.set_lease_ms(-1); }), kBad);
  EXPECT_EQ(refused([](auto& g) { g.clear_leveller(); }), kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_members()->SwapElements(0, 1); }),
            kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_members(0)->set_share(0); }), kBad);
  EXPECT_EQ(refused([](auto& g) {
              g.mutable_members(0)->set_share(
                  std::numeric_limits<double>::quiet_NaN());
            }),
            kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_members(0)->set_from_step(-1); }),
            kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_workers()->SwapElements(0, 1); }),
            kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_workers()->RemoveLast(); }),
            absl::StatusCode::kOk);
  EXPECT_EQ(refused([](auto& g) {
              g.mutable_workers()->DeleteSubrange(1, 2);  // a member's
            }),
            kBad);
  EXPECT_EQ(refused([](auto& g) { g.mutable_uploader()->set_incarnation(0); }),
            kBad);
  EXPECT_EQ(refused([](auto& g) {
              while (g.workers_size() < 5000) g.add_workers();
            }),
            kBad);
}

TEST(ConvertMemberReport, KeepsEveryFieldThatTheProtoKnows) {
  v1::MemberState proto;
  Filler().Fill(proto);

  EXPECT_EQ(LostOnTheWay(proto), "");
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
  const auto refused = [](auto change) {
    v1::MemberState proto;
    Filler().Fill(proto);
    change(proto);
    return FromProto(proto).status().code();
  };

  EXPECT_EQ(refused([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(refused([](auto& p) { p.set_next(-1); }), kBad);
  // Who counts on from there would run over.
  EXPECT_EQ(
      refused([](auto& p) { p.set_next(std::numeric_limits<int64_t>::max()); }),
      kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_state_step(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_turn(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.mutable_view()->set_counter(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.mutable_peers(0)->clear_peer(); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.mutable_peers(0)->set_broken_ms(-1); }),
            kBad);
  EXPECT_EQ(refused([](auto& p) { p.mutable_peers(1)->set_owing_ms(-1); }),
            kBad);
  EXPECT_EQ(refused([](auto& p) { p.mutable_mismatch()->set_step(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) {
              *p.mutable_mismatch()->add_entries() = p.mismatch().entries(0);
            }),
            kBad);
  EXPECT_EQ(refused([](auto& p) {
              while (p.peers_size() < 5000) p.add_peers();
            }),
            kBad);
}

v1::RoundRecord FilledRecord() {
  v1::RoundRecord proto;
  Filler().Fill(proto);
  for (v1::RoundRecord::Skip& skip : *proto.mutable_skipped()) {
    skip.set_reason("not-finite");
  }
  return proto;
}

TEST(ConvertRoundRecord, KeepsEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(FilledRecord()), "");
}

TEST(ConvertRoundRecord, WithoutALostServerNamesNobody) {
  v1::RoundRecord proto = FilledRecord();
  proto.clear_lost_server();

  const absl::StatusOr<RoundRecord> record = FromProto(proto);

  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_FALSE(record->lost_server.assigned());
  EXPECT_EQ(ToProto(*record).lost_server(), 0);
}

TEST(ConvertRoundRecord, RefusesWhatNoMemberWouldSay) {
  const auto refused = [](auto change) {
    v1::RoundRecord proto = FilledRecord();
    change(proto);
    return FromProto(proto).status();
  };

  EXPECT_EQ(refused([](auto& p) { p.set_step(-1); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) {
              p.set_step(std::numeric_limits<int64_t>::max());
            }).code(),
            kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_contributors(-1); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) {
              p.set_seconds(std::numeric_limits<double>::infinity());
            }).code(),
            kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_takeover_seconds(-1); }).code(), kBad);
  EXPECT_THAT(std::string(refused([](auto& p) {
                            p.mutable_skipped(0)->set_reason("\x1b[31mlate");
                          }).message()),
              HasSubstr("need a word in lower case"));
  EXPECT_EQ(
      refused([](auto& p) { p.mutable_skipped(0)->clear_reason(); }).code(),
      kBad);
}

}  // namespace
}  // namespace paceline
