#include "coordinator/rpc/control_service.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/convert.h"
#include "core/rpc/convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int32_t kDefaultLogLines = 1000;

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

void ControlService::Finish(const char* method, Reactor* reactor,
                            const absl::Status& status) {
  metrics_.CountControl(method, status.code());
  reactor->Finish(ToGrpc(status));
}

ControlService::Reactor* ControlService::SubmitJob(
    Context* context, const v1::SubmitJobRequest* request,
    v1::SubmitJobResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Submit({FromProto(request->spec()), request->request_id()},
                      request->dry_run(),
                      [=, this](const absl::StatusOr<Submission>& submission) {
                        if (submission.ok()) *response = ToProto(*submission);
                        Finish("SubmitJob", reactor, submission.status());
                      });
  return reactor;
}

ControlService::Reactor* ControlService::ListJobs(
    Context* context, const v1::ListJobsRequest* request,
    v1::ListJobsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListJobs(
      request->limit(),
      [=, this](const absl::StatusOr<std::vector<JobDetails>>& jobs) {
        if (jobs.ok()) {
          for (const JobDetails& job : *jobs) {
            *response->add_jobs() = ToProto(job);
          }
        }
        Finish("ListJobs", reactor, jobs.status());
      });
  return reactor;
}

ControlService::Reactor* ControlService::GetJob(
    Context* context, const v1::GetJobRequest* request, v1::Job* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetJob(JobId{request->id()}, request->points(),
                      request->after_step(),
                      [=, this](const absl::StatusOr<JobDetails>& job) {
                        if (job.ok()) *response = ToProto(*job);
                        Finish("GetJob", reactor, job.status());
                      });
  return reactor;
}

ControlService::Reactor* ControlService::GetEvents(
    Context* context, const v1::GetEventsRequest* request,
    v1::GetEventsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetEvents(
      JobId{request->id()}, request->after(),
      [=, this](const absl::StatusOr<std::vector<EventRecord>>& events) {
        if (events.ok()) {
          for (const EventRecord& event : *events) {
            *response->add_events() = ToProto(event);
          }
        }
        Finish("GetEvents", reactor, events.status());
      });
  return reactor;
}

ControlService::Reactor* ControlService::GetLogs(
    Context* context, const v1::GetLogsRequest* request,
    v1::GetLogsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  const int64_t after = request->after();
  coordinator_.GetLogs(
      JobId{request->id()}, after,
      request->limit() > 0 ? request->limit() : kDefaultLogLines,
      [=, this](const absl::StatusOr<std::vector<LogRecord>>& lines) {
        response->set_last(after);
        if (lines.ok()) {
          for (const LogRecord& line : *lines) {
            *response->add_lines() = ToProto(line);
            response->set_last(line.sequence);
          }
        }
        Finish("GetLogs", reactor, lines.status());
      });
  return reactor;
}

ControlService::Reactor* ControlService::StopJob(
    Context* context, const v1::StopJobRequest* request, v1::Job* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Stop(JobId{request->id()},
                    [=, this](const absl::StatusOr<JobView>& job) {
                      if (job.ok()) *response = ToProto(*job);
                      Finish("StopJob", reactor, job.status());
                    });
  return reactor;
}

ControlService::Reactor* ControlService::DeleteJob(
    Context* context, const v1::DeleteJobRequest* request,
    v1::DeleteJobResponse* /*response*/) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Delete(JobId{request->id()},
                      [=, this](const absl::Status& status) {
                        Finish("DeleteJob", reactor, status);
                      });
  return reactor;
}

grpc::ServerWriteReactor<v1::WeightsChunk>* ControlService::ExportWeights(
    Context* /*context*/, const v1::ExportWeightsRequest* request) {
  return new ExportReactor(coordinator_, metrics_, *request);
}

ControlService::Reactor* ControlService::ListWorkers(
    Context* context, const v1::ListWorkersRequest* /*request*/,
    v1::ListWorkersResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListWorkers(
      [=, this](const absl::StatusOr<std::vector<WorkerView>>& workers) {
        if (workers.ok()) {
          for (const WorkerView& worker : *workers) {
            *response->add_workers() = ToProto(worker);
          }
        }
        Finish("ListWorkers", reactor, workers.status());
      });
  return reactor;
}

ControlService::Reactor* ControlService::DrainWorker(
    Context* context, const v1::DrainWorkerRequest* request,
    v1::Worker* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Drain(request->worker(), !request->undrain(),
                     [=, this](const absl::StatusOr<WorkerView>& worker) {
                       if (worker.ok()) *response = ToProto(*worker);
                       Finish("DrainWorker", reactor, worker.status());
                     });
  return reactor;
}

ControlService::Reactor* ControlService::ForgetWorker(
    Context* context, const v1::ForgetWorkerRequest* request,
    v1::Worker* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.Forget(request->worker(),
                      [=, this](const absl::StatusOr<WorkerView>& worker) {
                        if (worker.ok()) *response = ToProto(*worker);
                        Finish("ForgetWorker", reactor, worker.status());
                      });
  return reactor;
}

ControlService::Reactor* ControlService::StartProfile(
    Context* context, const v1::StartProfileRequest* request,
    v1::StartProfileResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.StartProfile(
      {FromProto(request->spec()),
       {request->workers().begin(), request->workers().end()},
       request->links()},
      [=, this](const absl::StatusOr<ProfileTicket>& ticket) {
        if (ticket.ok()) {
          response->set_id(ticket->id);
          for (const std::string& worker : ticket->workers) {
            response->add_workers(worker);
          }
        }
        Finish("StartProfile", reactor, ticket.status());
      });
  return reactor;
}

ControlService::Reactor* ControlService::GetProfile(
    Context* context, const v1::GetProfileRequest* request,
    v1::GetProfileResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.GetProfile(request->id(),
                          [=, this](const absl::StatusOr<ProfileView>& view) {
                            if (view.ok()) *response = ToProto(*view);
                            Finish("GetProfile", reactor, view.status());
                          });
  return reactor;
}

ControlService::Reactor* ControlService::ListMeasurements(
    Context* context, const v1::ListMeasurementsRequest* request,
    v1::ListMeasurementsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  coordinator_.ListMeasurements(
      request->model(),
      [=, this](const absl::StatusOr<StoredMeasurements>& measurements) {
        if (measurements.ok()) *response = ToProto(*measurements);
        Finish("ListMeasurements", reactor, measurements.status());
      });
  return reactor;
}

}  // namespace paceline
