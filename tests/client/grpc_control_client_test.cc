#include "client/rpc/grpc_control_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/job/job.h"
#include "core/rpc/channel.h"
#include "core/rpc/tls.h"
#include "gmock/gmock.h"
#include "grpc/support/log.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/control.grpc.pb.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Knows job 7 and one worker.
class FakeControlService final : public v1::Control::Service {
 public:
  grpc::Status SubmitJob(grpc::ServerContext*,
                         const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    submitted = *request;
    if (!submit_status.ok()) return submit_status;
    response->set_id(request->dry_run() ? 0 : 7);
    response->add_notes("one thread a worker");
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override {
    if (request->id() != 7) return NotFound(request->id());
    *job = SucceededJob();
    job->set_state(state);
    *job->mutable_spec() = submitted.spec();
    job->clear_curve();
    for (int step = 1; step <= std::min(2, request->points()); ++step) {
      *job->add_curve() = Loss({step, 1.0 / step});
    }
    return grpc::Status::OK;
  }
  grpc::Status DeleteJob(grpc::ServerContext*,
                         const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse*) override {
    return request->id() == 7 ? grpc::Status::OK : NotFound(request->id());
  }
  grpc::Status ExportWeights(
      grpc::ServerContext* context, const v1::ExportWeightsRequest* request,
      grpc::ServerWriter<v1::WeightsChunk>* writer) override {
    if (request->id() != 7) return NotFound(request->id());
    offsets.push_back(request->offset_bytes());
    while (is_silent && !context->IsCancelled()) std::this_thread::yield();
    const std::string file = "abcdef";
    for (int64_t at = request->offset_bytes(); at < 6; at += 3) {
      v1::WeightsChunk chunk;
      chunk.set_data(file.substr(at, 3));
      chunk.set_total_bytes(total_bytes);
      if (offsets.size() == 1 && at == first_call_breaks_at) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken");
      }
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    *response->add_workers() = AWorker(1, "w1", v1::WORKER_STATE_BUSY);
    return grpc::Status::OK;
  }

  grpc::Status DrainWorker(grpc::ServerContext*,
                           const v1::DrainWorkerRequest* request,
                           v1::Worker* response) override {
    if (request->worker() != "w1") {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "no worker 'w9'");
    }
    *response = AWorker(1, "w1");
    response->set_drained(!request->undrain());
    return grpc::Status::OK;
  }

  grpc::Status ForgetWorker(grpc::ServerContext*,
                            const v1::ForgetWorkerRequest* request,
                            v1::Worker* response) override {
    *response = AWorker(1, request->worker());
    return grpc::Status::OK;
  }

  grpc::Status StartProfile(grpc::ServerContext*,
                            const v1::StartProfileRequest* request,
                            v1::StartProfileResponse* response) override {
    profiled = *request;
    response->set_id(3);
    response->add_workers("w1");
    return grpc::Status::OK;
  }
  grpc::Status GetProfile(grpc::ServerContext*,
                          const v1::GetProfileRequest* request,
                          v1::GetProfileResponse* response) override {
    if (request->id() != 3) return NotFound(request->id());
    *response->add_profiles() = Profile();
    response->add_waiting("w1 -> w2");
    response->add_failed("w3: gone");
    return grpc::Status::OK;
  }
  grpc::Status ListMeasurements(
      grpc::ServerContext*, const v1::ListMeasurementsRequest* request,
      v1::ListMeasurementsResponse* response) override {
    listed_model = request->model();
    *response->add_profiles() = Profile();
    *response->add_links() = Parse<v1::LinkMeasurement>(
        R"(from: "w1" to: "w2" bytes_per_second: 1e8)");
    return grpc::Status::OK;
  }

  v1::DeviceProfile Profile() const {
    auto profile = Parse<v1::DeviceProfile>(
        R"(model: "lenet" micro_batch: 16 dtype: "f32" threads: 1
           device: "w1" cpu_share: 1)");
    profile.add_layers()->mutable_forward()->set_wall(layer_seconds);
    return profile;
  }

  double layer_seconds = 0.5;
  v1::StartProfileRequest profiled;
  std::string listed_model;
  grpc::Status submit_status;
  int64_t total_bytes = 6;
  int64_t first_call_breaks_at = -1;  // offset
  bool is_silent = false;             // exports bring nothing
  v1::JobState state = v1::JOB_STATE_SUCCEEDED;
  std::vector<int64_t> offsets;  // that exports asked for
  v1::SubmitJobRequest submitted;

 private:
  static grpc::Status NotFound(int64_t id) {
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no job ", id)};
  }
};

// Commands over real gRPC on loopback.
template <typename Service>
class Over : public testing::Test {
 protected:
  Over() {
    server_ = StartServer({.listen = "127.0.0.1:0"}, {&service_}).value();
    client_ = MakeControlClient(absl::StrCat("127.0.0.1:", server_.port));
  }
  CommandContext Context() {
    return {*client_, bed_.console, bed_.clock, bed_.pauser};
  }

  Service service_;
  BoundServer server_;
  std::unique_ptr<ControlClient> client_;
  CommandBed bed_{OutputFormat::kJson};
};

using OverGrpc = Over<FakeControlService>;

TEST_F(OverGrpc, ASubmissionArrivesWholeAndItsJobComesBack) {
  SubmitOptions options;
  options.spec.model.name = "lenet";
  options.spec.train.steps = 2;
  options.request_id = "r1";

  EXPECT_EQ(bed_.Code(SubmitCommand(Context(), options)), kExitOk);

  EXPECT_EQ(service_.submitted.request_id(), "r1");
  EXPECT_EQ(service_.submitted.spec().model().name(), "lenet");
  EXPECT_EQ(service_.submitted.spec().train().steps(), 2);
  const json job = bed_.Output();
  EXPECT_EQ(job["state"], "succeeded");
  EXPECT_EQ(job["loss"][1], json({{"step", 2}, {"value", 0.5}}));
  EXPECT_THAT(bed_.err.str(), HasSubstr("one thread a worker"));
}

TEST_F(OverGrpc, AnUnknownJobIsNotFoundByEveryCommand) {
  EXPECT_EQ(bed_.Code(ShowJobCommand(Context(), 8, false)), kExitNotFound);
  EXPECT_EQ(bed_.Code(WaitJobCommand(Context(), 8, {})), kExitNotFound);
  EXPECT_EQ(bed_.Code(DeleteJobCommand(Context(), 8)), kExitNotFound);
  EXPECT_EQ(bed_.Code(ExportJobCommand(Context(), FakeWeights().reader(),
                                       nullptr, {8, "/dev/null"})),
            kExitNotFound);

  EXPECT_EQ(bed_.out.str(), "");
  EXPECT_THAT(bed_.err.str(), HasSubstr("there is no job 8"));
}

TEST_F(OverGrpc, WorkersAreListedDrainedTakenBackAndForgotten) {
  const auto listed = client_->ListWorkers().value();
  const auto drained = client_->DrainWorker("w1", true);
  const auto back = client_->DrainWorker("w1", false);
  const auto forgotten = client_->ForgetWorker("w1");

  EXPECT_EQ(listed.workers(0).registration().name(), "w1");
  EXPECT_EQ(StateText(*drained), "drained");
  EXPECT_EQ(StateText(*back), "idle");
  EXPECT_EQ(forgotten->registration().name(), "w1");
  EXPECT_EQ(client_->DrainWorker("w9", true).status(),
            absl::NotFoundError("no worker 'w9'"));
}

TEST_F(OverGrpc, AProfileIsOrderedAndComesBack) {
  const auto started = client_
                           ->StartProfile(Parse<v1::StartProfileRequest>(R"(
        spec { model { name: "lenet" } train { micro_batch: 16 } }
        workers: "w1" links: true)"))
                           .value();
  const auto progress = client_->GetProfile(3).value();

  EXPECT_EQ(started.id(), 3);
  EXPECT_EQ(service_.profiled.spec().train().micro_batch(), 16);
  EXPECT_EQ(service_.profiled.workers(0), "w1");
  EXPECT_TRUE(service_.profiled.links());
  EXPECT_EQ(progress.profiles.at(0).layers.at(0).forward.wall, 0.5);
  EXPECT_EQ(progress.waiting.at(0), "w1 -> w2");
  EXPECT_EQ(progress.failed.at(0), "w3: gone");
  EXPECT_EQ(ExitCodeFor(client_->GetProfile(4).status()), kExitNotFound);
}

TEST_F(OverGrpc, MeasurementsAreKeptByTheirKeys) {
  const auto measurements = client_->ListMeasurements("lenet").value();

  EXPECT_EQ(service_.listed_model, "lenet");
  const ProfileKey key{"lenet", 16, "f32", 1, "w1"};
  ASSERT_TRUE(measurements.profiles.contains(key));
  EXPECT_EQ(measurements.links.at({"w1", "w2"}).bytes_per_second, 1e8);
}

TEST_F(OverGrpc, AMeasurementThatCannotBeOneIsRefused) {
  service_.layer_seconds = -1;

  const absl::Status refused = client_->ListMeasurements("").status();

  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("-1"));
}

TEST_F(OverGrpc, AnExportThatIsCutShortIsAnError) {
  service_.total_bytes = 7;

  EXPECT_EQ(bed_.Code(ExportJobCommand(Context(), FakeWeights().reader(),
                                       nullptr, {7, "/dev/null"})),
            kExitFailed);

  EXPECT_THAT(bed_.err.str(), HasSubstr("6 bytes instead of 7"));
}

// One deadline for all calls once ended an export over a slow link, and so did
// a link that broke before the first bytes came.
TEST_F(OverGrpc, AnExportGoesOnAfterACallThatBroke) {
  for (const int64_t at : {0, 3}) {
    service_.first_call_breaks_at = at;
    service_.offsets.clear();
    std::string text;

    const auto exported =
        client_->ExportWeights(7, [&](absl::string_view bytes) {
          text.append(bytes.data(), bytes.size());
          return absl::OkStatus();
        });

    EXPECT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(text, "abcdef");
    EXPECT_EQ(service_.offsets, (std::vector<int64_t>{0, at}));
  }
}

// It once waited for ever, whatever had become of the job.
TEST_F(OverGrpc, AnExportThatBringsNothingEnds) {
  service_.is_silent = true;
  ControlDeadlines deadlines;
  deadlines.export_weights = absl::Milliseconds(50);
  deadlines.silences = 4;
  const auto client =
      MakeControlClient(absl::StrCat("127.0.0.1:", server_.port), deadlines);
  for (const auto& [state, calls] :
       {std::pair(v1::JOB_STATE_RUNNING, 4), {v1::JOB_STATE_FAILED, 2}}) {
    service_.state = state;
    service_.offsets.clear();

    const absl::Status status =
        client
            ->ExportWeights(7,
                            [](absl::string_view) { return absl::OkStatus(); })
            .status();

    EXPECT_EQ(ExitCodeFor(status), kExitTimedOut) << status;
    EXPECT_THAT(
        status.message(),
        Says(absl::StrCat("job 7, which is ",
                          JobStateName(static_cast<v1::JobState>(state))),
             "'paceline job events 7'", "export again"));
    EXPECT_EQ(service_.offsets.size(), calls);
  }
}

TEST_F(OverGrpc, ACallThatTheCoordinatorDoesNotKnowNamesTheVersion) {
  EXPECT_EQ(bed_.Code(StopJobCommand(Context(), 7)), kExitFailed);

  EXPECT_THAT(bed_.err.str(), HasSubstr("update it or this program"));
}

// Such an end was once taken for a person's Ctrl-C.
TEST_F(OverGrpc, ACallThatAStoppingCoordinatorCancelsIsUnreachable) {
  ASSERT_TRUE(client_->SubmitJob({}).ok());
  service_.submit_status = grpc::Status::CANCELLED;  // as gRPC does by itself

  const absl::Status status = client_->SubmitJob({}).status();

  EXPECT_EQ(ExitCodeFor(status), kExitUnreachable) << status;
  EXPECT_THAT(status.message(), Says("it is stopping", "its jobs go on"));
}

TEST(GrpcControlClient, ARefusedConnectionSaysWhatToDo) {
  const Port port(/*listening=*/false);
  const auto client = MakeControlClient(port.address());

  const absl::Status status = client->ListWorkers().status();

  EXPECT_EQ(ExitCodeFor(status), kExitUnreachable);
  EXPECT_THAT(status.message(),
              Says(port.address(), "Connection refused", "paceline up"));
}

// Answers whatever comes as a web server answers what it does not know.
class WebServer {
 public:
  explicit WebServer(std::string answer)
      : answer_(std::move(answer)), thread_([this] { Serve(); }) {}
  ~WebServer() {
    shutdown(port_.socket(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const { return port_.address(); }

 private:
  void Serve() {
    for (;;) {
      const int peer = accept(port_.socket(), nullptr, nullptr);
      if (peer < 0) return;
      char request[4096];
      if (read(peer, request, sizeof(request)) > 0) {
        EXPECT_EQ(write(peer, answer_.data(), answer_.size()),
                  static_cast<ssize_t>(answer_.size()));
      }
      close(peer);
    }
  }

  const std::string answer_;
  const Port port_{/*listening=*/true};
  std::thread thread_;
};

TEST(GrpcControlClient, AWebServerIsNoCoordinatorOfAnotherVersion) {
  for (const char* status : {"404 Not Found", "400 Bad Request", "200 OK"}) {
    const WebServer server(
        absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: 0\r\n\r\n"));
    CommandBed bed(OutputFormat::kJson);
    const auto client = MakeControlClient(server.address());
    const CommandContext context = {*client, bed.console, bed.clock,
                                    bed.pauser};

    EXPECT_EQ(bed.Code(ListNodesCommand(context, false)), kExitUnreachable)
        << status;

    EXPECT_THAT(bed.err.str(),
                HasSubstr(absl::StrCat("what answers at ", server.address(),
                                       " is no Paceline coordinator")));
  }
}

TEST(Submit, EndsWithinFiveSecondsWhenTheCoordinatorIsDown) {
  // Where something listens, the kernel accepts and nobody answers: as if the
  // coordinator was stopped by SIGSTOP.
  for (const bool listening : {false, true}) {
    const Port port(listening);
    CommandBed bed(OutputFormat::kJson);
    const auto client = MakeControlClient(port.address());
    const SystemClock clock;
    SignalPauser pauser;
    const CommandContext context = {*client, bed.console, clock, pauser};
    const Instant begin = clock.Now();

    EXPECT_EQ(bed.Code(SubmitCommand(context, {})), kExitUnreachable);

    EXPECT_LT(clock.Now() - begin, absl::Seconds(5)) << listening;
    EXPECT_EQ(bed.out.str(), "");
    EXPECT_THAT(bed.err.str(), HasSubstr("--coordinator HOST:PORT"));
  }
}
TEST(GrpcLog, IsKeptOffTheTerminalUnlessAskedFor) {
  const auto logged = [] {
    SilenceGrpcLog();
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    testing::internal::CaptureStderr();
    gpr_log(GPR_ERROR, "subchannel");
    return testing::internal::GetCapturedStderr();
  };
  setenv("GRPC_VERBOSITY", "ERROR", 1);
  const std::string asked_for = logged();
  unsetenv("GRPC_VERBOSITY");

  EXPECT_THAT(asked_for, HasSubstr("subchannel"));
  EXPECT_EQ(logged(), "");
}

// Has five of everything, two on a page; and a job of 2,500 steps, with an
// evaluation before the first one and after each.
class PagedService final : public v1::Control::Service {
 public:
  grpc::Status ListJobs(grpc::ServerContext*,
                        const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    sizes.push_back(request->page_size());
    Page(*request, *response,
         [&](int64_t i) { response->add_jobs()->set_id(5 - i); });
    return grpc::Status::OK;
  }
  grpc::Status ListWorkers(grpc::ServerContext*,
                           const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override {
    response->set_version("1.2");
    Page(*request, *response,
         [&](int64_t i) { response->add_workers()->set_id(i); });
    return grpc::Status::OK;
  }
  grpc::Status GetProfile(grpc::ServerContext*,
                          const v1::GetProfileRequest* request,
                          v1::GetProfileResponse* response) override {
    Page(*request, *response,
         [&](int64_t i) { response->add_waiting(absl::StrCat(i)); });
    return grpc::Status::OK;
  }
  grpc::Status ListMeasurements(
      grpc::ServerContext*, const v1::ListMeasurementsRequest* request,
      v1::ListMeasurementsResponse* response) override {
    Page(*request, *response, [&](int64_t i) {
      v1::LinkMeasurement& link = *response->add_links();
      link.set_from(absl::StrCat("w", i));
      link.set_to("w9");
      link.set_bytes_per_second(1e8);
    });
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override {
    job->set_id(request->id());
    const int64_t after = request->after_step();
    const int64_t last = std::min<int64_t>(after + request->points(), 2500);
    if (after == 0) job->add_evaluations();
    for (int64_t step = after + 1; step <= last; ++step) {
      job->add_curve()->set_step(step);
      job->add_evaluations()->set_step(step);
    }
    if (request->in_order() && !repeats) return grpc::Status::OK;
    job->clear_evaluations();
    for (int64_t step = 1501; step <= 2500; ++step) {
      job->add_evaluations()->set_step(step);
    }
    return grpc::Status::OK;
  }

  bool repeats = false;  // a token that leads nowhere
  std::vector<int32_t> sizes;

 private:
  template <typename Request, typename Response>
  void Page(const Request& request, Response& response,
            const std::function<void(int64_t)>& add) {
    const int64_t first =
        request.page_token().empty() ? 0 : std::stoll(request.page_token());
    for (int64_t i = first; i < std::min<int64_t>(first + 2, 5); ++i) add(i);
    if (first + 2 < 5) response.set_next_page_token(absl::StrCat(first + 2));
    if (repeats) response.set_next_page_token("4");
  }
};

using OverPages = Over<PagedService>;

TEST_F(OverPages, EveryListComesWhole) {
  const auto jobs = client_->ListJobs(0).value();
  ASSERT_EQ(jobs.jobs_size(), 5);
  EXPECT_EQ(jobs.jobs(4).id(), 1);
  EXPECT_EQ(jobs.next_page_token(), "");
  EXPECT_EQ(client_->ListWorkers()->workers_size(), 5);
  EXPECT_EQ(client_->ListWorkers()->version(), "1.2");
  EXPECT_EQ(client_->GetProfile(3)->waiting.size(), 5u);
  EXPECT_EQ(client_->ListMeasurements("")->links.size(), 5u);
}

TEST_F(OverPages, OfAWholeJobAllStepsAndEvaluationsCome) {
  const v1::Job job = client_->GetWholeJob(7).value();

  EXPECT_EQ(job.id(), 7);
  ASSERT_EQ(job.curve_size(), 2500);
  ASSERT_EQ(job.evaluations_size(), 2501);
  for (int i = 0; i < 2500; ++i) {
    ASSERT_EQ(job.curve(i).step(), i + 1);
    ASSERT_EQ(job.evaluations(i).step(), i);
  }

  service_.repeats = true;  // as a coordinator that knows no pages
  EXPECT_EQ(client_->GetWholeJob(7)->evaluations_size(), 1000);
}

TEST_F(OverPages, ALimitAsksForNoMoreThanItNeeds) {
  EXPECT_EQ(client_->ListJobs(3)->jobs_size(), 3);
  EXPECT_EQ(service_.sizes, std::vector<int32_t>({3, 3}));
  EXPECT_EQ(client_->ListJobs(1)->jobs_size(), 1);
  EXPECT_EQ(service_.sizes.size(), 3u);
}

TEST_F(OverPages, ATokenThatComesAgainIsTheEnd) {
  service_.repeats = true;
  EXPECT_EQ(client_->ListWorkers()->workers_size(), 3);
}

}  // namespace
}  // namespace paceline
