// Member 0 of a round group over gRPC, and senders of whatever bytes, for
// tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/rpc/convert/round_convert.h"
#include "core/transfer/checksum.h"
#include "core/transfer/frame_codec.h"
#include "gtest/gtest.h"
#include "paceline/v1/round.grpc.pb.h"
#include "tests/cluster/round_net.h"

namespace paceline {

inline FrameHeader HeaderOf(int from, int to) {
  FrameHeader header;
  header.fence = kRoundFence;
  header.from = TestMember(from);
  header.to = TestMember(to);
  return header;
}

inline FrameHeader WithPayload(FrameHeader header, const PayloadKey& key,
                               int64_t bytes) {
  header.payload = key;
  header.payload_bytes = bytes;
  return header;
}

inline std::string MessageBytes(const FrameHeader& header,
                                const RoundMessage& message) {
  return EncodeRoundMessage(header, ToProto(message).SerializeAsString());
}

inline std::string ChunkBytes(FrameHeader header, const RoundPayload& payload,
                              int chunk) {
  const absl::Span<const uint8_t> data = payload.chunk(chunk);
  Checksum checksum;
  checksum.Update(data);
  header.chunk = chunk;
  return EncodeRoundChunkPrefix(header, static_cast<int64_t>(data.size()),
                                checksum.Digest()) +
         std::string(reinterpret_cast<const char*>(data.data()), data.size());
}

// A sender that writes whatever bytes it is told to.
class RawSender : public RawStream<v1::RoundReceipt> {
 public:
  explicit RawSender(const std::string& address)
      : RawStream(address, "/paceline.v1.Round/Exchange") {}

  bool AwaitReceipt(v1::RoundReceipt* receipt) { return Read(receipt); }
  bool AwaitReceipt() {
    v1::RoundReceipt receipt;
    return Read(&receipt);
  }
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

  // A stream that begins so ends with this.
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

  std::string Chunk(int chunk) const {
    return ChunkBytes(part_header_, *part_, chunk);
  }
  // The message that offers the part.
  std::string Offer() const {
    return MessageBytes(part_header_, OfferFrom(1, PartKey(4), *part_));
  }

  RoundRecorder sink_;
  RoundNode node_;
  std::shared_ptr<RoundTransport> transport_;
  // Member 1's header, and its part of step 4.
  const FrameHeader header_ = HeaderOf(1, 0);
  const std::shared_ptr<RoundPayload> part_ = ReadyPayload(kTwoChunks, 1);
  const FrameHeader part_header_ = WithPayload(header_, PartKey(4), kTwoChunks);
  RawSender sender_{node_.address()};
};

}  // namespace paceline
