// The worker's end of the control stream.  It stays attached to the
// coordinator, and attaches again after every break.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/os/thread.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/control/agent.h"

namespace paceline {

struct AttachOptions {
  std::string coordinator;  // host:port, for messages
  v1::Registration registration;
  // Called when the coordinator refuses this worker for good: another
  // incarnation took its name, or the coordinator rejects its certificate or
  // registration.  Called once, from the attach thread; must not block.
  std::function<void(absl::Status)> on_refused;
  // Called when the process must execute itself anew: it was taken out of its
  // job, or a later job needs this CPU capability.  Called from the attach
  // thread; must not block.
  std::function<void(const std::string& capability)> renew;
};

// Thread-safe.  Threads: "attach" opens the stream, reads it, and opens it
// again with backoff (0.1 to 2 s); "heartbeat" writes.
class AttachClient {
 public:
  // `agent` outlives this.
  AttachClient(AttachOptions options, std::shared_ptr<grpc::Channel> channel,
               Agent& agent);
  ~AttachClient();  // closes the stream, joins

  bool attached() const;

  // Waits until the coordinator no longer needs a worker that is leaving, or
  // until there is no stream to it.  False: not within `longest`.
  bool AwaitRelease(absl::Duration longest) const;

  // Returns when the coordinator has acknowledged a heartbeat that announced a
  // restart or a stop, when there is no stream, or after `longest`.
  void AwaitEndKnown(absl::Duration longest) const;

 private:
  using Stream =
      grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>;
  // One attempt of the stream.  Shared by the two threads: the reader may end
  // it while the writer is inside a write.
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
  };

  void AttachLoop();
  void HeartbeatLoop();
  absl::Status RunSession();
  void OnMessage(const v1::CoordinatorMessage& message);
  // Errors: InvalidArgument  no coordinator of ours sends such an order
  absl::Status OnOrder(const v1::StandingOrder& order);
  void OnAck(int64_t sequence);
  void LogBroken(const absl::Status& status);
  void LogDeclined(const absl::Status& status);
  void LogUnread(const absl::Status& status);
  bool IsRefusal(const absl::Status& status) const;

  // Constant after construction.
  const AttachOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  Agent& agent_;

  CancelToken stop_;
  // Attach thread only.  They describe the time since the last welcome.
  bool tried_ = false;
  bool said_broken_ = false;
  bool said_declined_ = false;
  // Attach thread only.
  bool renews_ = false;        // asked to renew; it is never asked twice
  bool was_welcomed_ = false;  // in the newest session
  bool said_unread_ = false;   // since the last acknowledgement

  mutable SteadyMutex mutex_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration period_ ABSL_GUARDED_BY(mutex_) = absl::Milliseconds(250);
  int64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // of this stream
  std::map<int64_t, RecordMarks> marks_ ABSL_GUARDED_BY(mutex_);
  // The first heartbeat of this stream that announced an end; 0: none.
  int64_t announced_in_ ABSL_GUARDED_BY(mutex_) = 0;
  bool end_is_known_ ABSL_GUARDED_BY(mutex_) = false;

  Thread heartbeat_thread_;
  Thread attach_thread_;
};

}  // namespace paceline
