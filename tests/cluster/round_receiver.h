// Member 0 of a round group over gRPC, and senders of whatever bytes, for
// tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/rpc/round_convert.h"
#include "core/rpc/status.h"
#include "core/transfer/checksum.h"
#include "core/transfer/round_frame.h"
#include "grpcpp/impl/codegen/sync_stream.h"
#include "gtest/gtest.h"
#include "paceline/v1/round.grpc.pb.h"
#include "tests/cluster/round_net.h"

namespace paceline {

inline constexpr size_t kTwoChunks = kRoundChunkBytes + 100;

inline RoundFrameHeader HeaderOf(int from, int to) {
  const auto process = [](const MemberId& id) {
    return RoundProcess{id.worker.value, id.incarnation.value};
  };
  RoundFrameHeader header;
  header.job = kRoundFence.job.value;
  header.attempt = kRoundFence.attempt;
  header.plan_version = kRoundFence.plan_version;
  header.from = process(TestMember(from));
  header.to = process(TestMember(to));
  return header;
}

inline RoundFrameHeader WithPayload(RoundFrameHeader header,
                                    const PayloadKey& key, int64_t bytes) {
  header.payload = {static_cast<uint8_t>(key.kind), key.step, key.shard,
                    key.variant, bytes};
  return header;
}

inline std::string MessageBytes(const RoundFrameHeader& header,
                                const RoundMessage& message) {
  const std::string body = ToProto(message).SerializeAsString();
  return EncodeRoundMessagePrefix(header, static_cast<int64_t>(body.size())) +
         body;
}

inline std::string PieceBytes(RoundFrameHeader header,
                              const RoundPayload& payload, int chunk) {
  const absl::Span<const uint8_t> data = payload.chunk(chunk);
  Checksum checksum;
  checksum.Update(data);
  header.chunk = chunk;
  header.checksum = checksum.Digest();
  return EncodeRoundPiecePrefix(header, static_cast<int64_t>(data.size())) +
         std::string(reinterpret_cast<const char*>(data.data()), data.size());
}

// A sender that writes whatever bytes it is told to.
class RawSender {
 public:
  explicit RawSender(const std::string& address)
      : channel_(MakeChannel(address)) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(20));
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer,
                                                  v1::RoundReceipt>::
            Create(channel_.get(),
                   grpc::internal::RpcMethod(
                       "/paceline.v1.Round/Exchange",
                       grpc::internal::RpcMethod::BIDI_STREAMING, channel_),
                   &context_));
  }

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  bool AwaitReceipt(v1::RoundReceipt* receipt) {
    return stream_->Read(receipt);
  }
  bool AwaitReceipt() {
    v1::RoundReceipt receipt;
    return AwaitReceipt(&receipt);
  }
  // What the receiver ends the stream with.
  absl::Status End() {
    stream_->WritesDone();
    return AwaitEnd();
  }
  absl::Status AwaitEnd() {
    while (AwaitReceipt()) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, v1::RoundReceipt>>
      stream_;
};

// Member 0, whose peers are whoever the test makes up.  Nobody listens at
// their address.
class RoundReceiver : public ::testing::Test {
 protected:
  explicit RoundReceiver(const PlaneOptions& options = {})
      : node_(0, options) {}

  void Open(const Fence& fence = kRoundFence) {
    transport_ = node_.Open(&sink_, fence);
    transport_->SetPeers(Peers());
  }
  std::vector<GroupWorker> Peers() const {
    return {node_.worker(),
            {TestMember(1), "w1", "127.0.0.1:1"},
            {TestMember(2), "w2", "127.0.0.1:1"}};
  }

  // What a stream that begins so ends with.
  absl::Status EndOf(const std::vector<std::string>& frames) {
    RawSender sender(node_.address());
    for (const std::string& frame : frames) {
      if (!sender.Write(frame)) break;
    }
    return sender.End();
  }
  absl::Status EndOf(const std::string& frame) {
    return EndOf(std::vector<std::string>{frame});
  }

  RoundRecorder sink_;
  RoundNode node_;
  std::unique_ptr<RoundTransport> transport_;
  const RoundFrameHeader header_ = HeaderOf(1, 0);
};

}  // namespace paceline
