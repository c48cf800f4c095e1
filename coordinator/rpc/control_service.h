// paceline.v1.Control: what clients call.
#pragma once

#include "coordinator/coordinator.h"
#include "coordinator/metrics.h"
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
                     v1::SubmitJobResponse* response) override;
  Reactor* ListJobs(Context* context, const v1::ListJobsRequest* request,
                    v1::ListJobsResponse* response) override;
  Reactor* GetJob(Context* context, const v1::GetJobRequest* request,
                  v1::Job* response) override;
  Reactor* GetEvents(Context* context, const v1::GetEventsRequest* request,
                     v1::GetEventsResponse* response) override;
  Reactor* GetLogs(Context* context, const v1::GetLogsRequest* request,
                   v1::GetLogsResponse* response) override;
  Reactor* StopJob(Context* context, const v1::StopJobRequest* request,
                   v1::Job* response) override;
  Reactor* DeleteJob(Context* context, const v1::DeleteJobRequest* request,
                     v1::DeleteJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WeightsChunk>* ExportWeights(
      Context* context, const v1::ExportWeightsRequest* request) override;
  Reactor* ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                       v1::ListWorkersResponse* response) override;
  Reactor* DrainWorker(Context* context, const v1::DrainWorkerRequest* request,
                       v1::Worker* response) override;
  Reactor* ForgetWorker(Context* context,
                        const v1::ForgetWorkerRequest* request,
                        v1::Worker* response) override;
  Reactor* StartProfile(Context* context,
                        const v1::StartProfileRequest* request,
                        v1::StartProfileResponse* response) override;
  Reactor* GetProfile(Context* context, const v1::GetProfileRequest* request,
                      v1::GetProfileResponse* response) override;
  Reactor* ListMeasurements(Context* context,
                            const v1::ListMeasurementsRequest* request,
                            v1::ListMeasurementsResponse* response) override;

 private:
  // Gives the client the answer, counts the call and finishes it.
  template <typename Response>
  auto Answer(const char* method, Reactor* reactor, Response* response);

  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
};

}  // namespace paceline
