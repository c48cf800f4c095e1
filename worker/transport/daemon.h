// The worker as a whole: its servers, its agent, its control stream.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/obs/http_server.h"
#include "core/obs/metrics.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/enrol.h"
#include "worker/control/agent.h"
#include "worker/control/metrics.h"
#include "worker/options.h"
#include "worker/rounds/faults.h"
#include "worker/transport/attach_client.h"
#include "worker/transport/grpc_prober.h"
#include "worker/transport/grpc_run_factory.h"
#include "worker/transport/piece/piece_client.h"
#include "worker/transport/round/round_plane.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {

struct DaemonOptions {
  WorkerOptions worker;
  std::string cpu_capability;     // the level this process was started for
  std::string active_capability;  // reported by the engine; empty: unknown
  // The addresses that this process had before an exec; empty: there was none.
  // They are tried first, so that neighbours keep our address.
  std::string earlier_grpc;
  std::string earlier_http;
  // `restart`: the process must execute itself anew at this capability.
  // `refused`: the coordinator refuses this worker for good.  Both are called
  // from other threads and must not block.
  std::function<void(const std::string& capability)> restart;
  std::function<void(absl::Status why)> refused;
  // Called once, by Start().
  std::function<std::unique_ptr<RunFactory>(const GrpcConnections&)>
      make_factory;
};

// Thread-compatible: used by main() alone.  Stops in the reverse order of its
// start.
class Daemon {
 public:
  explicit Daemon(DaemonOptions options);
  ~Daemon();  // Stop()

  // Errors: Unavailable (a port is in use), InvalidArgument, PermissionDenied;
  // the message names the flag.
  absl::Status Start();
  // Tells the coordinator how the process is about to end.  For a restart or a
  // stop it also waits for the acknowledgement, at most a second.  After
  // Start(), before Stop().
  void Announce(WorkerEnd end);
  // As AttachClient::AwaitRelease(), after Announce(kLeaving).
  bool AwaitRelease(absl::Duration longest) const {
    return attach_->AwaitRelease(longest);
  }
  void Stop();

  // Returns a line for systemctl status; nothing when the compute thread hangs,
  // which is concluded from the time of its instruction.  Does not return while
  // a thread keeps a lock forever.  After Start(), before Stop().
  std::optional<std::string> Status() const;

  // host:port, as bound.
  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& http_address() const { return http_address_; }

 private:
  absl::Status StartGrpc();
  absl::Status StartHttp();
  // This worker's part of the machine's memory; 0: not known.
  int64_t MemoryShare() const;
  v1::Registration Registration() const;
  HttpAnswer Metrics();
  void Renew();
  bool attached() const;

  // Constant after construction.
  const DaemonOptions options_;
  const SystemClock clock_;
  const Incarnation incarnation_;  // of this process

  MetricsRegistry registry_;
  absl::Mutex metrics_mutex_;  // one scrape at a time
  WorkerMetrics metrics_ ABSL_GUARDED_BY(metrics_mutex_);
  ProcessMetrics process_ ABSL_GUARDED_BY(metrics_mutex_);

  std::string advertised_;  // the address by which others reach this worker
  std::string grpc_address_;
  std::string http_address_;
  PieceStore pieces_;
  DataPlane data_plane_;
  RoundPlane round_plane_;
  ProcessFaults fault_actions_;
  BoundServer server_;
  std::unique_ptr<RunFactory> factory_;
  std::unique_ptr<GrpcProber> prober_;
  std::unique_ptr<PieceClient> exchange_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<AttachClient> attach_;
  // attach_, for HTTP's threads, which start before it.
  std::atomic<const AttachClient*> ready_{nullptr};
  HttpServer http_;
  RenewalPace pace_;                 // of the renewal
  std::unique_ptr<Ticker> renewal_;  // null without TLS
};

}  // namespace paceline
