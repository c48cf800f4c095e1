// A worker's data plane over gRPC, and senders of whatever bytes, for tests.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "core/transfer/frame_codec.h"
#include "gtest/gtest.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/cluster/data_plane_mesh.h"

namespace paceline {

inline std::string Flatten(const EncodedFrame& frame) {
  std::string bytes = frame.prefix;
  for (const Tensor& tensor : frame.tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.get()),
                 tensor.bytes());
  }
  return bytes;
}

inline Frame HelloFrame(const Fence& fence, int32_t boundary) {
  Frame frame;
  frame.header.fence = fence;
  frame.header.kind = FrameKind::kHello;
  frame.header.boundary = boundary;
  return frame;
}

inline std::string DataBytes(const Fence& fence, int64_t sequence,
                             const FrameKey& key) {
  Frame frame = MakeFrame(key);
  frame.header.fence = fence;
  frame.header.sequence = sequence;
  return Flatten(EncodeFrame(std::move(frame)));
}

// A sender that writes whatever bytes it is told to.
class StageSender : public RawStream<v1::StageCredit> {
 public:
  explicit StageSender(const std::string& address)
      : RawStream(address, "/paceline.v1.Stage/Exchange") {}
  // One that has said hello.
  StageSender(const std::string& address, const Fence& fence)
      : StageSender(address) {
    Write(HelloFrame(fence, 0));
  }

  using RawStream::Write;
  bool Write(Frame frame) { return Write(Flatten(EncodeFrame(frame))); }

  v1::StageCredit ReadCredit() {
    v1::StageCredit credit;
    EXPECT_TRUE(Read(&credit)) << "no credit came";
    return credit;
  }
};

inline const Fence kReceiverFence{JobId{5}, 2, 3};

// A worker of two stages' second, whose first is whoever the test makes up.
class ReceiverTest : public ::testing::Test {
 protected:
  explicit ReceiverTest(absl::Duration hold = absl::Seconds(30),
                        absl::Duration hello = absl::Seconds(10))
      : node_(PlaneOptions{
            .hold = hold, .linger = absl::Seconds(1), .hello = hello}) {}

  RunConnections Open(const Fence& fence, const Shape& sample_shape = {4}) {
    return node_.plane
        .Open(WiringOf({.sample_shape = sample_shape, .fence = fence},
                       /*self=*/1, {"127.0.0.1:1", node_.address()}))
        .value();
  }

  PlaneNode node_;
  const Fence fence_ = kReceiverFence;
};

}  // namespace paceline
