// A worker's data plane over gRPC, and senders of whatever bytes, for tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/impl/codegen/sync_stream.h"
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
class RawStream {
 public:
  explicit RawStream(const std::string& address)
      : channel_(MakeChannel(address)) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(20));
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer,
                                                  v1::StageCredit>::
            Create(channel_.get(),
                   grpc::internal::RpcMethod(
                       "/paceline.v1.Stage/Exchange",
                       grpc::internal::RpcMethod::BIDI_STREAMING, channel_),
                   &context_));
  }

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  bool Write(Frame frame) { return Write(Flatten(EncodeFrame(frame))); }

  v1::StageCredit ReadCredit() {
    v1::StageCredit credit;
    EXPECT_TRUE(stream_->Read(&credit)) << "no credit came";
    return credit;
  }

  // What the receiver ends the stream with.
  absl::Status End() {
    stream_->WritesDone();
    return AwaitEnd();
  }
  // The same of a receiver that does so by itself.
  absl::Status AwaitEnd() {
    v1::StageCredit credit;
    while (stream_->Read(&credit)) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, v1::StageCredit>>
      stream_;
};

// A worker of two stages' second, whose first is whoever the test makes up.
class ReceiverTest : public ::testing::Test {
 protected:
  explicit ReceiverTest(absl::Duration hold = absl::Seconds(30),
                        absl::Duration hello = absl::Seconds(10))
      : node_(PlaneOptions{
            .hold = hold, .linger = absl::Seconds(1), .hello = hello}) {}

  RunConnections Open(const Fence& fence) {
    MeshSpec spec;
    spec.fence = fence;
    auto run = node_.plane.Open(
        WiringOf(spec, /*self=*/1, {"127.0.0.1:1", node_.address()}));
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }

  PlaneNode node_;
  const Fence fence_{JobId{5}, 2, 3};
};

}  // namespace paceline
