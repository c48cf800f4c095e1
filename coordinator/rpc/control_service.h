// paceline.v1.Control, the service for clients.
#pragma once

#include "coordinator/coordinator.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/stream_limit.h"
#include "paceline/v1/control.grpc.pb.h"

namespace paceline {

// Turns calls of clients into calls on Coordinator, and back; decides nothing.
// Thread-safe.  Outlived by both constructor arguments.
class ControlService final : public v1::Control::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  ControlService(Coordinator& coordinator, CoordinatorMetrics& metrics)
      : coordinator_(coordinator), metrics_(metrics) {}

  Reactor* SubmitJob(Context* context, const v1::SubmitJobRequest* request,
                     v1::SubmitJobResponse* response) override {
    return Serve(metrics_, context, "SubmitJob", *request, response,
                 [&](auto done) { coordinator_.Submit(*request, done); });
  }
  Reactor* ListJobs(Context* context, const v1::ListJobsRequest* request,
                    v1::ListJobsResponse* response) override {
    return Serve(metrics_, context, "ListJobs", *request, response,
                 [&](auto done) { coordinator_.ListJobs(*request, done); });
  }
  Reactor* GetJob(Context* context, const v1::GetJobRequest* request,
                  v1::Job* response) override {
    return Serve(metrics_, context, "GetJob", *request, response,
                 [&](auto done) { coordinator_.GetJob(*request, done); });
  }
  Reactor* GetEvents(Context* context, const v1::GetEventsRequest* request,
                     v1::GetEventsResponse* response) override {
    return Serve(metrics_, context, "GetEvents", *request, response,
                 [&](auto done) { coordinator_.GetEvents(*request, done); });
  }
  Reactor* GetLogs(Context* context, const v1::GetLogsRequest* request,
                   v1::GetLogsResponse* response) override {
    return Serve(metrics_, context, "GetLogs", *request, response,
                 [&](auto done) { coordinator_.GetLogs(*request, done); });
  }
  Reactor* StopJob(Context* context, const v1::StopJobRequest* request,
                   v1::Job* response) override {
    return Serve(
        metrics_, context, "StopJob", *request, response,
        [&](auto done) { coordinator_.Stop(JobId{request->id()}, done); });
  }
  Reactor* DeleteJob(Context* context, const v1::DeleteJobRequest* request,
                     v1::DeleteJobResponse* response) override {
    return Serve(
        metrics_, context, "DeleteJob", *request, response,
        [&](auto done) { coordinator_.Delete(JobId{request->id()}, done); });
  }
  Reactor* ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                       v1::ListWorkersResponse* response) override {
    return Serve(metrics_, context, "ListWorkers", *request, response,
                 [&](auto done) { coordinator_.ListWorkers(*request, done); });
  }
  Reactor* DrainWorker(Context* context, const v1::DrainWorkerRequest* request,
                       v1::Worker* response) override {
    return Serve(
        metrics_, context, "DrainWorker", *request, response, [&](auto done) {
          coordinator_.Drain(request->worker(), !request->undrain(), done);
        });
  }
  Reactor* ForgetWorker(Context* context,
                        const v1::ForgetWorkerRequest* request,
                        v1::Worker* response) override {
    return Serve(
        metrics_, context, "ForgetWorker", *request, response,
        [&](auto done) { coordinator_.Forget(request->worker(), done); });
  }
  Reactor* StartProfile(Context* context,
                        const v1::StartProfileRequest* request,
                        v1::StartProfileResponse* response) override {
    return Serve(metrics_, context, "StartProfile", *request, response,
                 [&](auto done) { coordinator_.StartProfile(*request, done); });
  }
  Reactor* GetProfile(Context* context, const v1::GetProfileRequest* request,
                      v1::GetProfileResponse* response) override {
    return Serve(metrics_, context, "GetProfile", *request, response,
                 [&](auto done) { coordinator_.GetProfile(*request, done); });
  }
  Reactor* ListMeasurements(Context* context,
                            const v1::ListMeasurementsRequest* request,
                            v1::ListMeasurementsResponse* response) override {
    return Serve(
        metrics_, context, "ListMeasurements", *request, response,
        [&](auto done) { coordinator_.ListMeasurements(*request, done); });
  }
  grpc::ServerWriteReactor<v1::WeightsChunk>* ExportWeights(
      Context* context, const v1::ExportWeightsRequest* request) override;
  grpc::ServerWriteReactor<v1::MeshUpdate>* WatchMesh(
      Context* context, const v1::WatchMeshRequest* request) override;

 private:
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  StreamLimit exports_;
  StreamLimit watches_;
};

}  // namespace paceline
