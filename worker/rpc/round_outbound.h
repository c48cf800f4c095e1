// RoundOutbound sends everything that goes to one member of a round group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "core/transfer/round_frame.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"
#include "worker/rpc/near_memory.h"
#include "worker/rpc/outbound_stream.h"
#include "worker/rpc/plane_shared.h"
#include "worker/rpc/round_queue.h"

namespace paceline {

struct RoundOutboundOptions {
  Fence fence;
  MemberId self;
  GroupWorker peer;
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
  // What gRPC is writing just then, and what is lent, is given a little time,
  // since its memory may be wanted; a peer that does not read loses its call,
  // and gets another one.
  void Forget(int64_t step);

  // Drops what waits.  on_link may still be running, but is not called anew.
  void Close();

  const GroupWorker& peer() const { return options_.peer; }

 private:
  // What on_link was told last.
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

  void AddPayload(const PayloadKey& key,
                  const std::shared_ptr<RoundPayload>& payload);
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
