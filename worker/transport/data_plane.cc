#include "worker/transport/data_plane.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/rpc/convert.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/transport/grpc_prober.h"
#include "worker/transport/piece_server.h"
#include "worker/transport/plane.h"
#include "worker/transport/run_gate.h"
#include "worker/transport/run_state.h"

namespace paceline {
namespace {

// A report that waits for its verdict.  Thread-safe; the first answer counts.
// Shared by the reactor and the step gate, since either may end last.
class WaitingReport {
 public:
  WaitingReport(grpc::ServerUnaryReactor* reactor, v1::StepVerdict* response)
      : reactor_(reactor), response_(response) {}

  void Answer(const absl::StatusOr<StepVerdict>& verdict) {
    absl::MutexLock lock(&mutex_);
    if (reactor_ == nullptr) return;
    if (verdict.ok()) *response_ = ToProto(*verdict);
    std::exchange(reactor_, nullptr)->Finish(ToGrpc(verdict.status()));
  }

 private:
  absl::Mutex mutex_;
  // Null once answered: then it belongs to gRPC.
  grpc::ServerUnaryReactor* reactor_ ABSL_GUARDED_BY(mutex_);
  v1::StepVerdict* const response_;
};

class ReportReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit ReportReactor(v1::StepVerdict* response)
      : waiting_(std::make_shared<WaitingReport>(this, response)) {}

  const std::shared_ptr<WaitingReport>& waiting() const { return waiting_; }

 private:
  void OnCancel() override {
    waiting_->Answer(absl::CancelledError("the stage has left"));
  }
  void OnDone() override { delete this; }

  const std::shared_ptr<WaitingReport> waiting_;
};

}  // namespace

// The data plane between runs, and the open run.  Thread-safe.
class DataPlane::State final : public Plane {
 public:
  explicit State(const PlaneOptions& options)
      : Plane(options, "data-plane", InboundStream::kSmallBytes),
        pieces_(std::make_shared<PieceServer>(shared_, [this] {
          const auto run = OpenState();
          return run != nullptr && run->IsSending();
        })) {
    pieces_->Start();
  }

  PieceServer& pieces() { return *pieces_; }

  // As DataPlane.
  absl::StatusOr<RunConnections> Open(const RunWiring& wiring);
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate);

  // Takes a received report.  Errors: as Stage.ReportStep.
  void Report(const v1::StepReport& report, SharedStepGate::Answer answer);

  // FrameSink.
  absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  void OnBurstEnd() override;

 private:
  // Both null when no run is open.
  struct Run {
    std::shared_ptr<RunState> state;
    std::shared_ptr<RunGate> gate;
  };

  // Plane.
  void EndRun(const absl::Status& why) override;
  void OnStreamGone(const std::shared_ptr<InboundStream>& stream) override;

  // Decides about a message of `fence`; returns the run that takes it.
  std::pair<FenceVerdict, Run> Decide(const Fence& fence);
  std::shared_ptr<RunState> OpenState();
  // Called when both connections of `run` are dropped.
  void Close(const Run& run);

  // Shared with its streams, which end before this object, when the server
  // stops.
  const std::shared_ptr<PieceServer> pieces_;

  Run run_ ABSL_GUARDED_BY(mutex_);
  // Streams of closed runs; gRPC and timers keep them while they are needed.
  std::vector<std::weak_ptr<StageOutbound>> lingering_ ABSL_GUARDED_BY(mutex_);
};

// --- Between runs ---------------------------------------------------------

absl::StatusOr<RunConnections> DataPlane::State::Open(const RunWiring& wiring) {
  PACELINE_RETURN_IF_ERROR(CheckWiring(wiring));
  Run run;
  run.gate = std::make_shared<RunGate>(wiring, shared_);
  run.state = std::make_shared<RunState>(
      wiring, shared_,
      [gate = run.gate](const absl::Status& why) { gate->Cancel(why); });
  run.state->Wire();

  {
    absl::MutexLock lock(&mutex_);
    PACELINE_RETURN_IF_ERROR(OpenFenceLocked(wiring.fence));
    run_ = run;
  }
  run.state->Connect();
  for (const auto& stream : streams()) stream->Resume();

  // Both connections share this, which closes the run when they are dropped.
  const std::shared_ptr<void> open(
      nullptr, [plane = std::static_pointer_cast<State>(shared_from_this()),
                run](void*) { plane->Close(run); });
  return RunConnections{std::shared_ptr<Link>(open, run.state.get()),
                        std::shared_ptr<GateClient>(open, run.gate.get())};
}

void DataPlane::State::Close(const Run& run) {
  std::vector<std::weak_ptr<StageOutbound>> lingering = run.state->Close();
  run.gate->Close();
  absl::MutexLock lock(&mutex_);
  std::erase_if(lingering_,
                [](const auto& stream) { return stream.expired(); });
  lingering_.insert(lingering_.end(), lingering.begin(), lingering.end());
  if (run_.state != run.state) return;  // Shutdown() came first
  CloseFenceLocked();
  run_ = {};
}

absl::Status DataPlane::State::OpenGate(const Fence& fence,
                                        const GateOptions& gate) {
  std::shared_ptr<RunGate> open;
  {
    absl::MutexLock lock(&mutex_);
    if (fence_.open == fence) open = run_.gate;
  }
  if (open == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no run is open for ", ToText(fence)));
  }
  return open->Open(gate);
}

void DataPlane::State::EndRun(const absl::Status& why) {
  pieces_->Shutdown();
  Run run;
  std::vector<std::weak_ptr<StageOutbound>> lingering;
  {
    absl::MutexLock lock(&mutex_);
    lingering.swap(lingering_);
    run = std::exchange(run_, {});
  }
  if (run.state != nullptr) {
    run.state->Cancel(why);
    run.gate->Cancel(why);
    run.gate->Close();
  }
  for (const auto& weak : lingering) {
    if (const auto stream = weak.lock()) stream->Close(why, /*linger=*/false);
  }
}

std::pair<FenceVerdict, DataPlane::State::Run> DataPlane::State::Decide(
    const Fence& fence) {
  absl::MutexLock lock(&mutex_);
  const FenceVerdict verdict = DecideFence(fence_, fence);
  return {verdict, verdict == FenceVerdict::kAccept ? run_ : Run{}};
}

absl::StatusOr<FrameSink::Reading> DataPlane::State::OnMessage(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<FrameLayout> layout = ParseFrame(message);
  if (!layout.ok()) {
    ++shared_->counters.frames_refused;
    return layout.status();
  }
  const auto [verdict, run] = Decide(layout->header.fence);
  switch (verdict) {
    case FenceVerdict::kHoldNewer:
      return Reading::kHold;
    case FenceVerdict::kDropOlder:
      ++shared_->counters.frames_dropped_old;
      return Reading::kGoOn;
    case FenceVerdict::kAccept:
      break;
  }
  absl::Status taken = run.state->OnFrame(stream, message, *std::move(layout));
  if (taken.ok()) return Reading::kGoOn;
  ++(absl::IsDataLoss(taken) ? shared_->counters.checksum_errors
                             : shared_->counters.frames_refused);
  return taken;
}

absl::StatusOr<int64_t> DataPlane::State::FrameBytes(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  const absl::StatusOr<FrameLayout> layout = ParseFirstPiece(message);
  if (!layout.ok()) {
    ++shared_->counters.frames_refused;
    return layout.status();
  }
  const Fence& fence = layout->header.fence;
  const auto [verdict, run] = Decide(fence);
  if (verdict != FenceVerdict::kAccept) {
    ++shared_->counters.frames_dropped_old;
    return absl::AbortedError(
        absl::StrCat(ToText(fence), " is not open on this worker"));
  }
  const absl::Status wanted =
      run.state->CheckIncoming(stream, layout->header).status();
  if (!wanted.ok()) {
    ++shared_->counters.frames_refused;
    return wanted;
  }
  return layout->frame_bytes();
}

std::shared_ptr<RunState> DataPlane::State::OpenState() {
  absl::MutexLock lock(&mutex_);
  return run_.state;
}

void DataPlane::State::OnBurstEnd() {
  if (const auto run = OpenState()) run->Flush();
}

void DataPlane::State::OnStreamGone(
    const std::shared_ptr<InboundStream>& stream) {
  if (const auto run = OpenState()) run->OnStreamDone(stream);
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
      return answer(absl::FailedPreconditionError(
          absl::StrCat("no order for ", ToText(fence), " has come yet")));
    case FenceVerdict::kDropOlder:
      return answer(absl::AbortedError(
          absl::StrCat(ToText(fence), " is over on this worker")));
    case FenceVerdict::kAccept:
      return run.gate->Report(*parsed, std::move(answer));
  }
}

// --- The front --------------------------------------------------------------

class DataPlane::Service final
    : public v1::Stage::WithRawCallbackMethod_Exchange<
          v1::Stage::WithRawCallbackMethod_Pieces<
              v1::Stage::WithCallbackMethod_ReportStep<
                  v1::Stage::WithCallbackMethod_Probe<v1::Stage::Service>>>> {
 public:
  // `state` outlives this.
  explicit Service(State& state) : state_(state) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return state_.Accept(context->peer());
  }

  grpc::ServerUnaryReactor* ReportStep(grpc::CallbackServerContext* context,
                                       const v1::StepReport* request,
                                       v1::StepVerdict* response) override {
    Listener::OnMessage(context->peer(),
                        static_cast<int64_t>(request->ByteSizeLong()));
    auto* reactor = new ReportReactor(response);
    const auto waiting = reactor->waiting();
    state_.Report(*request, [waiting](const absl::StatusOr<StepVerdict>& v) {
      waiting->Answer(v);
    });
    return reactor;
  }

  grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* Probe(
      grpc::CallbackServerContext* context) override {
    return AnswerProbe(*context, state_.strangers());
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pieces(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override {
    return state_.pieces().Accept(context->peer(), *request);
  }

 private:
  State& state_;
};

DataPlane::DataPlane(const PlaneOptions& options)
    : state_(std::make_shared<State>(options)),
      service_(std::make_unique<Service>(*state_)) {}

DataPlane::~DataPlane() { Shutdown(); }

grpc::Service* DataPlane::service() { return service_.get(); }

absl::StatusOr<RunConnections> DataPlane::Open(const RunWiring& wiring) {
  return state_->Open(wiring);
}

absl::Status DataPlane::OpenGate(const Fence& fence, const GateOptions& gate) {
  return state_->OpenGate(fence, gate);
}

PlaneStats DataPlane::stats() const { return state_->stats(); }

void DataPlane::Shutdown() { state_->Shutdown(); }

void DataPlane::BreakStreamsForTest() {
  state_->EndStreams(absl::UnavailableError("broken by a test"));
}

}  // namespace paceline
