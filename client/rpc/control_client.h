// The client's view of a coordinator: jobs and workers (ControlClient),
// certificates and tokens (TrustClient).  Real:
// client/rpc/grpc_control_client.h; in tests: FakeControlClient and
// FakeTrustClient.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// Takes the bytes of an export, in order.  The first error ends the export and
// is what the export returns.
using TakeBytes = absl::FunctionRef<absl::Status(absl::string_view bytes)>;

struct ProfileProgress {
  std::vector<DeviceProfile> profiles;   // finished, by device
  std::vector<LinkMeasurement> links;    // finished, by from and to
  std::vector<std::string> waiting;      // what is not, and for what it waits
  std::vector<std::string> failed;       // what could not be measured, and why
  std::optional<ScriptModel> script;     // what a worker found in a script
  std::vector<v1::MissingFile> missing;  // files that workers cannot read
  std::vector<std::string> notes;        // what a person should know of these
};

// A stream of MeshUpdate.  Thread-compatible.
class MeshStream {
 public:
  virtual ~MeshStream() = default;
  // Nothing: none has come within `patience`.
  // Errors: Unavailable  the coordinator is gone, or has dropped a client that
  //                      read too slowly: watch again
  virtual absl::StatusOr<std::optional<v1::MeshUpdate>> Next(
      absl::Duration patience) = 0;
};

// Thread-compatible.  Calls block, but never longer than their deadline.
//
// Errors of every call, besides its own:
//   Unavailable       the coordinator cannot be reached or does not answer; the
//                     message names its address and what to do
//   Unimplemented     the coordinator is of another version
//   NotFound          for the calls that name a job: there is no such job
class ControlClient {
 public:
  virtual ~ControlClient() = default;

  // Safe to repeat with the same request_id.
  // Errors: InvalidArgument    the spec is wrong
  //         ResourceExhausted  no worker has the memory that a stage needs
  virtual absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      const v1::SubmitJobRequest& request) = 0;

  // Newest first, without curve.  limit 0: all.
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(int limit) = 0;

  // points: at most so many of the curve; after_step: only later ones.
  virtual absl::StatusOr<v1::Job> GetJob(int64_t id, int points,
                                         int64_t after_step) = 0;
  // With all that is kept of its curve, and all evaluations.
  virtual absl::StatusOr<v1::Job> GetWholeJob(int64_t id) = 0;

  // after: only events with a greater sequence.  One page; an empty one is the
  // end for now.
  virtual absl::StatusOr<v1::GetEventsResponse> GetEvents(int64_t id,
                                                          int64_t after) = 0;
  // after: only lines with a greater sequence.  One page; an empty one is the
  // end for now.
  virtual absl::StatusOr<v1::GetLogsResponse> GetLogs(int64_t id,
                                                      int64_t after) = 0;

  // An ended job stays as it is.
  virtual absl::StatusOr<v1::Job> StopJob(int64_t id) = 0;

  // Errors: FailedPrecondition  it is queued or running
  virtual absl::Status DeleteJob(int64_t id) = 0;

  // The step of the checkpoint that they are of; 0: they are the result.
  // Errors: FailedPrecondition  the job has no weights yet
  //         DataLoss            fewer or more bytes came than were announced,
  //                             or the checkpoint is damaged
  //         DeadlineExceeded    the coordinator answers, but nothing comes
  //         and those of `take`
  virtual absl::StatusOr<int64_t> ExportWeights(int64_t id, TakeBytes take) = 0;

  // The first message is whole.  The client outlives the stream.
  virtual absl::StatusOr<std::unique_ptr<MeshStream>> WatchMesh() = 0;

  // By id.
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers() = 0;
  // worker: a name or a number.  It gets nothing new, and leaves its round
  // group; drain false takes it back.  As it is then.
  // Errors: NotFound
  virtual absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker,
                                                 bool drain) = 0;
  // One that is gone.  As it was.  Errors: NotFound, FailedPrecondition
  virtual absl::StatusOr<v1::Worker> ForgetWorker(
      const std::string& worker) = 0;

  // For a script that no worker has looked into, a worker looks into it and
  // measures nothing.
  // Errors: InvalidArgument     the spec is wrong
  //         NotFound            no live worker of that name
  //         FailedPrecondition  no worker is attached
  virtual absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) = 0;

  // Errors: NotFound  not known (any more): the coordinator has restarted
  //         DataLoss  the coordinator sent a measurement that cannot be one
  virtual absl::StatusOr<ProfileProgress> GetProfile(int64_t id) = 0;

  // model: a ModelKey; empty: of all models.  Links always.
  // Errors: DataLoss  as above
  virtual absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) = 0;
};

// A certificate says this of its holder.
struct ShownCertificate {
  std::string role;
  std::string name;
  absl::Time not_after;
  std::string folder;  // of its files
  absl::Time renewal;  // is due from then on
};

// Thread-compatible.  Calls block, but never longer than their deadline.
//
// Errors of every call, besides its own: Unavailable, Unauthenticated,
// PermissionDenied, FailedPrecondition (the coordinator runs without TLS)
class TrustClient {
 public:
  virtual ~TrustClient() = default;

  // Errors: InvalidArgument
  virtual absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTokensResponse> ListTokens() = 0;
  // Errors: NotFound
  virtual absl::StatusOr<v1::JoinToken> RevokeToken(const std::string& id) = 0;
  // Errors: InvalidArgument, ResourceExhausted
  virtual absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                                const std::string& name) = 0;

  // Trades a token for a client's certificate.  `say` is told where the
  // coordinator is away.
  virtual absl::StatusOr<ShownCertificate> Login(
      const std::string& token, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) = 0;
  // The certificate that is there; asks nobody.
  // Errors: NotFound, and what is wrong with it
  virtual absl::StatusOr<ShownCertificate> Inspect() = 0;
  // Tries the coordinator with the certificate that is there.
  // Errors: what keeps them apart
  virtual absl::StatusOr<ShownCertificate> Check() = 0;
};

}  // namespace paceline
