#include "worker/transport/round/round_plane.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "paceline/v1/round.grpc.pb.h"
#include "worker/transport/round/round_run.h"

namespace paceline {

// The round plane between groups, and the open group.  Thread-safe.
class RoundPlane::State final : public Plane {
 public:
  // gRPC's threads take all frames, small ones too: they are few, and must not
  // wait behind another stream's.
  explicit State(const PlaneOptions& options)
      : Plane(options,
              {"round-plane", /*small_bytes=*/0, /*ends_older=*/true}) {}

  // As RoundPlane.
  absl::StatusOr<std::unique_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);

 private:
  class Transport;

  // Plane.
  // Errors: NotFound  for another process, whatever run is open
  absl::StatusOr<FrameLayout> Parse(
      absl::Span<const ByteSpan> message) override {
    PACELINE_ASSIGN_OR_RETURN(FrameLayout layout, ParseRoundFrame(message));
    const Incarnation own = shared_->options.incarnation;
    if (own.value != 0) {
      const MemberId& to = layout.header.to;
      PACELINE_RETURN_IF_ERROR(CheckIsMeant(to, {to.worker, own}));
    }
    return layout;
  }
  absl::StatusOr<int64_t> FrameBytesOf(
      const std::shared_ptr<InboundStream>& /*stream*/,
      absl::Span<const ByteSpan> /*message*/) override {
    return kMaxChunkBytes;  // a frame of a round is one message
  }
  void EndRun(std::shared_ptr<PlaneRun> run,
              const absl::Status& /*why*/) override {
    if (run != nullptr) static_cast<RoundRun&>(*run).Close();
  }

  void Close(RoundRun& run) {
    CloseRun(run);
    run.Close();
  }
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
  void Close() override { plane_->Close(*run_); }

 private:
  const std::shared_ptr<State> plane_;
  const std::shared_ptr<RoundRun> run_;
};

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlane::State::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  const auto run = std::make_shared<RoundRun>(fence, self, *sink, shared_);
  PACELINE_RETURN_IF_ERROR(OpenRun(fence, run));
  // On the plane's thread, so that the sink is not called before this returns.
  for (const auto& stream : streams()) {
    shared_->timers.Run([stream] { stream->Resume(); });
  }
  return std::make_unique<Transport>(
      std::static_pointer_cast<State>(shared_from_this()), run);
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
    : RoundPlane(std::make_shared<State>(options)) {}

RoundPlane::RoundPlane(std::shared_ptr<State> state)
    : PlaneOwner(state, std::make_unique<Service>(*state)) {}

RoundPlane::State& RoundPlane::state() { return static_cast<State&>(*plane_); }

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlane::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  return state().Open(fence, self, sink);
}

}  // namespace paceline
