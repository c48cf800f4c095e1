#include "core/rpc/convert/member_convert.h"

#include <limits>

#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr auto kRefused = absl::StatusCode::kInvalidArgument;

TEST(CheckCount, SaysWhatIsWrongAndWhatItMayBe) {
  EXPECT_TRUE(CheckCount("the step", 0).ok());
  EXPECT_TRUE(CheckCount("the step", kMaxCount).ok());
  EXPECT_TRUE(CheckCount("the shard", 3, 3).ok());
  EXPECT_EQ(CheckCount("the step", -1).code(), kRefused);
  EXPECT_EQ(CheckCount("the step", kMaxCount + 1).code(), kRefused);
  EXPECT_EQ(CheckCount("the shard", 4, 3).message(),
            "the shard is 4, need 0 to 3");
}

TEST(CheckCount, LeavesRoomToAdd) {
  EXPECT_LT(kMaxCount, std::numeric_limits<int64_t>::max() / 2);
}

TEST(CheckSize, SaysHowManyThereMayBe) {
  EXPECT_TRUE(CheckSize("shards", 3, 3).ok());
  EXPECT_EQ(CheckSize("shards", 4, 3).message(), "shards: got 4, need 0 to 3");
}

TEST(ConvertMember, BringsAProcessThereAndBack) {
  const MemberId member = {WorkerId{7}, Incarnation{~uint64_t{0}}};

  EXPECT_EQ(FromProto(ToProto(member)).value(), member);
}

TEST(ConvertMember, IsAProcessOfAWorker) {
  v1::GroupMember proto = ToProto(MemberId{WorkerId{7}, Incarnation{5}});
  proto.set_worker_id(0);
  EXPECT_EQ(FromProto(proto).status().code(), kRefused);

  proto = ToProto(MemberId{WorkerId{7}, Incarnation{5}});
  proto.set_incarnation(0);
  EXPECT_EQ(FromProto(proto).status().code(), kRefused);
}

TEST(ConvertViewId, BringsItThereAndBackAndNeverBelowNothing) {
  const ViewId view = {2, 17};
  EXPECT_EQ(FromProto(ToProto(view)).value(), view);

  v1::ViewNumber proto = ToProto(view);
  proto.set_counter(-1);
  EXPECT_EQ(FromProto(proto).status().message(),
            "the view's counter is -1, need 0 to 9007199254740992");
}

}  // namespace
}  // namespace paceline
