// RoundOutbound sends all frames to one member of a round group; RoundQueue
// decides their order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/transport/stream/outbound_stream.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// The queue of frames to one member of a round group.  First come messages
// without bytes, in their order, then messages whose bytes have all been sent,
// then ready chunks.  Payloads take turns, and the last chunk of a payload goes
// with its message.  Frames that a connection has taken count as received until
// the connection breaks.
// Thread-compatible.
class RoundQueue {
 public:
  // A message (with the key of its bytes, if any), a chunk, or the last unsent
  // chunk of a payload with its message.
  struct Item {
    std::string message;  // empty: none
    std::optional<PayloadKey> key;
    std::shared_ptr<RoundPayload> payload;  // of `key`
    int chunk = -1;                         // -1: a message alone
  };

  // Names a payload to subscribe to: OnReady() must get this number with each
  // chunk that becomes ready.  0: the payload is here already.
  using Ticket = uint64_t;

  // A payload replaces an earlier one with the same key.  `payload` then holds
  // the earlier one, which the caller must free without a lock.
  Ticket AddPayload(const PayloadKey& key,
                    std::shared_ptr<RoundPayload>* payload);
  void OnReady(const PayloadKey& key, Ticket ticket, int chunk);

  // A message equal to a waiting one is not kept twice, because members repeat
  // their messages while they wait for an answer.  Above kMostMessages the
  // oldest is dropped.
  void AddMessage(std::string message);
  // The message goes out after the bytes of `key`; never, if they are not here.
  void AddMessage(std::string message, const PayloadKey& key);

  std::optional<Item> TakeNext();

  // The connection broke.  Bytes whose message is still to come go out again.
  // Bytes whose message was taken wait until it is sent again.
  void OnBroken() {
    for (auto& [key, sending] : payloads_) sending.taken = 0;
  }

  // Drops the parts and results of steps before `step`.  The caller must free
  // them without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step);

  static constexpr size_t kMostMessages = 256;

 private:
  struct Sending {
    std::shared_ptr<RoundPayload> payload;
    Ticket ticket = 0;
    std::vector<int> ready;            // in the order of becoming ready
    size_t taken = 0;                  // number of `ready` that were taken
    std::deque<std::string> messages;  // to be sent after the bytes
    bool wanted = true;                // false: its message has been taken

    bool sent() const {
      return taken == static_cast<size_t>(payload->chunks());
    }
  };

  static void Add(std::deque<std::string>* messages, std::string message);
  static void TakeMessage(Sending& sending, Item& item);

  std::deque<std::string> messages_;
  std::map<PayloadKey, Sending> payloads_;
  PayloadKey last_;  // of the last chunk taken
  Ticket next_ticket_ = 1;
};

struct RoundOutboundOptions {
  Fence fence;
  MemberId self;
  GroupWorker peer;
  // of payload; it adds to this
  std::shared_ptr<std::atomic<int64_t>> sent_bytes;
  // As RoundSink::OnLink, on gRPC's threads, one call after the other.
  std::function<void(bool up, bool refused)> on_link;
};

// Thread-safe.  A running write delays a message by at most a chunk.  The
// plane's thread or gRPC's write chunks, never the calling thread.
class RoundOutbound final : public OutboundStream {
 public:
  RoundOutbound(RoundOutboundOptions options,
                std::shared_ptr<PlaneShared> shared);

  // As RoundTransport; `message` is a paceline.v1.RoundMessage.
  void SendAhead(const PayloadKey& key, std::shared_ptr<RoundPayload> payload) {
    AddPayload(key, payload, /*message=*/{});
  }
  void Send(std::string message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload);
  // Also takes back memory that gRPC is writing: it waits a little, then ends
  // the call to a peer that does not read, and opens another.
  void Forget(int64_t step);

  // Drops waiting frames.  on_link may still be running, but gets no new calls.
  void Close();

  const GroupWorker& peer() const { return options_.peer; }

 private:
  // The last news that on_link got.
  enum class Told : uint8_t { kNothing, kUp, kDown, kRefused };

  // OutboundStream.
  void OnConnectLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Next> TakeNextLocked() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnMessage(grpc::ByteBuffer& receipt) override;
  void OnWrittenLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    written_key_.reset();
  }
  Ended OnEndedLocked(const absl::Status& status, bool answered) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // message: empty: it comes later.
  void AddPayload(const PayloadKey& key,
                  const std::shared_ptr<RoundPayload>& payload,
                  std::string message);
  void OnReady(const PayloadKey& key, RoundQueue::Ticket ticket, int chunk);
  grpc::ByteBuffer BufferOf(const RoundQueue::Item& item) const;
  // Ends the call, which frees its memory, if that write is still running.
  void GiveUp(int64_t write);

  // Constant after construction.
  const RoundOutboundOptions options_;
  const FrameHeader header_;  // the same in every frame

  RoundQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool hello_due_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // number of writes begun
  // The key of the chunk in the running write.
  std::optional<PayloadKey> written_key_ ABSL_GUARDED_BY(mutex_);
  // this call; on_link is not told
  bool gave_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_up_ ABSL_GUARDED_BY(mutex_) = false;  // in any call
  Told told_ ABSL_GUARDED_BY(mutex_) = Told::kNothing;
  // The last call ended with bad data: backoff grows although the peer is in
  // reach.
  bool bad_data_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline
