// What a data plane takes from a stranger, and large frames in pieces.
#include <string>
#include <utility>

#include "core/base/thread.h"
#include "core/transfer/frame_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/data_plane_receiver.h"
#include "worker/rpc/inbound_stream.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Four of them make a frame of three pieces.
const Shape kLargeSample = {600'000};

class ShortHelloTest : public ReceiverTest {
 protected:
  ShortHelloTest() : ReceiverTest(absl::Seconds(30), absl::Milliseconds(5)) {}
};

// Such a stream lived for ever.
TEST_F(ShortHelloTest, EndsAStreamThatNeverSaysHello) {
  const RunConnections run = Open(fence_);
  RawStream silent(node_.address());
  RawStream older(node_.address());
  older.Write(HelloFrame({JobId{1}, 1, 1}, 0));

  const absl::Status end = silent.AwaitEnd();

  EXPECT_TRUE(absl::IsDeadlineExceeded(end)) << end;
  EXPECT_TRUE(absl::IsDeadlineExceeded(older.AwaitEnd()));
}

TEST_F(ReceiverTest, ReadsNoLargeMessageBeforeAHello) {
  const RunConnections run = Open(fence_);
  RawStream stream(node_.address());
  stream.Write(std::string(InboundStream::kMostOfAStranger + 1, 'x'));

  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("before a hello"));
}

// The run's order says how large its frames are.
TEST_F(ReceiverTest, RefusesATooLargeFrameByItsFirstPiece) {
  const RunConnections run = Open(fence_);
  Frame frame = MakeFrame(ActivationKey(0, 0), 4, kLargeSample);
  frame.header.fence = fence_;
  const std::string bytes = Flatten(EncodeFrame(std::move(frame)));
  RawStream stream(node_.address());
  stream.Write(HelloFrame(fence_, 0));
  stream.ReadCredit();

  stream.Write(bytes.substr(0, kMaxPieceBytes));
  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
}

TEST_F(ReceiverTest, RefusesAPieceThatIsTooLong) {
  MeshSpec spec;
  spec.fence = fence_;
  spec.sample_shape = kLargeSample;
  auto run = node_.plane.Open(
      WiringOf(spec, /*self=*/1, {"127.0.0.1:1", node_.address()}));
  ASSERT_TRUE(run.ok()) << run.status();
  Frame frame = MakeFrame(ActivationKey(0, 0), 4, kLargeSample);
  frame.header.fence = fence_;
  const std::string bytes = Flatten(EncodeFrame(std::move(frame)));
  RawStream stream(node_.address());
  stream.Write(HelloFrame(fence_, 0));
  stream.ReadCredit();

  int64_t at = 0;
  for (; at + kMaxPieceBytes < std::ssize(bytes); at += kMaxPieceBytes) {
    stream.Write(bytes.substr(at, kMaxPieceBytes));
  }
  stream.Write(bytes.substr(at) + "x");
  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("are missing"));
}

// Frames go out in pieces of bounded size.
TEST(DataPlane, SendsLargeFramesOnceAlthoughStreamsBreak) {
  constexpr int kFrames = 12;
  MeshSpec spec;
  spec.sample_shape = kLargeSample;
  RpcLinkMesh mesh(spec);
  Thread sender("sender", [&] {
    for (int i = 0; i < kFrames; ++i) {
      ASSERT_TRUE(mesh.link(0).AwaitRoom(0, 0, 1).ok());
      ASSERT_TRUE(mesh.link(0)
                      .Send(MakeFrame(ActivationKey(i, 0), 4, kLargeSample))
                      .ok());
    }
  });

  for (int i = 0; i < kFrames; ++i) {
    if (i % 4 == 1) mesh.node(1).plane.BreakStreamsForTest();
    const absl::StatusOr<Frame> got = mesh.link(1).Receive(ActivationKey(i, 0));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(Difference(*got, MakeFrame(ActivationKey(i, 0), 4, kLargeSample)),
              "");
  }
  EXPECT_EQ(mesh.node(1).plane.stats().frames_received, kFrames);
}

}  // namespace
}  // namespace paceline
