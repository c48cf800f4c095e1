#include "client/rpc/grpc_control_client.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/cluster/job_state.h"
#include "core/rpc/call_trust.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/enrol.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "grpc/support/log.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "paceline/v1/control.grpc.pb.h"

namespace paceline {
namespace {

// Between two tries to go on with an export.
constexpr absl::Duration kReconnectPause = absl::Milliseconds(200);

// Rows of a kind in a page of a job.
constexpr int kRowsAPage = 1000;

// The last step of which the page has a row.
int64_t LastStep(const v1::Job& page) {
  const auto last = [](const auto& rows) {
    return rows.empty() ? 0 : rows.rbegin()->step();
  };
  return std::max(last(page.curve()), last(page.evaluations()));
}

// gRPC's words for a refused connection without the way they took.
std::string Reason(const std::string& message) {
  // The resolver's details stand before the reason that a name has no address.
  if (absl::StrContains(message, "DNS resolution failed")) {
    return absl::StrCat("its name cannot be looked up:",
                        message.substr(message.rfind(": ") + 1));
  }
  constexpr absl::string_view kPrefix = "Failed to connect to remote host: ";
  const size_t found = message.rfind(kPrefix.data());
  return found == std::string::npos ? message
                                    : message.substr(found + kPrefix.size());
}

// The measurements of a response, checked; those of `Response` that has
// profiles and links.
template <typename Response>
absl::Status TakeMeasurements(const Response& response,
                              std::vector<DeviceProfile>& profiles,
                              std::vector<LinkMeasurement>& links) {
  const auto refused = [](const absl::Status& why) {
    return DataLoss(
        "the coordinator sent what cannot have been measured: ", why.message(),
        ": are client and coordinator of the same version?");
  };
  for (const v1::DeviceProfile& proto : response.profiles()) {
    absl::StatusOr<DeviceProfile> profile = FromProto(proto);
    if (!profile.ok()) return refused(profile.status());
    profiles.push_back(*std::move(profile));
  }
  for (const v1::LinkMeasurement& proto : response.links()) {
    absl::StatusOr<LinkMeasurement> link = FromProto(proto);
    if (!link.ok()) return refused(link.status());
    links.push_back(*std::move(link));
  }
  return absl::OkStatus();
}

// The elements of all pages in one answer.
//   ask        one page
//   is_enough  whether no further page is wanted
template <typename Request, typename Ask,
          typename Response =
              typename std::invoke_result_t<Ask, const Request&>::value_type>
absl::StatusOr<Response> AllPages(
    Request request, const Ask& ask,
    absl::FunctionRef<bool(const std::type_identity_t<Response>&)> is_enough =
        [](const Response&) { return false; }) {
  Response all;
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(const Response page, ask(request));
    const std::string next = page.next_page_token();
    all.MergeFrom(page);
    // A coordinator that has no pages repeats none.
    if (next.empty() || next == request.page_token() || is_enough(all)) break;
    request.set_page_token(next);
  }
  all.clear_next_page_token();
  return all;
}

// A request about a job, or a profile.
template <typename Request>
Request About(int64_t id) {
  Request request;
  request.set_id(id);
  return request;
}

class GrpcControlClient final : public ControlClient {
 public:
  GrpcControlClient(std::string address, const ControlDeadlines& deadlines)
      : address_(std::move(address)),
        deadlines_(deadlines),
        channel_(MakeChannel(address_, Role::kCoordinator)),
        stub_(v1::Control::NewStub(channel_)) {}

  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      const v1::SubmitJobRequest& request) override {
    return Call(&v1::Control::Stub::SubmitJob, request);
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int limit) override {
    v1::ListJobsRequest request;
    request.set_page_size(limit);
    const auto ask = [this](const v1::ListJobsRequest& page) {
      return Call(&v1::Control::Stub::ListJobs, page);
    };
    auto all =
        AllPages(request, ask, [limit](const v1::ListJobsResponse& so_far) {
          return limit > 0 && so_far.jobs_size() >= limit;
        });
    if (all.ok() && limit > 0 && all->jobs_size() > limit) {
      all->mutable_jobs()->DeleteSubrange(limit, all->jobs_size() - limit);
    }
    return all;
  }
  absl::StatusOr<v1::Job> GetJob(int64_t id, int points,
                                 int64_t after_step) override {
    auto request = About<v1::GetJobRequest>(id);
    request.set_points(points);
    request.set_after_step(after_step);
    return Call(&v1::Control::Stub::GetJob, request);
  }
  absl::StatusOr<v1::Job> GetWholeJob(int64_t id) override {
    auto request = About<v1::GetJobRequest>(id);
    request.set_points(kRowsAPage);
    request.set_in_order(true);
    PACELINE_ASSIGN_OR_RETURN(v1::Job whole,
                              Call(&v1::Control::Stub::GetJob, request));
    for (v1::Job page = whole; page.curve_size() >= kRowsAPage ||
                               page.evaluations_size() >= kRowsAPage;) {
      request.set_after_step(LastStep(page));
      PACELINE_ASSIGN_OR_RETURN(page,
                                Call(&v1::Control::Stub::GetJob, request));
      // A coordinator that knows no pages sends the last evaluations again.
      if (LastStep(page) <= request.after_step()) break;
      whole.mutable_curve()->MergeFrom(page.curve());
      whole.mutable_evaluations()->MergeFrom(page.evaluations());
    }
    return whole;
  }
  absl::StatusOr<v1::GetEventsResponse> GetEvents(int64_t id,
                                                  int64_t after) override {
    auto request = About<v1::GetEventsRequest>(id);
    request.set_after(after);
    return Call(&v1::Control::Stub::GetEvents, request);
  }
  absl::StatusOr<v1::GetLogsResponse> GetLogs(int64_t id,
                                              int64_t after) override {
    auto request = About<v1::GetLogsRequest>(id);
    request.set_after(after);
    return Call(&v1::Control::Stub::GetLogs, request);
  }
  absl::StatusOr<v1::Job> StopJob(int64_t id) override {
    return Call(&v1::Control::Stub::StopJob, About<v1::StopJobRequest>(id));
  }
  absl::Status DeleteJob(int64_t id) override {
    return Call(&v1::Control::Stub::DeleteJob, About<v1::DeleteJobRequest>(id))
        .status();
  }
  absl::StatusOr<int64_t> ExportWeights(int64_t id, TakeBytes take) override {
    ExportProgress progress;
    absl::Status status;
    const SystemClock clock;
    Instant came = clock.Now();
    int silences = 0;
    for (bool again = true; again;) {
      const int64_t before = progress.bytes;
      status = ExportOn(id, take, progress);
      if (progress.bytes > before) came = clock.Now();
      again = absl::IsUnavailable(status) &&
              progress.bytes < progress.total_bytes &&
              clock.Now() - came < deadlines_.reconnect;
      // The coordinator was there, and may be making a checkpoint still.
      if (absl::IsUnavailable(status) && progress.connected && !progress.late &&
          progress.bytes == 0) {
        again = ++silences < deadlines_.silences;
      }
      // A checkpoint is made first, which takes long over a slow link.
      if (progress.late && progress.bytes == 0) {
        const auto job = GetJob(id, 0, 0);
        if (!job.ok()) return job.status();
        const auto state = job->state();
        // It may have ended just now.
        const int least = HasEnded(state) ? deadlines_.silences - 1 : 0;
        silences = std::max(silences + 1, least);
        again = silences < deadlines_.silences;
        status = DeadlineExceeded(
            "nothing of the weights of job ", id, ", which is ",
            JobStateName(state), ", came from the coordinator at ", address_,
            " for ",
            absl::FormatDuration(
                absl::Trunc(clock.Now() - came, absl::Seconds(1))),
            ", though it answers: 'paceline job events ", id,
            "' says whether a checkpoint failed, and why; then export again");
      }
      if (again && progress.bytes == before) absl::SleepFor(kReconnectPause);
    }
    PACELINE_RETURN_IF_ERROR(status);
    if (progress.bytes != progress.total_bytes || progress.bytes == 0) {
      return DataLoss("the result of job ", id, " came as ", progress.bytes,
                      " bytes instead of ", progress.total_bytes,
                      ": export again");
    }
    return progress.step;
  }
  absl::StatusOr<std::unique_ptr<MeshStream>> WatchMesh() override {
    PACELINE_RETURN_IF_ERROR(Connect());
    return std::make_unique<Stream>(*this);
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    return AllPages(v1::ListWorkersRequest(), [this](const auto& page) {
      return Call(&v1::Control::Stub::ListWorkers, page);
    });
  }
  absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker,
                                         bool drain) override {
    v1::DrainWorkerRequest request;
    request.set_worker(worker);
    request.set_undrain(!drain);
    return Call(&v1::Control::Stub::DrainWorker, request);
  }
  absl::StatusOr<v1::Worker> ForgetWorker(const std::string& worker) override {
    v1::ForgetWorkerRequest request;
    request.set_worker(worker);
    return Call(&v1::Control::Stub::ForgetWorker, request);
  }
  absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) override {
    return Call(&v1::Control::Stub::StartProfile, request);
  }
  absl::StatusOr<ProfileProgress> GetProfile(int64_t id) override {
    const auto ask = [this](const v1::GetProfileRequest& page) {
      return Call(&v1::Control::Stub::GetProfile, page);
    };
    PACELINE_ASSIGN_OR_RETURN(const v1::GetProfileResponse response,
                              AllPages(About<v1::GetProfileRequest>(id), ask));
    ProfileProgress progress;
    PACELINE_RETURN_IF_ERROR(
        TakeMeasurements(response, progress.profiles, progress.links));
    progress.waiting.assign(response.waiting().begin(),
                            response.waiting().end());
    progress.failed.assign(response.failed().begin(), response.failed().end());
    progress.missing.assign(response.missing().begin(),
                            response.missing().end());
    progress.notes.assign(response.notes().begin(), response.notes().end());
    if (response.has_script())
      progress.script = Taken<ScriptModel>(response.script());
    return progress;
  }
  absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) override {
    v1::ListMeasurementsRequest request;
    request.set_model(model);
    const auto ask = [this](const v1::ListMeasurementsRequest& page) {
      return Call(&v1::Control::Stub::ListMeasurements, page);
    };
    PACELINE_ASSIGN_OR_RETURN(const v1::ListMeasurementsResponse response,
                              AllPages(request, ask));
    std::vector<DeviceProfile> profiles;
    std::vector<LinkMeasurement> links;
    PACELINE_RETURN_IF_ERROR(TakeMeasurements(response, profiles, links));
    Measurements measurements;
    for (DeviceProfile& profile : profiles) {
      ProfileKey key = profile.key;
      measurements.profiles.emplace(std::move(key), std::move(profile));
    }
    for (LinkMeasurement& link : links) {
      measurements.links.emplace(std::pair(link.from, link.to), link);
    }
    return measurements;
  }

 private:
  // One operation is under way at a time, so that no tag needs to tell which.
  class Stream final : public MeshStream {
   public:
    explicit Stream(GrpcControlClient& client)
        : client_(client),
          reader_(client.stub_->AsyncWatchMesh(
              &context_, v1::WatchMeshRequest(), &queue_, this)) {}

    ~Stream() override {
      context_.TryCancel();
      queue_.Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue_.Next(&tag, &ok)) {
      }
    }

    absl::StatusOr<std::optional<v1::MeshUpdate>> Next(
        absl::Duration patience) override {
      const gpr_timespec deadline = DeadlineAfter(patience);
      for (;;) {
        if (!pending_) {
          reader_->Read(&update_, this);
          pending_ = true;
        }
        void* tag = nullptr;
        bool ok = false;
        if (queue_.AsyncNext(&tag, &ok, deadline) !=
            grpc::CompletionQueue::GOT_EVENT) {
          return std::nullopt;
        }
        pending_ = false;
        if (!ok) return End();
        if (!std::exchange(begun_, true)) continue;
        client_.answered_ = true;
        return std::move(update_);
      }
    }

   private:
    absl::Status End() {
      grpc::Status status;
      reader_->Finish(&status, this);
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      if (status.error_code() == grpc::StatusCode::CANCELLED) {
        return client_.Unreachable("this program read too slowly");
      }
      // This client never asks for an end, so OK is an error too.
      return status.ok() ? client_.Unreachable("it ended the stream")
                         : client_.Explain(status);
    }

    GrpcControlClient& client_;
    grpc::ClientContext context_;
    grpc::CompletionQueue queue_;
    v1::MeshUpdate update_;
    const std::unique_ptr<grpc::ClientAsyncReader<v1::MeshUpdate>> reader_;
    bool pending_ = true;  // the call itself, first
    bool begun_ = false;
  };

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                const Request&, Response*),
      const Request& request) {
    PACELINE_RETURN_IF_ERROR(Connect());
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(deadlines_.call));
    Response response;
    const grpc::Status status =
        (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return Explain(status);
    answered_ = true;
    return response;
  }

  // One call of an export, from where the calls before have come to.
  struct ExportProgress {
    int64_t bytes = 0;
    int64_t total_bytes = 0;  // as the coordinator says
    int64_t step = 0;         // of a checkpoint
    bool connected = false;   // when the last call began
    bool late = false;        // it ended since nothing came
  };
  absl::Status ExportOn(int64_t id, TakeBytes take, ExportProgress& progress) {
    progress.connected = progress.late = false;
    PACELINE_RETURN_IF_ERROR(Connect());
    progress.connected = true;
    grpc::ClientContext context;
    std::atomic<bool> late = false;
    std::optional<CallDeadline> deadline;
    const auto grant_time = [&] {
      deadline.emplace(deadlines_.export_weights, [&] {
        late = true;
        context.TryCancel();
      });
    };
    grant_time();
    auto request = About<v1::ExportWeightsRequest>(id);
    request.set_offset_bytes(progress.bytes);
    request.set_step(progress.step);
    const auto reader = stub_->ExportWeights(&context, request);
    v1::WeightsChunk chunk;
    absl::Status written;
    while (written.ok() && reader->Read(&chunk)) {
      grant_time();
      progress.bytes += static_cast<int64_t>(chunk.data().size());
      progress.total_bytes = chunk.total_bytes();
      progress.step = chunk.step();
      written = take(chunk.data());
    }
    if (!written.ok()) context.TryCancel();
    grpc::Status status = reader->Finish();
    deadline.reset();
    progress.late = late;
    if (late) status = {grpc::StatusCode::DEADLINE_EXCEEDED, "nothing came"};
    if (!written.ok()) return written;
    return status.ok() ? absl::OkStatus() : Explain(status);
  }
  // OK once the channel is ready.
  absl::Status Connect() {
    const gpr_timespec deadline = DeadlineAfter(deadlines_.connect);
    for (;;) {
      const grpc_connectivity_state state =
          channel_->GetState(/*try_to_connect=*/true);
      // After a failure the call itself ends at once and says why it failed.
      if (state == GRPC_CHANNEL_READY ||
          state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
        return absl::OkStatus();
      }
      if (!channel_->WaitForStateChange(state, deadline)) {
        return Unreachable(absl::StrCat(
            "no answer within ", absl::FormatDuration(deadlines_.connect)));
      }
    }
  }
  // The status of a call, in words for people.
  absl::Status Explain(const grpc::Status& status) const {
    if (SpeaksNoGrpc(status)) {
      return Unavailable(
          "what answers at ", address_,
          " is no Paceline coordinator: it speaks HTTP, but not gRPC.  Name "
          "the "
          "coordinator's gRPC port, 7400 unless it was told otherwise (7480 is "
          "its port for /metrics), with --coordinator HOST:PORT");
    }
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return Unreachable(Reason(status.error_message()));
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return Unreachable("it is connected, but does not answer in time");
      // This client never cancels a call and then asks how it ended.  gRPC's
      // server does so with calls that come to it while it stops.
      case grpc::StatusCode::CANCELLED:
        return Unreachable("it is stopping");
      case grpc::StatusCode::UNIMPLEMENTED:
        // So says a worker, too: its port speaks gRPC.
        return Unimplemented(
            "the coordinator at ", address_, " does not know this call",
            status.error_message().empty() ? "" : " (", status.error_message(),
            status.error_message().empty() ? "" : ")",
            ": update it or this program, unless that is the address of a "
            "worker");
      default:
        return FromGrpc(status);
    }
  }
  absl::Status Unreachable(const std::string& why) const {
    // With another idea of TLS than ours it hangs up without a word.
    const bool hung_up = absl::StrContains(why, "closed") ||
                         absl::StrContains(why, "reset") ||
                         absl::StrContains(why, "SETTINGS");
    return Unavailable(
        "cannot reach the coordinator at ", address_, ": ", why,
        hung_up ? absl::StrCat(".  'paceline tls check ", address_,
                               "' tells whether a certificate is the reason")
                : "",
        answered_ ? ".  It answered before: start it again; its jobs go on "
                    "meanwhile, and 'paceline job wait last' waits for one"
                  : ".  Start a mesh with 'paceline up', or say where one is "
                    "with --coordinator HOST:PORT");
  }

  const std::string address_;
  const ControlDeadlines deadlines_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Control::Stub> stub_;
  bool answered_ = false;  // to some call
};

absl::StatusOr<ShownCertificate> Shown(
    const TlsFiles& files, const absl::StatusOr<CertificateInfo>& info) {
  PACELINE_RETURN_IF_ERROR(info.status());
  const Identity identity = info->identity.value_or(Identity());
  return ShownCertificate{std::string(RoleName(identity.role)), identity.name,
                          info->not_after, files.folder, info->renewal()};
}

class GrpcTrustClient final : public TrustClient {
 public:
  GrpcTrustClient(std::string coordinator, std::string folder)
      : coordinator_(std::move(coordinator)), files_(std::move(folder)) {}

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override {
    return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                     &v1::Trust::Stub::CreateToken, request);
  }
  absl::StatusOr<v1::ListTokensResponse> ListTokens() override {
    return AllPages(v1::ListTokensRequest(), [this](const auto& request) {
      return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                       &v1::Trust::Stub::ListTokens, request);
    });
  }
  absl::StatusOr<v1::JoinToken> RevokeToken(const std::string& id) override {
    v1::RevokeTokenRequest request;
    request.set_id(id);
    return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                     &v1::Trust::Stub::RevokeToken, request);
  }
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) override {
    v1::RevokeRequest request;
    request.set_role(role);
    request.set_name(name);
    return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                     &v1::Trust::Stub::Revoke, request);
  }
  absl::StatusOr<ShownCertificate> Login(
      const std::string& token, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) override {
    EnrolOptions options;
    options.coordinator = coordinator_;
    options.token = token;
    options.identity = {Role::kClient, user};
    options.say = say;
    PACELINE_RETURN_IF_ERROR(Enrol(options, files_));
    return Inspect();
  }
  absl::StatusOr<ShownCertificate> Inspect() override {
    return Shown(files_, InspectIdentity(files_, SystemClock().Today()));
  }
  absl::StatusOr<ShownCertificate> Check() override {
    return Shown(files_,
                 TryCoordinator(coordinator_, files_, SystemClock().Today()));
  }

 private:
  const std::string coordinator_;
  const TlsFiles files_;
};

}  // namespace

void SilenceGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
}

std::unique_ptr<ControlClient> MakeControlClient(
    std::string address, const ControlDeadlines& deadlines) {
  return std::make_unique<GrpcControlClient>(std::move(address), deadlines);
}

std::unique_ptr<TrustClient> MakeTrustClient(std::string coordinator,
                                             std::string folder) {
  return std::make_unique<GrpcTrustClient>(std::move(coordinator),
                                           std::move(folder));
}

absl::Status UseClientTls(const std::string& coordinator,
                          const std::string& folder) {
  const TlsFiles files(folder);
  if (!files.exist()) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(UseTls(files));
  // A coordinator that is away says so at the next call.
  RenewIfDue(coordinator, files, SystemClock().Today()).IgnoreError();
  return absl::OkStatus();
}

}  // namespace paceline
