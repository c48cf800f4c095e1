#include "coordinator/rpc/control_service.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

// One client's export: a chunk is read from the file when the one before it
// was sent.  gRPC keeps it alive until Finish(), which comes after every answer
// of the coordinator; so the answers may hold a plain pointer.
class ExportReactor final : public grpc::ServerWriteReactor<v1::WeightsChunk> {
 public:
  ExportReactor(Coordinator& coordinator, CoordinatorMetrics& metrics,
                const v1::ExportWeightsRequest& request)
      : coordinator_(coordinator),
        metrics_(metrics),
        job_{request.id()},
        next_byte_(std::max<int64_t>(0, request.offset_bytes())) {
    ReadNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      End(absl::CancelledError("the client has left"));
    } else if (next_byte_ < chunk_.total_bytes()) {
      ReadNext();
    } else {
      End(absl::OkStatus());
    }
  }

  void OnDone() override { delete this; }

 private:
  void ReadNext() {
    coordinator_.ReadWeights(
        job_, next_byte_, kChunkBytes,
        [this](absl::StatusOr<WeightsPart> part) { OnPart(std::move(part)); });
  }

  void OnPart(absl::StatusOr<WeightsPart> part) {
    if (!part.ok()) {
      End(part.status());
    } else if (part->data.empty()) {
      End(absl::DataLossError(absl::StrCat("the weights file has no byte ",
                                           next_byte_, ": export it again")));
    } else {
      next_byte_ += static_cast<int64_t>(part->data.size());
      chunk_.set_total_bytes(part->total_bytes);
      *chunk_.mutable_data() = std::move(part->data);
      StartWrite(&chunk_);
    }
  }

  void End(const absl::Status& status) {
    metrics_.CountControl("ExportWeights", status.code());
    Finish(ToGrpc(status));
  }

  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const JobId job_;
  v1::WeightsChunk chunk_;
  int64_t next_byte_;  // of the file
};

}  // namespace

template <typename Response>
auto ControlService::Answer(const char* method, Reactor* reactor,
                            Response* response) {
  return [=, this](absl::StatusOr<Response> answer) {
    metrics_.CountControl(method, answer.status().code());
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(ToGrpc(answer.status()));
  };
}

ControlService::Reactor* ControlService::SubmitJob(
    Context* context, const v1::SubmitJobRequest* request,
    v1::SubmitJobResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Submit(*request, Answer("SubmitJob", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::ListJobs(
    Context* context, const v1::ListJobsRequest* request,
    v1::ListJobsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListJobs(request->limit(),
                        Answer("ListJobs", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::GetJob(
    Context* context, const v1::GetJobRequest* request, v1::Job* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetJob(*request, Answer("GetJob", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::GetEvents(
    Context* context, const v1::GetEventsRequest* request,
    v1::GetEventsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetEvents(*request, Answer("GetEvents", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::GetLogs(
    Context* context, const v1::GetLogsRequest* request,
    v1::GetLogsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetLogs(*request, Answer("GetLogs", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::StopJob(
    Context* context, const v1::StopJobRequest* request, v1::Job* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Stop(JobId{request->id()}, Answer("StopJob", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::DeleteJob(
    Context* context, const v1::DeleteJobRequest* request,
    v1::DeleteJobResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Delete(JobId{request->id()},
                      Answer("DeleteJob", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::ListWorkers(
    Context* context, const v1::ListWorkersRequest* /*request*/,
    v1::ListWorkersResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListWorkers(Answer("ListWorkers", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::DrainWorker(
    Context* context, const v1::DrainWorkerRequest* request,
    v1::Worker* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Drain(request->worker(), !request->undrain(),
                     Answer("DrainWorker", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::ForgetWorker(
    Context* context, const v1::ForgetWorkerRequest* request,
    v1::Worker* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Forget(request->worker(),
                      Answer("ForgetWorker", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::StartProfile(
    Context* context, const v1::StartProfileRequest* request,
    v1::StartProfileResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.StartProfile(*request,
                            Answer("StartProfile", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::GetProfile(
    Context* context, const v1::GetProfileRequest* request,
    v1::GetProfileResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetProfile(request->id(),
                          Answer("GetProfile", reactor, response));
  return reactor;
}

ControlService::Reactor* ControlService::ListMeasurements(
    Context* context, const v1::ListMeasurementsRequest* request,
    v1::ListMeasurementsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListMeasurements(request->model(),
                                Answer("ListMeasurements", reactor, response));
  return reactor;
}

grpc::ServerWriteReactor<v1::WeightsChunk>* ControlService::ExportWeights(
    Context* /*context*/, const v1::ExportWeightsRequest* request) {
  return new ExportReactor(coordinator_, metrics_, *request);
}

}  // namespace paceline
