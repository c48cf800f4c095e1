#include "worker/rpc/data_plane.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/convert.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/rpc/link_probe.h"
#include "worker/rpc/plane_state.h"

namespace paceline {
namespace {

// A report that waits for its verdict.  Thread-safe; whoever answers first
// wins.  Shared by the reactor and the desk, either of which may be the last.
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
  // Null once answered: gRPC's from then on.
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

class DataPlane::Service final
    : public v1::Stage::WithRawCallbackMethod_Exchange<
          v1::Stage::WithCallbackMethod_ReportStep<
              v1::Stage::WithCallbackMethod_Probe<v1::Stage::Service>>> {
 public:
  // `state` outlives this.
  explicit Service(PlaneState& state) : state_(state) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return state_.Accept(context->peer());
  }

  grpc::ServerUnaryReactor* ReportStep(grpc::CallbackServerContext* /*context*/,
                                       const v1::StepReport* request,
                                       v1::StepVerdict* response) override {
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

 private:
  PlaneState& state_;
};

DataPlane::DataPlane(const DataPlaneOptions& options)
    : state_(std::make_shared<PlaneState>(options)),
      service_(std::make_unique<Service>(*state_)) {}

DataPlane::~DataPlane() { Shutdown(); }

grpc::Service* DataPlane::service() { return service_.get(); }

absl::StatusOr<RunConnections> DataPlane::Open(const RunWiring& wiring) {
  return state_->Open(wiring);
}

absl::Status DataPlane::OpenGate(const Fence& fence, const GateOptions& gate) {
  return state_->OpenGate(fence, gate);
}

DataPlaneStats DataPlane::stats() const { return state_->stats(); }

void DataPlane::Shutdown() { state_->Shutdown(); }

void DataPlane::BreakStreamsForTest() {
  state_->EndStreams(absl::UnavailableError("broken by a test"));
}

}  // namespace paceline
