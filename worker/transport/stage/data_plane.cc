#include "worker/transport/stage/data_plane.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/transport/grpc_prober.h"
#include "worker/transport/piece/piece_server.h"
#include "worker/transport/stage/run_gate.h"
#include "worker/transport/stage/run_state.h"

namespace paceline {
namespace {

// The call of a report that waits for its verdict.  Thread-safe; the first
// answer counts.  Shared by gRPC, until OnDone(), and the step gate.
class ReportReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit ReportReactor(v1::StepVerdict* response) : response_(response) {}

  void Answer(const absl::StatusOr<StepVerdict>& verdict) {
    absl::MutexLock lock(&mutex_);
    // Once answered, the response belongs to gRPC.
    if (std::exchange(answered_, true)) return;
    if (verdict.ok()) *response_ = ToProto(*verdict);
    Finish(ToGrpc(verdict.status()));
  }
  // gRPC begins to use this object.
  void Keep(std::shared_ptr<ReportReactor> self) { self_ = std::move(self); }

 private:
  void OnCancel() override { Answer(Cancelled("the stage has left")); }
  void OnDone() override { self_ = nullptr; }

  std::shared_ptr<ReportReactor> self_;
  v1::StepVerdict* const response_;

  absl::Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
};

using StageService = v1::Stage::WithRawCallbackMethod_Exchange<
    v1::Stage::WithRawCallbackMethod_Pieces<
        v1::Stage::WithCallbackMethod_ReportStep<
            v1::Stage::WithCallbackMethod_Probe<v1::Stage::Service>>>>;

}  // namespace

// The data plane between runs, and the open run.  Thread-safe.
class DataPlane::State final : public Plane, public StageService {
 public:
  explicit State(const PlaneOptions& options)
      : Plane(options, {"data-plane", InboundStream::kSmallBytes,
                        /*ends_older=*/false}),
        pieces_(std::make_shared<PieceServer>(shared_, [this] {
          const auto run = open_run();
          return run != nullptr && AsState(*run).IsSending();
        })) {
    pieces_->Start();
  }

  // As DataPlane.
  absl::StatusOr<RunConnections> Open(const RunWiring& wiring);
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate);

  // StageService.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return Accept(context->peer());
  }
  grpc::ServerUnaryReactor* ReportStep(grpc::CallbackServerContext* context,
                                       const v1::StepReport* request,
                                       v1::StepVerdict* response) override {
    Listener::OnMessage(context->peer(),
                        static_cast<int64_t>(request->ByteSizeLong()));
    const auto reactor = std::make_shared<ReportReactor>(response);
    reactor->Keep(reactor);
    Report(*request, [reactor](const absl::StatusOr<StepVerdict>& verdict) {
      reactor->Answer(verdict);
    });
    return reactor.get();
  }
  grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* Probe(
      grpc::CallbackServerContext* context) override {
    return AnswerProbe(*context, strangers());
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pieces(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override {
    return pieces_->Accept(context->peer(), *request);
  }
  grpc::Service& service() override { return *this; }

 private:
  // Takes a received report.  Errors: as Stage.ReportStep.
  void Report(const v1::StepReport& report, SharedStepGate::Answer answer);

  // Plane.
  absl::StatusOr<FrameLayout> Parse(
      absl::Span<const ByteSpan> message) override {
    return ParseFrame(message);
  }
  absl::StatusOr<int64_t> FrameBytesOf(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  void EndRun(std::shared_ptr<PlaneRun> run, const absl::Status& why) override;

  static RunState& AsState(PlaneRun& run) {
    return static_cast<RunState&>(run);
  }
  // Called when both connections of `run` are dropped.
  void Close(RunState& run);

  // Shared with its streams, which end before this object, when the server
  // stops.
  const std::shared_ptr<PieceServer> pieces_;

  absl::Mutex mutex_;
  // Streams of closed runs; gRPC and timers keep them while they are needed.
  std::vector<std::weak_ptr<StageOutbound>> lingering_ ABSL_GUARDED_BY(mutex_);
};

// --- Between runs ---------------------------------------------------------

absl::StatusOr<RunConnections> DataPlane::State::Open(const RunWiring& wiring) {
  const auto run = std::make_shared<RunState>(wiring, shared_);
  run->Wire();
  PACELINE_RETURN_IF_ERROR(OpenRun(wiring.fence, run));
  run->Connect();
  for (const auto& stream : streams()) stream->Resume();

  // Both connections share this, which closes the run when they are dropped.
  const std::shared_ptr<void> open(
      nullptr, [plane = std::static_pointer_cast<State>(shared_from_this()),
                run](void*) { plane->Close(*run); });
  return RunConnections{std::shared_ptr<Link>(open, run.get()),
                        std::shared_ptr<GateClient>(open, &run->gate())};
}

void DataPlane::State::Close(RunState& run) {
  std::vector<std::weak_ptr<StageOutbound>> lingering = run.Close();
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(lingering_,
                  [](const auto& stream) { return stream.expired(); });
    lingering_.insert(lingering_.end(), lingering.begin(), lingering.end());
  }
  CloseRun(run);
}

absl::Status DataPlane::State::OpenGate(const Fence& fence,
                                        const GateOptions& gate) {
  const auto [verdict, run] = Decide(fence);
  if (run == nullptr) {
    return FailedPrecondition("no run is open for ", ToText(fence));
  }
  return AsState(*run).gate().Open(gate);
}

void DataPlane::State::EndRun(std::shared_ptr<PlaneRun> run,
                              const absl::Status& why) {
  pieces_->Shutdown();
  std::vector<std::weak_ptr<StageOutbound>> lingering;
  {
    absl::MutexLock lock(&mutex_);
    lingering.swap(lingering_);
  }
  if (run != nullptr) {
    AsState(*run).Cancel(why);
    AsState(*run).gate().Cancel(why);
    AsState(*run).gate().Close();
  }
  for (const auto& weak : lingering) {
    if (const auto stream = weak.lock()) stream->Close(why, /*linger=*/false);
  }
}

absl::StatusOr<int64_t> DataPlane::State::FrameBytesOf(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  PACELINE_ASSIGN_OR_RETURN(const FrameLayout layout, ParseFirstChunk(message));
  const auto [verdict, run] = Decide(layout.header.fence);
  if (run == nullptr) {
    return Aborted(ToText(layout.header.fence), " is not open on this worker");
  }
  PACELINE_RETURN_IF_ERROR(
      AsState(*run).CheckIncoming(stream, layout.header).status());
  return layout.payload.end();
}

void DataPlane::State::Report(const v1::StepReport& report,
                              SharedStepGate::Answer answer) {
  const absl::StatusOr<StepReport> parsed = FromProto(report);
  if (!parsed.ok()) return answer(parsed.status());

  const Fence fence{JobId{report.job()}, report.attempt(),
                    report.plan_version()};
  const auto [verdict, run] = Decide(fence);
  switch (verdict) {
    case FenceVerdict::kHoldNewer:
      return answer(
          FailedPrecondition("no order for ", ToText(fence), " has come yet"));
    case FenceVerdict::kDropOlder:
      return answer(Aborted(ToText(fence), " is over on this worker"));
    case FenceVerdict::kAccept:
      return AsState(*run).gate().Report(*parsed, std::move(answer));
  }
}

// --- The front --------------------------------------------------------------

DataPlane::DataPlane(const PlaneOptions& options)
    : PlaneOwner(std::make_shared<State>(options)) {}

DataPlane::State& DataPlane::state() { return static_cast<State&>(*plane_); }

absl::StatusOr<RunConnections> DataPlane::Open(const RunWiring& wiring) {
  return state().Open(wiring);
}

absl::Status DataPlane::OpenGate(const Fence& fence, const GateOptions& gate) {
  return state().OpenGate(fence, gate);
}

}  // namespace paceline
