#include "worker/transport/round_plane.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/transfer/round_frame.h"
#include "paceline/v1/round.grpc.pb.h"
#include "worker/transport/plane.h"
#include "worker/transport/round_run.h"

namespace paceline {

// The round plane between groups, and the open group.  Thread-safe.
class RoundPlane::State final : public Plane {
 public:
  // gRPC's threads take all frames, small ones too: they are few, and must not
  // wait behind another stream's.
  explicit State(const PlaneOptions& options)
      : Plane(options, "round-plane", /*small_bytes=*/0) {}

  // As RoundPlane.
  absl::StatusOr<std::unique_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);

  // FrameSink.
  absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& /*stream*/,
      absl::Span<const ByteSpan> /*message*/) override {
    return kMaxPieceBytes;  // a message of a round is never divided into chunks
  }
  absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  void OnBurstEnd() override {}

 private:
  class Transport;

  // Plane.
  void EndRun(const absl::Status& why) override;
  void OnStreamGone(const std::shared_ptr<InboundStream>& stream) override;

  absl::StatusOr<Reading> Take(const std::shared_ptr<InboundStream>& stream,
                               absl::Span<const ByteSpan> message);
  // Returns the run of the frame; null: the stream must hold it.
  // Errors: NotFound  for another process; Aborted  of an older attempt or plan
  absl::StatusOr<std::shared_ptr<RoundRun>> Decide(
      const RoundFrameHeader& header);
  void Close(const std::shared_ptr<RoundRun>& run);

  std::shared_ptr<RoundRun> run_ ABSL_GUARDED_BY(mutex_);
};

// --- Between groups ---------------------------------------------------------

class RoundPlane::State::Transport final : public RoundTransport {
 public:
  Transport(std::shared_ptr<State> plane, std::shared_ptr<RoundRun> run)
      : plane_(std::move(plane)), run_(std::move(run)) {}
  ~Transport() override { Close(); }

  void SetPeers(const std::vector<GroupWorker>& peers) override {
    run_->SetPeers(peers);
  }
  void SendAhead(const MemberId& to, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload) override {
    run_->SendAhead(to, key, std::move(payload));
  }
  void Send(const MemberId& to, RoundMessage message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload) override {
    run_->Send(to, message, key, std::move(payload));
  }
  void Forget(int64_t step) override { run_->Forget(step); }
  std::map<WorkerId, int64_t> SentBytes() const override {
    return run_->SentBytes();
  }
  void Close() override { plane_->Close(run_); }

 private:
  const std::shared_ptr<State> plane_;
  const std::shared_ptr<RoundRun> run_;
};

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlane::State::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  const auto run = std::make_shared<RoundRun>(fence, self, *sink, shared_);
  {
    absl::MutexLock lock(&mutex_);
    PACELINE_RETURN_IF_ERROR(OpenFenceLocked(fence));
    run_ = run;
  }
  // On the plane's thread, so that the sink is not called before this returns.
  for (const auto& stream : streams()) {
    shared_->timers.Run([stream] { stream->Resume(); });
  }
  return std::make_unique<Transport>(
      std::static_pointer_cast<State>(shared_from_this()), run);
}

void RoundPlane::State::Close(const std::shared_ptr<RoundRun>& run) {
  {
    absl::MutexLock lock(&mutex_);
    if (run_ == run) {
      CloseFenceLocked();
      run_ = nullptr;
    }
  }
  run->Close();
}

void RoundPlane::State::EndRun(const absl::Status& /*why*/) {
  std::shared_ptr<RoundRun> run;
  {
    absl::MutexLock lock(&mutex_);
    run = run_;
  }
  if (run != nullptr) Close(run);
}

absl::StatusOr<FrameSink::Reading> RoundPlane::State::OnMessage(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<Reading> taken = Take(stream, message);
  if (absl::IsInvalidArgument(taken.status())) {
    ++shared_->counters.frames_refused;
  } else if (absl::IsAborted(taken.status())) {
    ++shared_->counters.frames_dropped_old;
  }
  return taken;
}

absl::StatusOr<FrameSink::Reading> RoundPlane::State::Take(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  PACELINE_ASSIGN_OR_RETURN(const RoundFrameLayout layout,
                            ParseRoundFrame(message));
  PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundRun> run,
                            Decide(layout.header));
  if (run == nullptr) return Reading::kHold;
  return run->OnFrame(stream, message, layout);
}

absl::StatusOr<std::shared_ptr<RoundRun>> RoundPlane::State::Decide(
    const RoundFrameHeader& header) {
  const Incarnation wanted{header.to.incarnation};
  const auto another = [&](Incarnation mine) {
    return absl::NotFoundError(
        absl::StrCat("this process is not the one of worker ", header.to.worker,
                     " that is meant: incarnation ", wanted.value, ", here is ",
                     mine.value));
  };
  const Incarnation own = shared_->options.incarnation;
  if (own.value != 0 && wanted != own) return another(own);
  const Fence theirs{JobId{header.job}, header.attempt, header.plan_version};
  absl::MutexLock lock(&mutex_);
  switch (DecideFence(fence_, theirs)) {
    case FenceVerdict::kHoldNewer:
      return nullptr;
    case FenceVerdict::kDropOlder:
      return absl::AbortedError(
          absl::StrCat(ToText(theirs), " is over on this worker"));
    case FenceVerdict::kAccept:
      break;
  }
  if (MemberId{WorkerId{header.to.worker}, wanted} == run_->self()) return run_;
  return another(run_->self().incarnation);
}

void RoundPlane::State::OnStreamGone(
    const std::shared_ptr<InboundStream>& stream) {
  std::shared_ptr<RoundRun> run;
  {
    absl::MutexLock lock(&mutex_);
    run = run_;
  }
  if (run != nullptr) run->OnStreamDone(stream);
}

// --- The front --------------------------------------------------------------

class RoundPlane::Service final
    : public v1::Round::WithRawCallbackMethod_Exchange<v1::Round::Service> {
 public:
  // `state` outlives this.
  explicit Service(State& state) : state_(state) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return state_.Accept(context->peer());
  }

 private:
  State& state_;
};

RoundPlane::RoundPlane(const PlaneOptions& options)
    : state_(std::make_shared<State>(options)),
      service_(std::make_unique<Service>(*state_)) {}

RoundPlane::~RoundPlane() { Shutdown(); }

grpc::Service* RoundPlane::service() { return service_.get(); }

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlane::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  return state_->Open(fence, self, sink);
}

PlaneStats RoundPlane::stats() const { return state_->stats(); }

void RoundPlane::Shutdown() { state_->Shutdown(); }

void RoundPlane::BreakStreamsForTest() {
  state_->EndStreams(absl::UnavailableError("broken by a test"));
}

}  // namespace paceline
