#include "coordinator/rpc/control_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/rpc/serve.h"
#include "core/base/errors.h"
#include "core/rpc/listener.h"
#include "paceline/v1/control.grpc.pb.h"

namespace paceline {
namespace {

// A broken link wastes at most a chunk.
constexpr int64_t kWeightsChunkBytes = 256 << 10;

// One client's export: it reads the next chunk when the last one was sent.
// gRPC keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class ExportReactor final : public grpc::ServerWriteReactor<v1::WeightsChunk> {
 public:
  ExportReactor(Coordinator& coordinator, CoordinatorMetrics& metrics,
                const v1::ExportWeightsRequest& request, std::string peer,
                absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : coordinator_(coordinator),
        metrics_(metrics),
        peer_(std::move(peer)),
        place_(std::move(place)),
        job_{request.id()},
        step_(request.step()),
        next_byte_(std::max<int64_t>(0, request.offset_bytes())) {
    if (place_.ok()) {
      ReadNext();
    } else {
      End(place_.status());
    }
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(Cancelled("the client has left"));
    if (next_byte_ >= chunk_.total_bytes()) return End(absl::OkStatus());
    ReadNext();
  }

  // The coordinator polls this while the export waits for its checkpoint.
  void OnCancel() override { has_left_ = true; }
  void OnDone() override { delete this; }

 private:
  void ReadNext() {
    coordinator_.ReadWeights(
        job_, step_, next_byte_, kWeightsChunkBytes,
        [this] { return has_left_.load(); },
        [this](auto part) { OnPart(std::move(part)); });
  }

  void OnPart(absl::StatusOr<v1::WeightsChunk> part) {
    if (!part.ok()) return End(part.status());
    if (part->data().empty()) {
      return End(DataLoss("the weights file has no byte ", next_byte_,
                          ": export it again"));
    }
    // While it reads, the client sends many acknowledgement bytes and no
    // message.
    Listener::OnKnown(peer_);
    next_byte_ += static_cast<int64_t>(part->data().size());
    step_ = part->step();
    chunk_ = *std::move(part);
    StartWrite(&chunk_);
  }

  void End(const absl::Status& status) {
    metrics_.CountControl("ExportWeights", status.code());
    Finish(ToGrpc(status));
  }

  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const std::string peer_;
  const absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  const JobId job_;
  v1::WeightsChunk chunk_;
  int64_t step_;       // of the checkpoint; 0: none, or not known yet
  int64_t next_byte_;  // of the file
  std::atomic<bool> has_left_ = false;
};

// One watcher of the mesh.  gRPC and the coordinator's list share it.
// Thread-safe.
class WatchReactor final : public grpc::ServerWriteReactor<v1::MeshUpdate>,
                           public MeshWatcher {
 public:
  using Place = absl::StatusOr<std::unique_ptr<StreamLimit::Place>>;

  static WatchReactor* Start(Coordinator& coordinator,
                             CoordinatorMetrics& metrics,
                             grpc::CallbackServerContext& context,
                             Place place) {
    const auto reactor =
        std::make_shared<WatchReactor>(metrics, context, std::move(place));
    {
      absl::MutexLock lock(&reactor->mutex_);
      reactor->self_ = reactor;
    }
    if (reactor->place_.ok()) {
      coordinator.WatchMesh(reactor);
    } else {
      reactor->End(reactor->place_.status());
    }
    return reactor.get();
  }

  WatchReactor(CoordinatorMetrics& metrics,
               grpc::CallbackServerContext& context, Place place)
      : metrics_(metrics), context_(context), place_(std::move(place)) {}

  bool Take(const SharedUpdate& update) override {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return false;
    if (unread_.size() < kMostUnread) {
      unread_.push_back(update);
      PumpLocked();
      return true;
    }
    end_ = Cancelled("it reads too slowly");
    // Its last write would wait for ever.  Under the lock, since OnDone() needs
    // it and the context is destroyed after OnDone().
    context_.TryCancel();
    return false;
  }

  void End(const absl::Status& why) override {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = why;
    PumpLocked();
  }

  void OnWriteDone(bool /*ok*/) override {
    // Over hours, the client's acknowledgements are many bytes without a
    // message.
    Listener::OnMessage(context_.peer(), 0);
    absl::MutexLock lock(&mutex_);
    writing_.reset();
    PumpLocked();
  }
  void OnCancel() override { End(Cancelled("the client has left")); }
  void OnDone() override {
    std::shared_ptr<WatchReactor> self;
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
    // The coordinator's list may keep this object longer than the service
    // lives.
    place_ = Cancelled("over");
  }

 private:
  // gRPC only queues these operations.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_ || writing_ != nullptr) return;
    if (end_.has_value()) {
      finished_ = true;
      metrics_.CountControl("WatchMesh", end_->code());
      Finish(ToGrpc(*end_));
    } else if (!unread_.empty()) {
      writing_ = std::move(unread_.front());
      unread_.pop_front();
      StartWrite(&writing_->message());
    }
  }

  CoordinatorMetrics& metrics_;
  grpc::CallbackServerContext& context_;  // alive until OnDone()
  Place place_;                           // none after OnDone()

  absl::Mutex mutex_;
  std::shared_ptr<WatchReactor> self_ ABSL_GUARDED_BY(mutex_);
  std::deque<SharedUpdate> unread_ ABSL_GUARDED_BY(mutex_);
  SharedUpdate writing_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // the first one
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // no gRPC call any more
};

// Turns calls of clients into calls on Coordinator, and back; decides nothing.
// Thread-safe.
class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(Coordinator& coordinator, CoordinatorMetrics& metrics)
      : coordinator_(coordinator), metrics_(metrics) {}

  PACELINE_CALL(SubmitJob, SubmitJobResponse,
                coordinator_.Submit(*request, done))
  PACELINE_CALL(ListJobs, ListJobsResponse,
                coordinator_.ListJobs(*request, done))
  PACELINE_CALL(GetJob, Job, coordinator_.GetJob(*request, done))
  PACELINE_CALL(GetEvents, GetEventsResponse,
                coordinator_.GetEvents(*request, done))
  PACELINE_CALL(GetLogs, GetLogsResponse, coordinator_.GetLogs(*request, done))
  PACELINE_CALL(StopJob, Job, coordinator_.Stop(JobId{request->id()}, done))
  PACELINE_CALL(DeleteJob, DeleteJobResponse,
                coordinator_.Delete(JobId{request->id()}, done))
  PACELINE_CALL(ListWorkers, ListWorkersResponse,
                coordinator_.ListWorkers(*request, done))
  PACELINE_CALL(DrainWorker, Worker,
                coordinator_.Change(done, [request](Brain& brain, Moment now) {
                  return brain.OnDrain(request->worker(), !request->undrain(),
                                       now);
                }))
  PACELINE_CALL(ForgetWorker, Worker,
                coordinator_.Change(done, [request](Brain& brain, Moment now) {
                  return brain.OnForget(request->worker(), now);
                }))
  PACELINE_CALL(StartProfile, StartProfileResponse,
                coordinator_.Ask(done, [request](Brain& brain, Moment now) {
                  return brain.OnProfile(*request, now);
                }))
  PACELINE_CALL(GetProfile, GetProfileResponse,
                coordinator_.Ask(done, [request](Brain& brain, Moment now) {
                  return brain.ViewProfile(*request, now.now);
                }))
  PACELINE_CALL(ListMeasurements, ListMeasurementsResponse,
                coordinator_.Ask(done, [request](Brain& brain, Moment) {
                  return brain.ViewMeasurements(*request);
                }))
  grpc::ServerWriteReactor<v1::WeightsChunk>* ExportWeights(
      grpc::CallbackServerContext* context,
      const v1::ExportWeightsRequest* request) override {
    return new ExportReactor(coordinator_, metrics_, *request, context->peer(),
                             exports_.Enter(context->peer()));
  }
  grpc::ServerWriteReactor<v1::MeshUpdate>* WatchMesh(
      grpc::CallbackServerContext* context,
      const v1::WatchMeshRequest* request) override {
    Listener::OnMessage(context->peer(),
                        static_cast<int64_t>(request->ByteSizeLong()));
    return WatchReactor::Start(coordinator_, metrics_, *context,
                               watches_.Enter(context->peer()));
  }

 private:
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  StreamLimit exports_;
  StreamLimit watches_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeControlService(Coordinator& coordinator,
                                                  CoordinatorMetrics& metrics) {
  return std::make_unique<ControlService>(coordinator, metrics);
}

}  // namespace paceline
