// What the data plane is between runs: the fence, the streams that came in,
// and the run that is open.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/transfer/frame.h"
#include "paceline/v1/stage.pb.h"
#include "worker/rpc/data_plane.h"
#include "worker/rpc/inbound_stream.h"
#include "worker/rpc/plane_shared.h"
#include "worker/rpc/run_gate.h"
#include "worker/rpc/run_state.h"

namespace paceline {

// Thread-safe.  Shared as plane_shared.h.
class PlaneState final : public FrameSink,
                         public std::enable_shared_from_this<PlaneState> {
 public:
  explicit PlaneState(const DataPlaneOptions& options);

  // As DataPlane.
  absl::StatusOr<RunConnections> Open(const RunWiring& wiring);
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate);
  DataPlaneStats stats() const;
  void Shutdown();

  // A new stream, to be returned to gRPC.
  // peer: as gRPC calls the other side.
  InboundStream* Accept(const std::string& peer);
  // Where streams that are no exchange of frames take their places.
  StrangerLimit& strangers() { return shared_->strangers; }
  // A report that came in.  Errors: as Stage.ReportStep.
  void Report(const v1::StepReport& report, GateDesk::Answer answer);
  void EndStreams(const absl::Status& why);

  absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  void OnBurstEnd() override;
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) override;

 private:
  // Both null when no run is open.
  struct Run {
    std::shared_ptr<RunState> state;
    std::shared_ptr<RunGate> gate;
  };
  class OpenRun;
  class RpcLink;
  class RpcGateClient;

  // What to do with a message of `fence`, and the run if it is to be taken.
  std::pair<FenceVerdict, Run> Decide(const Fence& fence);
  // Both ends of `run` are dropped.
  void Close(const Run& run);

  const std::shared_ptr<PlaneShared> shared_;

  absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  FenceState fence_ ABSL_GUARDED_BY(mutex_);
  Run run_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<InboundStream>> streams_ ABSL_GUARDED_BY(mutex_);
  // Of runs that were closed; kept by gRPC and by timers while there is need.
  std::vector<std::weak_ptr<OutboundStream>> lingering_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
