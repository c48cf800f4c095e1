// RoundOutbound sends everything that goes to one member of a round group;
// RoundQueue decides what goes next.
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
#include "core/transfer/round_frame.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"
#include "worker/transport/near_memory.h"
#include "worker/transport/outbound_stream.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// Holds what is to be sent to one member of a round group.
// Messages without bytes go first, in their order; then messages whose bytes
// have all gone out; then chunks that are ready, payloads taking turns, the
// last one of a payload with its message.  What a
// connection has taken is as good as received until the connection breaks.
// Thread-compatible.
class RoundQueue {
 public:
  // A message (with the key of its bytes, if it has some), a chunk, or the last
  // chunk of a payload to go out and the message that it belongs to.
  struct Item {
    std::string message;  // empty: none
    std::optional<PayloadKey> key;
    std::shared_ptr<RoundPayload> payload;  // of `key`
    int chunk = -1;                         // the first; -1: a message
    int chunks = 0;                         // in a row
  };

  // Names a payload that is to be subscribed to: each chunk that gets ready is
  // told to OnReady() with this number.  0: it is here already.
  using Ticket = uint64_t;

  // Another payload under the same key takes the place of the one before, which
  // `payload` is afterwards: let go of it without a lock.
  Ticket AddPayload(const PayloadKey& key,
                    std::shared_ptr<RoundPayload>* payload);
  void OnReady(const PayloadKey& key, Ticket ticket, int chunk);

  // A message whose very bytes wait already is not kept twice: whoever waits
  // for an answer repeats itself.  Above kMostMessages the oldest is dropped.
  void AddMessage(std::string message);
  // To go out once the bytes of `key` have; never, where these are not here.
  void AddMessage(std::string message, const PayloadKey& key);

  // most_chunks: so many in a row may be next.
  std::optional<Item> TakeNext(int most_chunks = 1);

  // The connection broke: bytes whose message is still to come go out again.
  // Those whose message was taken wait for it to be sent again.
  void OnBroken();

  // Drops the parts and results of steps before `step`, and copies of the state
  // that have gone out.  Let go of them without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step);

  // Drops copies of the state that are older than that of `key`, sent or not: a
  // member that asks for a newer copy needs none of them.
  std::vector<std::shared_ptr<RoundPayload>> DropOlderStates(
      const PayloadKey& key);

  static constexpr size_t kMostMessages = 256;

 private:
  struct Sending {
    std::shared_ptr<RoundPayload> payload;
    Ticket ticket = 0;
    std::vector<int> ready;            // in the order in which they got ready
    size_t taken = 0;                  // of ready
    std::deque<std::string> messages;  // behind the bytes
    bool wanted = true;                // or its message has been taken

    bool sent() const {
      return taken == static_cast<size_t>(payload->chunks());
    }
  };

  static void Add(std::deque<std::string>* messages, std::string message);
  static void TakeMessage(Sending& sending, Item& item);

  std::deque<std::string> messages_;
  std::map<PayloadKey, Sending> payloads_;
  PayloadKey last_;  // whose chunk was taken last
  Ticket next_ticket_ = 1;
};

struct RoundOutboundOptions {
  Fence fence;
  MemberId self;
  GroupWorker peer;
  std::shared_ptr<std::atomic<int64_t>> sent_bytes;  // of payload, added to
  // As RoundSink::OnLink, on gRPC's threads, one call after the other.
  std::function<void(bool up, bool refused)> on_link;
};

// Thread-safe.  A write that is under way delays a message by no more than a
// chunk.  The plane's thread or gRPC's write chunks, never the one that sends
// them; to a peer on this machine chunks are lent.
class RoundOutbound final : public OutboundStream {
 public:
  RoundOutbound(RoundOutboundOptions options,
                std::shared_ptr<PlaneShared> shared);

  // As RoundTransport; `message` is a paceline.v1.RoundMessage.
  void SendAhead(const PayloadKey& key, std::shared_ptr<RoundPayload> payload);
  void Send(std::string message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload);
  // Memory that gRPC is writing just then, or that is lent, gets a little time,
  // since its memory may be wanted; a peer that does not read loses its call,
  // and gets another one.
  void Forget(int64_t step);

  // Drops what waits.  on_link may still be running, but is not called anew.
  void Close();

  const GroupWorker& peer() const { return options_.peer; }

 private:
  // on_link was told this last.
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
  grpc::ByteBuffer BufferOf(const RoundQueue::Item& item, bool lent) const;
  grpc::ByteBuffer HelloOf(std::optional<RoundMemory> memory) const;
  // The write that was under way then (0: none) still is, or the loan is still
  // out: gives their memory back.
  void GiveUp(int64_t call, int64_t write, int64_t loan);

  // Constant after construction.
  const RoundOutboundOptions options_;
  const RoundFrameHeader header_;  // the same in every frame

  RoundQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool hello_due_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // begun
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // writes
  Lender lender_ ABSL_GUARDED_BY(mutex_);
  // Whose chunk is under way, while one is written.
  std::optional<PayloadKey> written_key_ ABSL_GUARDED_BY(mutex_);
  bool gave_up_ ABSL_GUARDED_BY(mutex_) = false;  // this call, nobody is told
  bool was_up_ ABSL_GUARDED_BY(mutex_) = false;   // any call
  Told told_ ABSL_GUARDED_BY(mutex_) = Told::kNothing;
  // The last call ended so: backoff grows although the peer can be reached.
  bool bad_data_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline
