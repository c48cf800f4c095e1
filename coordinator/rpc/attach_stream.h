// The coordinator's end of one Attach stream, as gRPC runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/call_deadline.h"
#include "core/rpc/stream_limit.h"
#include "core/rpc/tls.h"
#include "grpcpp/support/server_callback.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Thread-safe.  Reads the next message only when the coordinator has taken the
// last one, and has one write under way.  Messages wait in one slot a kind
// (welcome, newest order, newest acknowledgement), so that a slow worker costs
// bounded memory.
class AttachStream final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
      public WorkerStream {
 public:
  // The peer's certificate; shared with gRPC's connection.
  using Caller = std::shared_ptr<const grpc::AuthContext>;

  // `peer`: grpc::CallbackServerContext::peer().  All references outlive it.
  // A worker that shows the certificate of another name is refused.
  // A stream takes a place among `strangers` until its registration comes, and
  // ends if it does not come within `registration`.
  static AttachStream* Start(Coordinator& coordinator,
                             CoordinatorMetrics& metrics, std::string peer,
                             Caller caller, StreamLimit& strangers,
                             absl::Duration registration);

  void SendOrder(const StandingOrder& order) override;
  void SendAck(int64_t sequence) override;
  void End(const absl::Status& status) override;
  bool ended() const override;
  std::string peer() const override { return peer_; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  AttachStream(Coordinator& coordinator, CoordinatorMetrics& metrics,
               std::string peer, Caller caller);

  // Exists until the registration comes.
  struct Stranger {
    std::unique_ptr<StreamLimit::Place> place;
    CallDeadline deadline;
  };

  void Register(const v1::WorkerMessage& message);
  void TakeHeartbeat(const v1::WorkerMessage& message);
  void OnWelcome(const absl::StatusOr<v1::Welcome>& welcome);
  std::shared_ptr<AttachStream> Self();
  void ReadNext();
  // Starts the next write, or finishes the stream if it has ended.
  void Pump();
  bool TakeNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const std::string peer_;
  const Caller caller_;
  const StreamId id_;

  // Touched by the one read under way, and between two reads by its handler.
  v1::WorkerMessage incoming_;
  std::unique_ptr<Stranger> stranger_;
  bool registered_ = false;

  // Touched by the one write under way.
  v1::CoordinatorMessage outgoing_;

  mutable absl::Mutex mutex_;
  // Shared with the coordinator's list of streams; dropped in OnDone(), which
  // is gRPC's last call.
  std::shared_ptr<AttachStream> self_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Welcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::StandingOrder> order_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> ack_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // the first wins
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // no more gRPC calls
};

}  // namespace paceline
