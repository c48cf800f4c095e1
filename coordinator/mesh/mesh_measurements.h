// MeshMeasurements has workers measure, keeps the results, and estimates runs
// from them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.
class MeshMeasurements {
 public:
  explicit MeshMeasurements(MeshState& mesh) : mesh_(mesh) {}  // outlives this

  // As Brain::OnProfile().
  absl::StatusOr<v1::StartProfileResponse> OnProfile(
      const v1::StartProfileRequest& request);
  void TakeMeasurement(const Member& member,
                       const v1::Measurement& measurement);
  // Workers that could not dial others try again.
  void Redial();
  // The workers as the queue of measurements sees them.
  std::vector<MeasureWorker> MeasureWorkers() const;

  // Nothing: no estimate is possible.
  //   slowness  InputWorker::slowness of the workers where it is known
  std::optional<v1::RunEstimate> EstimateOf(
      const JobSpec& spec, const ModelDescription& model,
      const std::vector<StageOfPlan>& stages,
      const std::map<WorkerId, double>& slowness = {}) const;
  // model: of the request; empty: all models.
  absl::StatusOr<v1::ListMeasurementsResponse> ViewMeasurements(
      const v1::ListMeasurementsRequest& request) const;

 private:
  std::string FirstIdle(const std::vector<std::string>& names) const;
  v1::StartProfileResponse LookForFiles(const v1::StartProfileRequest& request);

  MeshState& mesh_;
};

}  // namespace paceline
