// paceline.v1.Control, the service for clients.
#pragma once

#include "coordinator/coordinator.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/listener.h"
#include "paceline/v1/control.grpc.pb.h"

namespace paceline {

// Turns calls of clients into calls on Coordinator, and back; decides nothing.
// Thread-safe.  Outlived by both constructor arguments.
class ControlService final : public v1::Control::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;

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
