// The sending end of Round.Exchange: everything for one member.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "core/transfer/round_frame.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"
#include "worker/rpc/near_memory.h"
#include "worker/rpc/outbound_call.h"
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

// Thread-safe.  Keeps one call open, and opens it again with backoff until
// Close().  One write at a time: what is under way delays a message by no more
// than a chunk.  Chunks are written by the plane's thread or gRPC's, never by
// the one that sends them; to a peer on this machine they are lent.
class RoundOutbound final : public CallOwner,
                            public std::enable_shared_from_this<RoundOutbound> {
 public:
  RoundOutbound(RoundOutboundOptions options,
                std::shared_ptr<PlaneShared> shared);
  ~RoundOutbound() override;

  void Start();

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
  void AddPayload(const PayloadKey& key,
                  const std::shared_ptr<RoundPayload>& payload);
  void OnReady(const PayloadKey& key, RoundQueue::Ticket ticket, int chunk);
  int MostChunksLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::ByteBuffer BufferOf(const RoundQueue::Item& item, bool lent) const;
  grpc::ByteBuffer HelloOf(std::optional<RoundMemory> memory) const;
  void Connect();
  void Pump();
  void PostPumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // CallOwner.
  void OnRead(grpc::ByteBuffer& receipt) override;
  void OnWritten(bool ok) override;
  void OnReadEnded() override;
  void OnCallDone(const grpc::Status& status) override;
  void OnFirstReceipt();  // of a call
  void Retry();
  // The write that was under way then (0: none) still is, or the loan is still
  // out: gives their memory back.
  void GiveUp(int64_t call, int64_t write, int64_t loan);

  // Constant after construction.
  const RoundOutboundOptions options_;
  const std::shared_ptr<PlaneShared> shared_;
  const RoundFrameHeader header_;  // the same in every frame

  absl::Mutex mutex_;
  RoundQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  // A new one for every try after the peer was not there: gRPC would wait
  // longer than we do before it asks again.
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  OutboundCall* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool pump_posted_ ABSL_GUARDED_BY(mutex_) = false;
  bool hello_due_ ABSL_GUARDED_BY(mutex_) = false;
  WriteTurn turn_ ABSL_GUARDED_BY(mutex_);
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;   // begun
  int64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;  // begun
  Lender lender_ ABSL_GUARDED_BY(mutex_);
  // Whose chunk is under way, while one is written.
  std::optional<PayloadKey> written_key_ ABSL_GUARDED_BY(mutex_);
  bool gave_up_ ABSL_GUARDED_BY(mutex_) = false;  // this call, nobody is told

  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_);
  bool received_ ABSL_GUARDED_BY(mutex_) = false;  // a receipt, by this call
  bool was_up_ ABSL_GUARDED_BY(mutex_) = false;    // by any call
  // As last told; nothing yet.
  std::optional<bool> told_up_ ABSL_GUARDED_BY(mutex_);
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  // The last call ended so: backoff grows although the peer can be reached.
  bool bad_data_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline
