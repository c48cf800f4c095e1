// ControlClient and TrustClient over gRPC.
#pragma once

#include <memory>
#include <string>

#include "client/rpc/control_client.h"
#include "core/rpc/tls.h"
#include "grpcpp/channel.h"
#include "paceline/v1/control.grpc.pb.h"

namespace paceline {

// Keeps gRPC's own lines off the terminal, unless GRPC_VERBOSITY is set: errors
// of calls say what a person can use.
void SilenceGrpcLog();

// Thread-compatible.  Connects at the first call; a later call connects again
// when the connection was lost.
class GrpcControlClient final : public ControlClient {
 public:
  struct Deadlines {
    // Connecting, and then the call.  A coordinator that is down refuses at
    // once; these are for one that hangs.  Together with the two seconds for
    // which submit repeats itself, less than the five that "no" may take.
    absl::Duration connect = absl::Seconds(2);
    absl::Duration call = absl::Seconds(10);
    // Between two messages of an export.  What is missing where the connection
    // breaks is asked for in another call.
    absl::Duration export_weights = absl::Minutes(2);
    // A connection that broke in an export is made again within this time.
    absl::Duration reconnect = absl::Seconds(5);
    // Before the first byte of an export of a job that runs: so often nothing
    // may come.  1 GB comes over 2 Mbit/s in 33 times 2 min.
    int silences = 60;
  };

  explicit GrpcControlClient(std::string address);
  GrpcControlClient(std::string address, Deadlines deadlines);

  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      const v1::SubmitJobRequest& request) override;
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int limit) override;
  absl::StatusOr<v1::Job> GetJob(int64_t id, int points,
                                 int64_t after_step) override;
  absl::StatusOr<v1::Job> GetWholeJob(int64_t id) override;
  absl::StatusOr<v1::GetEventsResponse> GetEvents(int64_t id,
                                                  int64_t after) override;
  absl::StatusOr<v1::GetLogsResponse> GetLogs(int64_t id,
                                              int64_t after) override;
  absl::StatusOr<v1::Job> StopJob(int64_t id) override;
  absl::Status DeleteJob(int64_t id) override;
  absl::StatusOr<int64_t> ExportWeights(int64_t id, TakeBytes take) override;
  absl::StatusOr<std::unique_ptr<MeshStream>> WatchMesh() override;
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override;
  absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker,
                                         bool drain) override;
  absl::StatusOr<v1::Worker> ForgetWorker(const std::string& worker) override;
  absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) override;
  absl::StatusOr<ProfileProgress> GetProfile(int64_t id) override;
  absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) override;

 private:
  class Stream;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                const Request&, Response*),
      const Request& request);

  // One call of an export, from where the calls before have come to.
  struct ExportProgress {
    int64_t bytes = 0;
    int64_t total_bytes = 0;  // as the coordinator says
    int64_t step = 0;         // of a checkpoint
    bool connected = false;   // when the last call began
    bool late = false;        // it ended since nothing came
  };
  absl::Status ExportOn(int64_t id, TakeBytes take, ExportProgress& progress);
  // OK once the channel is ready.
  absl::Status Connect();
  // The status of a call, in words for people.
  absl::Status Explain(const grpc::Status& status) const;
  absl::Status Unreachable(const std::string& why) const;

  const std::string address_;
  const Deadlines deadlines_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Control::Stub> stub_;
  bool answered_ = false;  // to some call
};

// Thread-compatible.
class GrpcTrustClient final : public TrustClient {
 public:
  // folder: of the certificate for this coordinator
  GrpcTrustClient(std::string coordinator, std::string folder)
      : coordinator_(std::move(coordinator)), files_(std::move(folder)) {}

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override;
  absl::StatusOr<v1::ListTokensResponse> ListTokens() override;
  absl::StatusOr<v1::JoinToken> RevokeToken(const std::string& id) override;
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) override;
  absl::StatusOr<ShownCertificate> Login(
      const std::string& token, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) override;
  absl::StatusOr<ShownCertificate> Inspect() override;
  absl::StatusOr<ShownCertificate> Check() override;

 private:
  const std::string coordinator_;
  const TlsFiles files_;
};

// Uses the certificate of the folder for all later channels, and renews it
// where that is due.  Without one: nothing.
// Errors: those of UseTls()
absl::Status UseClientTls(const std::string& coordinator,
                          const std::string& folder);

}  // namespace paceline
