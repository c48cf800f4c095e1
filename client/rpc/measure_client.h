// The client's view of what a coordinator has measured, and has measured for
// it.  Real: client/rpc/grpc_control_client.h; in tests: FakeMeasureClient.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

struct ProfileProgress {
  std::vector<DeviceProfile> profiles;  // finished, by device
  std::vector<LinkMeasurement> links;   // finished, by from and to
  std::vector<std::string> waiting;     // what is not, and for what it waits
  std::vector<std::string> failed;      // what could not be measured, and why
  std::optional<ScriptModel> script;    // what a worker found in a script
};

// Thread-compatible.  Calls block, but never longer than their deadline.
//
// Errors of every call: those of ControlClient (control_client.h), and
//   DataLoss  the coordinator sent a measurement that cannot be one
class MeasureClient {
 public:
  virtual ~MeasureClient() = default;

  // For a script that no worker has looked into, a worker looks into it and
  // measures nothing.
  // Errors: InvalidArgument     the spec is wrong
  //         NotFound            no live worker of that name
  //         FailedPrecondition  no worker is attached
  virtual absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) = 0;

  // Errors: NotFound  not known (any more): the coordinator has restarted
  virtual absl::StatusOr<ProfileProgress> GetProfile(int64_t id) = 0;

  // model: a ModelKey; empty: of all models.  Links always.
  virtual absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) = 0;

  // By id.
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers() = 0;
};

}  // namespace paceline
