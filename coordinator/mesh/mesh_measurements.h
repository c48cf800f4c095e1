// Has workers measure, keeps the results, and estimates runs from them.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// As Brain::OnProfile().
absl::StatusOr<v1::StartProfileResponse> StartMeasuring(
    MeshState& mesh, const v1::StartProfileRequest& request);
void TakeMeasurement(MeshState& mesh, const Member& member,
                     const v1::Measurement& measurement);
// Workers that could not dial others try again.
void RedialAll(MeshState& mesh);
// The workers as the queue of measurements sees them.
std::vector<MeasureWorker> MeasureWorkers(const MeshState& mesh);

// Nothing: no estimate is possible.
//   slowness  InputWorker::slowness of the workers where it is known
std::optional<v1::RunEstimate> EstimateOf(
    const MeshState& mesh, const JobSpec& spec, const ModelDescription& model,
    const std::vector<StageOfPlan>& stages,
    const std::map<WorkerId, double>& slowness = {});
// model: of the request; empty: all models.
absl::StatusOr<v1::ListMeasurementsResponse> PageOfMeasurements(
    const MeshState& mesh, const v1::ListMeasurementsRequest& request);

}  // namespace paceline
