#include "worker/rpc/round_plane.h"

#include <utility>

#include "paceline/v1/round.grpc.pb.h"
#include "worker/rpc/round_plane_state.h"

namespace paceline {

class RoundPlane::Service final
    : public v1::Round::WithRawCallbackMethod_Exchange<v1::Round::Service> {
 public:
  // `state` outlives this.
  explicit Service(RoundPlaneState& state) : state_(state) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return state_.Accept(context->peer());
  }

 private:
  RoundPlaneState& state_;
};

RoundPlane::RoundPlane(const RoundPlaneOptions& options)
    : state_(std::make_shared<RoundPlaneState>(options)),
      service_(std::make_unique<Service>(*state_)) {}

RoundPlane::~RoundPlane() { Shutdown(); }

grpc::Service* RoundPlane::service() { return service_.get(); }

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlane::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  return state_->Open(fence, self, sink);
}

RoundPlaneStats RoundPlane::stats() const { return state_->stats(); }

void RoundPlane::Shutdown() { state_->Shutdown(); }

void RoundPlane::BreakStreamsForTest() {
  state_->EndStreams(absl::UnavailableError("broken by a test"));
}

}  // namespace paceline
