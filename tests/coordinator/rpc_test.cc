// The coordinator over loopback, with a worker's stream written by hand.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/coordinator.h"
#include "coordinator/http.h"
#include "coordinator/job_text.h"
#include "coordinator/metrics.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/convert.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/store/file_weights_store.h"
#include "coordinator/ticker.h"
#include "core/base/clock.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/control.grpc.pb.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/coordinator/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// A whole coordinator without main().
class RpcTest : public testing::Test {
 protected:
  explicit RpcTest(absl::Duration registration = absl::Seconds(10))
      : weights_store_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, StoredState{}, store_, weights_store_,
                     clock_, metrics_),
        workers_(coordinator_, metrics_, registration),
        clients_(coordinator_, metrics_) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = StartServer(options, {&workers_, &clients_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = MakeChannel("127.0.0.1:" + std::to_string(server_.port));
    control_ = v1::Control::NewStub(channel_);
    stub_ = v1::Coordinator::NewStub(channel_);
    ticker_ = std::make_unique<Ticker>(absl::Milliseconds(20),
                                       [this] { coordinator_.Tick(); });
  }

  ~RpcTest() override {
    ticker_.reset();
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server->Wait();
    coordinator_.Stop();
    weights_store_.Stop();
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Control::Stub::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return ((*control_).*method)(&context, request, response);
  }

  int64_t Submit(const JobSpec& spec) {
    v1::SubmitJobResponse response;
    submitted_ =
        Call(&v1::Control::Stub::SubmitJob, SubmissionOf(spec), &response);
    return response.id();
  }

  v1::Job GetJob(int64_t id) {
    v1::GetJobRequest request;
    request.set_id(id);
    request.set_points(100);
    v1::Job job;
    EXPECT_TRUE(Call(&v1::Control::Stub::GetJob, request, &job).ok());
    return job;
  }

  v1::ListJobsResponse ListJobs() {
    v1::ListJobsResponse jobs;
    EXPECT_TRUE(Call(&v1::Control::Stub::ListJobs, {}, &jobs).ok());
    return jobs;
  }

  // From now on the store has no room.
  void FillDisk() {
    ticker_.reset();
    ASSERT_TRUE(coordinator_.Answers(absl::Seconds(5)));  // the loop is idle
    store_.FailWith(absl::ResourceExhaustedError("disk is full"));
  }

  // Asks until the job has ended; the test's own time limit is the deadline.
  v1::Job WaitForEnd(int64_t id) {
    for (;;) {
      v1::Job job = GetJob(id);
      if (job.state() > v1::JOB_STATE_RUNNING) return job;
      std::this_thread::yield();
    }
  }

  grpc::Status Upload(const v1::RunOrder& run, const SafetensorsLayout& layout,
                      v1::WeightsReceipt* receipt) {
    grpc::ClientContext context;
    auto writer = stub_->UploadWeights(&context, receipt);
    for (const TensorPlace& place : layout.tensors) {
      v1::WeightsPiece piece;
      piece.set_job(run.job());
      piece.set_attempt(run.attempt());
      piece.set_plan_version(run.plan_version());
      piece.set_tensor(place.name);
      piece.set_data(std::string(place.bytes, 'w'));
      if (!writer->Write(piece)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  TempFolder folder_;
  SystemClock clock_;
  MemoryStore store_;
  FileWeightsStore weights_store_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
  CoordinatorService workers_;
  ControlService clients_;
  BoundServer server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::unique_ptr<Ticker> ticker_;
  grpc::Status submitted_;
};

v1::WorkerMessage Hello(const std::string& name, uint64_t incarnation) {
  v1::WorkerMessage message;
  *message.mutable_registration() = WorkerNamed(name, incarnation);
  return message;
}

// A worker's end of Attach.
class FakeWorker {
 public:
  FakeWorker(v1::Coordinator::Stub& stub, const v1::WorkerMessage& hello)
      : stream_(stub.Attach(&context_)) {
    stream_->Write(hello);
  }
  ~FakeWorker() { Leave(); }

  // The next message; nothing when the stream has ended.
  std::optional<v1::CoordinatorMessage> Read() {
    v1::CoordinatorMessage message;
    if (!stream_->Read(&message)) return std::nullopt;
    return message;
  }
  // Reads on to the next order that has a run.
  v1::RunOrder ReadRun() {
    while (auto message = Read()) {
      if (message->order().has_run()) return message->order().run();
    }
    ADD_FAILURE() << "the stream ended before an order came";
    return {};
  }
  // Reads on to the next acknowledgement.
  int64_t ReadAck() {
    while (auto message = Read()) {
      if (message->has_ack()) return message->ack().sequence();
    }
    return -1;
  }
  void Beat(const v1::Heartbeat& heartbeat) {
    v1::WorkerMessage message;
    *message.mutable_heartbeat() = heartbeat;
    stream_->Write(message);
  }
  grpc::Status Finish() {
    finished_ = true;
    return stream_->Finish();
  }
  void Leave() {
    if (finished_) return;
    context_.TryCancel();
    Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>>
      stream_;
  bool finished_ = false;
};

v1::Heartbeat BeatOf(const v1::RunOrder& run, v1::RunState::Phase phase,
                     int64_t sequence) {
  v1::Heartbeat heartbeat;
  heartbeat.set_sequence(sequence);
  v1::RunState& state = *heartbeat.mutable_run();
  state.set_job(run.job());
  state.set_attempt(run.attempt());
  state.set_plan_version(run.plan_version());
  state.set_phase(phase);
  state.set_steps(60);
  return heartbeat;
}

TEST_F(RpcTest, WorkerIsWelcomedOrderedAcknowledgedAndItsWeightsExported) {
  FakeWorker worker(*stub_, Hello("a", 1));
  const auto welcome = worker.Read();
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->welcome().worker_id(), 1);
  EXPECT_EQ(welcome->welcome().heartbeat_period_ms(), 500);
  const int64_t job = Submit(SpecOf(1));
  const v1::RunOrder run = worker.ReadRun();
  EXPECT_EQ(run.job(), job);
  EXPECT_EQ(run.stages(0).address(), "a:7401");

  v1::Heartbeat beat = BeatOf(run, v1::RunState::PHASE_RUNNING, 1);
  v1::StepRecord& step = *beat.add_steps();
  step.set_step(1);
  step.set_loss(2.5);
  beat.add_logs()->set_text("hello");
  worker.Beat(beat);
  EXPECT_EQ(worker.ReadAck(), 1);
  EXPECT_EQ(GetJob(job).curve(0).loss(), 2.5);

  const SafetensorsLayout layout = *LayOut(*Describe(SpecOf(1)));
  v1::WeightsReceipt receipt;
  const grpc::Status uploaded = Upload(run, layout, &receipt);
  ASSERT_TRUE(uploaded.ok()) << uploaded.error_message();
  EXPECT_EQ(receipt.bytes() + std::ssize(layout.header), layout.file_bytes);
  worker.Beat(BeatOf(run, v1::RunState::PHASE_DONE, 2));
  const v1::Job ended = WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.why();
  EXPECT_EQ(ended.weights_sha256().size(), 64u);

  grpc::ClientContext context;
  v1::ExportWeightsRequest request;
  request.set_id(job);
  auto reader = control_->ExportWeights(&context, request);
  std::string exported;
  v1::WeightsChunk chunk;
  while (reader->Read(&chunk)) exported += chunk.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(std::ssize(exported), layout.file_bytes);
  EXPECT_EQ(exported.substr(0, layout.header.size()), layout.header);

  grpc::ClientContext rest;
  request.set_offset_bytes(layout.file_bytes - 5);
  auto last = control_->ExportWeights(&rest, request);
  ASSERT_TRUE(last->Read(&chunk));
  EXPECT_EQ(chunk.data(), "wwwww");
  EXPECT_EQ(chunk.total_bytes(), layout.file_bytes);
  EXPECT_TRUE(last->Finish().ok());
}

TEST_F(RpcTest, RegistrationThatMakesNoSenseIsRefused) {
  v1::WorkerMessage other_version = Hello("a", 1);
  other_version.mutable_registration()->set_protocol_version(kProtocolVersion +
                                                             1);
  const struct {
    v1::WorkerMessage hello;
    grpc::StatusCode code;
    const char* why;
  } kCases[] = {
      {other_version, grpc::StatusCode::UNIMPLEMENTED,
       "update the coordinator"},
      {Hello("../../etc", 1), grpc::StatusCode::INVALID_ARGUMENT, "name"},
      {v1::WorkerMessage(), grpc::StatusCode::INVALID_ARGUMENT, ""}};
  for (const auto& one : kCases) {
    FakeWorker worker(*stub_, one.hello);

    EXPECT_FALSE(worker.Read().has_value());

    const grpc::Status status = worker.Finish();
    EXPECT_EQ(status.error_code(), one.code);
    EXPECT_THAT(status.error_message(), HasSubstr(one.why));
  }
}

class ShortRegistrationTest : public RpcTest {
 protected:
  ShortRegistrationTest() : RpcTest(absl::Milliseconds(5)) {}
};

// It lived for ever.
TEST_F(ShortRegistrationTest, AttachThatNeverRegistersIsEnded) {
  grpc::ClientContext context;
  const auto stream = stub_->Attach(&context);

  v1::CoordinatorMessage message;
  EXPECT_FALSE(stream->Read(&message));

  const grpc::Status end = stream->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(end.error_message(), HasSubstr("no registration came within"));
}

TEST_F(RpcTest, HeartbeatThatMakesNoSenseEndsTheStream) {
  FakeWorker worker(*stub_, Hello("a", 1));
  v1::Heartbeat beat;
  beat.mutable_run()->set_job(-4);

  worker.Beat(beat);

  while (worker.Read().has_value()) {
  }
  EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcTest, NewerStreamEndsTheOlderOne) {
  FakeWorker first(*stub_, Hello("a", 1));
  first.Read();

  FakeWorker second(*stub_, Hello("a", 1));
  EXPECT_EQ(second.Read()->welcome().worker_id(), 1);

  while (first.Read().has_value()) {
  }
  EXPECT_EQ(first.Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(RpcTest, EmptyHostBecomesThePeers) {
  v1::WorkerMessage hello = Hello("a", 1);
  hello.mutable_registration()->set_address(":7401");
  FakeWorker worker(*stub_, hello);
  worker.Read();

  v1::ListWorkersResponse response;
  ASSERT_TRUE(Call(&v1::Control::Stub::ListWorkers, {}, &response).ok());

  ASSERT_EQ(response.workers_size(), 1);
  EXPECT_EQ(response.workers(0).registration().address(), "127.0.0.1:7401");
  EXPECT_EQ(response.workers(0).state(), v1::WORKER_STATE_IDLE);
}

TEST_F(RpcTest, WorkerIsDrainedAndTakenBackAndNotForgottenWhileItIsThere) {
  FakeWorker worker(*stub_, Hello("a", 1));
  worker.Read();
  const auto drain = [&](const std::string& name, bool undrain,
                         v1::Worker* answer) {
    v1::DrainWorkerRequest request;
    request.set_worker(name);
    request.set_undrain(undrain);
    return Call(&v1::Control::Stub::DrainWorker, request, answer).error_code();
  };
  v1::Worker drained, back;

  EXPECT_EQ(drain("a", false, &drained), grpc::StatusCode::OK);
  EXPECT_EQ(drain("1", true, &back), grpc::StatusCode::OK);
  EXPECT_TRUE(drained.drained());
  EXPECT_FALSE(back.drained());
  EXPECT_EQ(drain("b", false, &back), grpc::StatusCode::NOT_FOUND);

  v1::ForgetWorkerRequest forget;
  forget.set_worker("a");
  EXPECT_EQ(Call(&v1::Control::Stub::ForgetWorker, forget, &back).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(RpcTest, WeightsOfAnotherAttemptAreAborted) {
  v1::RunOrder run;
  run.set_job(9);
  v1::WeightsReceipt receipt;

  const grpc::Status status =
      Upload(run, *LayOut({{"a", DType::kF32, {2}}}, {}), &receipt);

  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(RpcTest, UnknownJobsAreNotFound) {
  v1::GetJobRequest request;
  request.set_id(7);
  v1::Job job;

  const grpc::Status status = Call(&v1::Control::Stub::GetJob, request, &job);

  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("paceline job list"));
}

TEST_F(RpcTest, ExportOfAJobWithoutWeightsIsRefused) {
  const int64_t job = Submit(SpecOf(1));
  grpc::ClientContext context;
  v1::ExportWeightsRequest request;
  request.set_id(job);
  auto reader = control_->ExportWeights(&context, request);
  v1::WeightsChunk chunk;

  EXPECT_FALSE(reader->Read(&chunk));

  EXPECT_EQ(reader->Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(RpcTest, DryRunStoresNothing) {
  v1::SubmitJobRequest request = SubmissionOf(SpecOf(1));
  request.set_dry_run(true);
  v1::SubmitJobResponse response;

  ASSERT_TRUE(Call(&v1::Control::Stub::SubmitJob, request, &response).ok());

  EXPECT_EQ(response.id(), 0);
  EXPECT_EQ(ListJobs().jobs_size(), 0);
}

TEST_F(RpcTest, AnswersOnALongJobAreOfBoundedSize) {
  FakeWorker worker(*stub_, Hello("a", 1));
  const int64_t job = Submit(SpecOf(1));
  v1::Heartbeat beat = BeatOf(worker.ReadRun(), v1::RunState::PHASE_RUNNING, 1);
  for (int64_t step = 1; step <= 1500; ++step) {
    v1::EvaluationRecord& evaluation = *beat.add_evaluations();
    evaluation.set_step(step);
    evaluation.set_samples(4);
  }
  worker.Beat(beat);
  ASSERT_EQ(worker.ReadAck(), 1);

  const v1::Job shown = GetJob(job);
  ASSERT_EQ(shown.evaluations_size(), 1000);
  EXPECT_EQ(shown.evaluations(0).step(), 501);
  EXPECT_EQ(shown.evaluations(999).step(), 1500);

  const v1::ListJobsResponse jobs = ListJobs();
  ASSERT_EQ(jobs.jobs_size(), 1);
  ASSERT_EQ(jobs.jobs(0).evaluations_size(), 1);
  EXPECT_EQ(jobs.jobs(0).evaluations(0).step(), 1500);

  v1::GetEventsRequest request;
  request.set_id(job);
  int events = 0;
  for (int of_page = -1; of_page != 0; events += of_page) {
    v1::GetEventsResponse page;
    ASSERT_TRUE(Call(&v1::Control::Stub::GetEvents, request, &page).ok());
    of_page = page.events_size();
    ASSERT_LE(of_page, 1000);
    if (of_page > 0) request.set_after(page.events(of_page - 1).sequence());
  }
  EXPECT_GT(events, 1500) << "one an evaluation, besides others";
}

TEST_F(RpcTest, SubmitToAFullDiskIsAnErrorAndNoJob) {
  FillDisk();

  EXPECT_EQ(Submit(SpecOf(1)), 0);

  EXPECT_EQ(submitted_.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ListJobs().jobs_size(), 0);
}

TEST_F(RpcTest, DeleteOnAFullDiskIsAnErrorAndLeavesTheJob) {
  const int64_t job = Submit(SpecOf(1));
  v1::StopJobRequest stop;
  stop.set_id(job);
  v1::Job stopped;
  ASSERT_TRUE(Call(&v1::Control::Stub::StopJob, stop, &stopped).ok());
  FillDisk();

  v1::DeleteJobRequest request;
  request.set_id(job);
  v1::DeleteJobResponse response;
  const grpc::Status deleted =
      Call(&v1::Control::Stub::DeleteJob, request, &response);

  EXPECT_EQ(deleted.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(deleted.error_message(), HasSubstr("still there"));
  EXPECT_EQ(GetJob(job).state(), v1::JOB_STATE_STOPPED);
  store_.FailWith(absl::OkStatus());
  coordinator_.Tick();
  ASSERT_TRUE(coordinator_.Answers(absl::Seconds(5)));
  EXPECT_EQ(GetJob(job).state(), v1::JOB_STATE_STOPPED);
}

TEST_F(RpcTest, FullDiskIsSaidOfTheJobAndCostsNoRecord) {
  FakeWorker worker(*stub_, Hello("a", 1));
  const int64_t job = Submit(SpecOf(1));
  const v1::RunOrder run = worker.ReadRun();
  FillDisk();
  v1::Heartbeat first = BeatOf(run, v1::RunState::PHASE_RUNNING, 1);
  first.add_steps()->set_step(1);
  worker.Beat(first);
  while (GetJob(job).why().empty()) std::this_thread::yield();

  EXPECT_THAT(GetJob(job).why(), HasSubstr("disk is full"));
  v1::GetEventsRequest request;
  request.set_id(job);
  v1::GetEventsResponse events;
  ASSERT_TRUE(Call(&v1::Control::Stub::GetEvents, request, &events).ok());
  EXPECT_EQ(events.events(events.events_size() - 1).kind(), "store");

  ASSERT_TRUE(coordinator_.Answers(absl::Seconds(5)));
  store_.FailWith(absl::OkStatus());
  worker.Beat(BeatOf(run, v1::RunState::PHASE_RUNNING, 2));
  EXPECT_EQ(worker.ReadAck(), 2);
  coordinator_.Tick();
  ASSERT_TRUE(coordinator_.Answers(absl::Seconds(5)));
  EXPECT_EQ(GetJob(job).why(), "");
  EXPECT_EQ(GetJob(job).curve_size(), 1);
}

TEST_F(RpcTest, LineThatIsSentAgainIsReadOnceUnderTheWorkersName) {
  FakeWorker worker(*stub_, Hello("a", 1));
  const int64_t job = Submit(SpecOf(1));
  v1::Heartbeat beat =
      BeatOf(worker.ReadRun(), v1::RunState::PHASE_PREPARING, 1);
  beat.add_logs()->set_text("one");
  beat.mutable_logs(0)->set_sequence(1);
  worker.Beat(beat);
  worker.ReadAck();
  beat.set_sequence(2);  // its acknowledgement was lost
  worker.Beat(beat);
  worker.ReadAck();

  v1::GetLogsRequest request;
  request.set_id(job);
  v1::GetLogsResponse response;
  ASSERT_TRUE(Call(&v1::Control::Stub::GetLogs, request, &response).ok());

  ASSERT_EQ(response.lines_size(), 1);
  EXPECT_EQ(response.lines(0).source(), "a");
  EXPECT_GT(response.last(), 0);
}

TEST(HostOfPeer, KnowsBothFamilies) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.7:4242"), "10.0.0.7");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:4242"), "[::1]");
  EXPECT_EQ(HostOfPeer("ipv6:[fe80::2]:1"), "[fe80::2]");
  EXPECT_EQ(HostOfPeer("unix:/tmp/x"), "");
}

// It was accepted, and its jobs failed later.
TEST(TakeRegistration, RefusesLoopbackFromAnotherMachine) {
  const auto take = [](const std::string& address, const std::string& peer) {
    v1::Registration registration = WorkerNamed("a", 1);
    registration.set_address(address);
    return TakeRegistration(peer, registration);
  };

  const absl::Status refused = take("127.0.0.1:7401", "ipv4:192.0.2.7:4242");

  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--listen 192.0.2.7:7401"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--advertise"));
  EXPECT_TRUE(take("127.0.0.1:7401", "ipv4:127.0.0.1:4242").ok());
  EXPECT_TRUE(take("127.0.0.1:7401", "ipv6:%5B::1%5D:4242").ok());
  EXPECT_TRUE(take(":7401", "ipv4:192.0.2.7:4242").ok());
}

TEST(ServiceDiscovery, ListsLiveWorkersAndTheCoordinator) {
  Mesh mesh;
  mesh.Attach("a", 1);
  mesh.Break(mesh.Attach("b", 2));
  mesh.Pass(500);

  EXPECT_EQ(
      ServiceDiscoveryJson(mesh.ViewWorkers(), "c:7480"),
      R"([{"targets":["c:7480"],"labels":{"job":"paceline-coordinator",)"
      R"("instance":"coordinator"}},{"targets":["a:7481"],"labels":{"job":)"
      R"("paceline-worker","instance":"a"}}])");
}

}  // namespace
}  // namespace paceline
