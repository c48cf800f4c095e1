// The coordinator over loopback, with a worker's stream written by hand.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "coordinator/coordinator.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/pieces.h"
#include "coordinator/rpc/trust_service.h"
#include "coordinator/store/file_weights_store.h"
#include "coordinator/watch/http.h"
#include "coordinator/watch/metrics.h"
#include "core/base/clock.h"
#include "core/os/files.h"
#include "core/os/thread.h"
#include "core/rpc/call_trust.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/enrol.h"
#include "core/rpc/status.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/control.grpc.pb.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/coordinator/checkpoint_files.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// A whole coordinator without main().
class RpcTest : public testing::Test {
 protected:
  explicit RpcTest(absl::Duration registration = absl::Seconds(10),
                   StoredState stored = {})
      : weights_store_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, std::move(stored), store_, weights_store_,
                     checkpoints_, clock_, metrics_),
        workers_(MakeCoordinatorService(coordinator_, metrics_, registration)),
        clients_(MakeControlService(coordinator_, metrics_)),
        pieces_(MakePieceService(coordinator_)),
        authority_(Authority::Open(folder_.path() + "/tls", absl::Hours(1),
                                   SystemClock().Today())
                       .value()),
        trust_(MakeTrustService(coordinator_, authority_.get(), metrics_)) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = StartServer(
        options, {workers_.get(), clients_.get(), pieces_.get(), trust_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = MakeChannel("127.0.0.1:" + std::to_string(server_.port));
    control_ = v1::Control::NewStub(channel_);
    stub_ = v1::Coordinator::NewStub(channel_);
    ticker_ = std::make_unique<Ticker>("ticker", absl::Milliseconds(20),
                                       [this] { coordinator_.Tick(); });
  }

  ~RpcTest() override {
    ticker_.reset();
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
    server_.server->Wait();
    coordinator_.Stop();
    weights_store_.Stop();
    checkpoints_.Stop();
  }

  using Control = v1::Control::Stub;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (Control::*method)(grpc::ClientContext*, const Request&,
                                      Response*),
      const Request& request = {}) {
    grpc::ClientContext context;
    Response response;
    const absl::Status status =
        FromGrpc(((*control_).*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  template <typename Request>
  static Request Of(int64_t id) {
    Request request;
    request.set_id(id);
    return request;
  }

  absl::StatusOr<v1::SubmitJobResponse> TrySubmit() {
    return Call(&Control::SubmitJob, SubmissionOf(SpecOf(1)));
  }
  int64_t Submit() { return TrySubmit()->id(); }
  v1::Job GetJob(int64_t id) {
    auto request = Of<v1::GetJobRequest>(id);
    request.set_points(100);
    return Call(&Control::GetJob, request).value();
  }
  v1::ListJobsResponse ListJobs() { return Call(&Control::ListJobs).value(); }

  // The bytes from `offset` on, of `total_bytes_`.
  absl::StatusOr<std::string> Export(int64_t job, int64_t offset = 0) {
    grpc::ClientContext context;
    auto request = Of<v1::ExportWeightsRequest>(job);
    request.set_offset_bytes(offset);
    const auto reader = control_->ExportWeights(&context, request);
    std::string exported;
    for (v1::WeightsChunk chunk; reader->Read(&chunk);) {
      exported += chunk.data();
      total_bytes_ = chunk.total_bytes();
    }
    const absl::Status end = FromGrpc(reader->Finish());
    if (!end.ok()) return end;
    return exported;
  }

  // From now on the store has no room.
  void FillDisk() {
    ticker_.reset();
    ASSERT_TRUE(coordinator_.Summary(absl::Seconds(60))
                    .has_value());  // the loop is idle
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

  absl::StatusOr<v1::WeightsReceipt> Upload(const v1::RunOrder& run,
                                            const SafetensorsLayout& layout) {
    grpc::ClientContext context;
    v1::WeightsReceipt receipt;
    auto writer = stub_->UploadWeights(&context, &receipt);
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
    const absl::Status end = FromGrpc(writer->Finish());
    if (!end.ok()) return end;
    return receipt;
  }

  TempFolder folder_;
  SystemClock clock_;
  MemoryStore store_;
  FileWeightsStore weights_store_;
  FakePieceFetcher fetcher_;
  FileCheckpointStore checkpoints_{folder_.path() + "/checkpoints", fetcher_};
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
  const std::unique_ptr<grpc::Service> workers_;
  const std::unique_ptr<grpc::Service> clients_;
  const std::unique_ptr<grpc::Service> pieces_;
  const std::unique_ptr<Authority> authority_;
  const std::unique_ptr<grpc::Service> trust_;
  BoundServer server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::unique_ptr<Ticker> ticker_;
  int64_t total_bytes_ = 0;
};

v1::WorkerMessage Hello(const std::string& name, uint64_t incarnation) {
  v1::WorkerMessage message;
  *message.mutable_registration() = WorkerNamed(name, incarnation);
  return message;
}

// A worker's end of Attach.
class FakeWorker {
 public:
  explicit FakeWorker(v1::Coordinator::Stub& stub,
                      const v1::WorkerMessage& hello = Hello("a", 1))
      : stream_(stub.Attach(&context_)) {
    stream_->Write(hello);
  }
  ~FakeWorker() {
    if (finished_) return;
    context_.TryCancel();
    Finish().IgnoreError();
  }

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
  // Reads to the end of the stream, and why it ended.
  absl::Status Finish() {
    while (Read().has_value()) {
    }
    finished_ = true;
    return FromGrpc(stream_->Finish());
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
  FakeWorker worker(*stub_);
  const auto welcome = worker.Read();
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->welcome().worker_id(), 1);
  EXPECT_EQ(welcome->welcome().heartbeat_period_ms(), 500);
  const int64_t job = Submit();
  const v1::RunOrder run = worker.ReadRun();
  EXPECT_EQ(run.job(), job);
  EXPECT_EQ(run.stages(0).address(), "a:7401");

  v1::Heartbeat beat = BeatOf(run, kRunning, 1);
  v1::StepRecord& step = *beat.add_steps();
  step.set_step(1);
  step.set_loss(2.5);
  beat.add_logs()->set_text("hello");
  worker.Beat(beat);
  EXPECT_EQ(worker.ReadAck(), 1);
  EXPECT_EQ(GetJob(job).curve(0).loss(), 2.5);

  const SafetensorsLayout layout = *LayOut(*Describe(SpecOf(1)));
  const auto receipt = Upload(run, layout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->bytes() + std::ssize(layout.header), layout.file_bytes);
  worker.Beat(BeatOf(run, kDone, 2));
  const v1::Job ended = WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.why();
  EXPECT_EQ(ended.weights_sha256().size(), 64u);

  const auto exported = Export(job);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(std::ssize(*exported), layout.file_bytes);
  EXPECT_EQ(exported->substr(0, layout.header.size()), layout.header);
  const auto rest = Export(job, layout.file_bytes - 5);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(*rest, "wwwww");
  EXPECT_EQ(total_bytes_, layout.file_bytes);
}

TEST(CheckProtocol, RefusesOnlyAcrossABreakAndSaysWhatToUpgrade) {
  for (const int spoken : {2, 3}) {
    EXPECT_TRUE(CheckProtocol(spoken, 2, 3).ok()) << spoken;
  }
  EXPECT_TRUE(CheckProtocol(0, 1, 3).ok()) << "before the field";

  EXPECT_THAT(CheckProtocol(4, 2, 3).message(),
              HasSubstr("protocol 4, this coordinator"));
  EXPECT_THAT(CheckProtocol(4, 2, 3).message(),
              HasSubstr("2 to 3: upgrade the coordinator"));
  EXPECT_THAT(CheckProtocol(0, 2, 2).message(),
              HasSubstr("2: upgrade the worker"));
}

TEST_F(RpcTest, AFieldOfANewerReleaseIsPassedOver) {
  v1::WorkerMessage hello = Hello("a", 1);
  v1::Registration& registration = *hello.mutable_registration();
  registration.GetReflection()
      ->MutableUnknownFields(&registration)
      ->AddVarint(12345, 1);
  FakeWorker worker(*stub_, hello);

  EXPECT_EQ(worker.Read()->welcome().worker_id(), 1);
}

TEST_F(RpcTest, RegistrationThatMakesNoSenseIsRefused) {
  v1::WorkerMessage other_version = Hello("a", 1);
  other_version.mutable_registration()->set_protocol_version(kProtocolVersion +
                                                             1);
  const struct {
    v1::WorkerMessage hello;
    absl::StatusCode code;
    const char* why;
  } kCases[] = {
      {other_version, absl::StatusCode::kUnimplemented,
       "upgrade the coordinator"},
      {Hello("../../etc", 1), absl::StatusCode::kInvalidArgument, "name"},
      {v1::WorkerMessage(), absl::StatusCode::kInvalidArgument, ""}};
  for (const auto& one : kCases) {
    FakeWorker worker(*stub_, one.hello);

    EXPECT_FALSE(worker.Read().has_value());

    const absl::Status status = worker.Finish();
    EXPECT_EQ(status.code(), one.code);
    EXPECT_THAT(status.message(), HasSubstr(one.why));
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

  const absl::Status end = FromGrpc(stream->Finish());
  EXPECT_TRUE(absl::IsDeadlineExceeded(end)) << end;
  EXPECT_THAT(end.message(), HasSubstr("no registration came within"));
}

TEST_F(RpcTest, HeartbeatThatMakesNoSenseEndsTheStream) {
  FakeWorker worker(*stub_);
  v1::Heartbeat beat;
  beat.mutable_run()->set_job(-4);

  worker.Beat(beat);

  EXPECT_TRUE(absl::IsInvalidArgument(worker.Finish()));
}

TEST_F(RpcTest, NewerStreamEndsTheOlderOne) {
  FakeWorker first(*stub_);
  first.Read();

  FakeWorker second(*stub_);
  EXPECT_EQ(second.Read()->welcome().worker_id(), 1);

  EXPECT_TRUE(absl::IsAborted(first.Finish()));
}

TEST_F(RpcTest, EmptyHostBecomesThePeers) {
  v1::WorkerMessage hello = Hello("a", 1);
  hello.mutable_registration()->set_address(":7401");
  FakeWorker worker(*stub_, hello);
  worker.Read();

  const v1::ListWorkersResponse response = *Call(&Control::ListWorkers);

  ASSERT_EQ(response.workers_size(), 1);
  EXPECT_EQ(response.workers(0).registration().address(), "127.0.0.1:7401");
  EXPECT_EQ(response.workers(0).state(), v1::WORKER_STATE_IDLE);
}

TEST_F(RpcTest, WorkerIsDrainedAndTakenBackAndNotForgottenWhileItIsThere) {
  FakeWorker worker(*stub_);
  worker.Read();
  const auto drain = [&](const std::string& name, bool undrain) {
    v1::DrainWorkerRequest request;
    request.set_worker(name);
    request.set_undrain(undrain);
    return Call(&Control::DrainWorker, request);
  };

  EXPECT_TRUE(drain("a", false)->drained());
  EXPECT_FALSE(drain("1", true)->drained());
  EXPECT_TRUE(absl::IsNotFound(drain("b", false).status()));

  v1::ForgetWorkerRequest forget;
  forget.set_worker("a");
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Call(&Control::ForgetWorker, forget).status()));
}

TEST_F(RpcTest, WeightsOfAnotherAttemptAreAborted) {
  v1::RunOrder run;
  run.set_job(9);

  const auto receipt = Upload(run, *LayOut({{"a", DType::kF32, {2}}}, {}));

  EXPECT_TRUE(absl::IsAborted(receipt.status())) << receipt.status();
}

// A worker hands over what is its own, over the connection on which it came.
TEST_F(RpcTest, WeightsOfAWorkerWithoutAStageAreRefused) {
  FakeWorker worker(*stub_);
  Submit();
  const v1::RunOrder run = worker.ReadRun();
  worker.Beat(BeatOf(run, kRunning, 1));
  EXPECT_EQ(worker.ReadAck(), 1);
  const SafetensorsLayout layout = *LayOut(*Describe(SpecOf(1)));
  stub_ = v1::Coordinator::NewStub(
      MakeChannel("127.0.0.1:" + std::to_string(server_.port)));

  // Nobody has attached over this one.
  EXPECT_TRUE(absl::IsUnavailable(Upload(run, layout).status()));
  FakeWorker other(*stub_, Hello("b", 2));
  ASSERT_TRUE(other.Read().has_value());
  const absl::Status refused = Upload(run, layout).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("worker b has no stage of job 1"));

  stub_ = v1::Coordinator::NewStub(channel_);
  EXPECT_TRUE(Upload(run, layout).ok());
}

// Unlike one to a full disk, which pauses the job.
TEST_F(RpcTest, AnUploadBesideTooManyOthersIsToComeAgain) {
  struct Other {
    std::unique_ptr<v1::Coordinator::Stub> stub;
    grpc::ClientContext context;
    v1::WeightsReceipt receipt;
    std::unique_ptr<grpc::ClientWriter<v1::WeightsPiece>> writer;
  };
  std::vector<Other> others(StreamLimit::kMostOfAHost);
  for (Other& other : others) {
    other.stub = v1::Coordinator::NewStub(
        MakeChannel("127.0.0.1:" + std::to_string(server_.port)));
    other.writer = other.stub->UploadWeights(&other.context, &other.receipt);
  }

  // Until all of them have come.
  SafetensorsLayout one;
  one.tensors.emplace_back().bytes = 1;
  absl::Status end;
  while (!absl::StrContains(end.message(), "at most 64")) {
    end = Upload({}, one).status();
  }

  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  for (Other& other : others) {
    other.context.TryCancel();
    other.writer->Finish();
  }
}

TEST_F(RpcTest, UnknownJobsAreNotFound) {
  const absl::Status status =
      Call(&Control::GetJob, Of<v1::GetJobRequest>(7)).status();

  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("paceline job list"));
}

TEST_F(RpcTest, ExportOfAJobWithoutWeightsIsRefused) {
  const absl::Status refused = Export(Submit()).status();

  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
}

// It kept its place among the exports of its host until the checkpoint came.
TEST_F(RpcTest, AnExportThatWaitsEndsWhenItsClientLeaves) {
  absl::Notification go_on;
  checkpoints_.Keep({JobId{99}, 1}, [&](const absl::Status&) {
    go_on.WaitForNotification();  // nothing is fetched before
  });
  FakeWorker worker(*stub_);
  worker.Read();  // it is welcome
  const int64_t job = Submit();
  v1::Heartbeat beat = BeatOf(worker.ReadRun(), kRunning, 1);
  v1::PiecesHeld::OfJob& held = *beat.mutable_pieces()->add_jobs();
  held.set_job(job);
  v1::PiecesHeld::HeldCut& cut = *held.add_cuts();
  *cut.mutable_cut() = ToProto(Cut{1, 10});
  cut.add_layers()->set_last(4);
  worker.Beat(beat);
  EXPECT_EQ(worker.ReadAck(), 1);
  grpc::ClientContext context;
  const auto request = Of<v1::ExportWeightsRequest>(job);
  const auto reader = control_->ExportWeights(&context, request);
  // It waits when its cut is pinned.
  while (const auto message = worker.Read()) {
    const v1::StandingOrder& order = message->order();
    if (order.keep_size() > 0 && order.keep(0).pins_size() > 0) break;
  }

  context.TryCancel();
  reader->Finish();

  while (!absl::StrContains(registry_.Text(),
                            R"(code="CANCELLED",method="ExportWeights")")) {
    std::this_thread::yield();
  }
  go_on.Notify();
  AwaitAnswer<absl::Status>([&](auto done) {
    checkpoints_.Keep({JobId{99}, 1}, done);
  }).IgnoreError();  // its thread needs `go_on` no more
}

TEST_F(RpcTest, DryRunStoresNothing) {
  v1::SubmitJobRequest request = SubmissionOf(SpecOf(1));
  request.set_dry_run(true);

  EXPECT_EQ(Call(&Control::SubmitJob, request).value().id(), 0);

  EXPECT_EQ(ListJobs().jobs_size(), 0);
}

TEST_F(RpcTest, AnswersOnALongJobAreOfBoundedSize) {
  FakeWorker worker(*stub_);
  JobSpec spec = SpecOf(1);
  spec.train.steps = 1500;
  const int64_t job = Call(&Control::SubmitJob, SubmissionOf(spec))->id();
  v1::Heartbeat beat = BeatOf(worker.ReadRun(), kRunning, 1);
  auto& unreadable = *beat.mutable_run()->mutable_unreadable();
  unreadable.mutable_test()->set_of(40);
  unreadable.mutable_test()->add_numbers(7);
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

  // All of them come page by page.
  auto in_order = Of<v1::GetJobRequest>(job);
  in_order.set_in_order(true);
  in_order.set_points(900);
  const v1::Job first = Call(&Control::GetJob, in_order).value();
  in_order.set_after_step(900);
  const v1::Job second = Call(&Control::GetJob, in_order).value();
  ASSERT_EQ(first.evaluations_size(), 900);
  EXPECT_EQ(first.evaluations(0).step(), 1);
  ASSERT_EQ(second.evaluations_size(), 600);
  EXPECT_EQ(second.evaluations(599).step(), 1500);
  in_order.set_points(-1);
  EXPECT_EQ(Call(&Control::GetJob, in_order)->evaluations_size(), 1);

  const v1::ListJobsResponse jobs = ListJobs();
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_FALSE(jobs.jobs(0).has_unreadable());
  EXPECT_TRUE(shown.has_unreadable());
  ASSERT_EQ(jobs.jobs(0).evaluations_size(), 1);
  EXPECT_EQ(jobs.jobs(0).evaluations(0).step(), 1500);

  auto request = Of<v1::GetEventsRequest>(job);
  int events = 0;
  for (int of_page = -1; of_page != 0; events += of_page) {
    const auto page = Call(&Control::GetEvents, request).value();
    of_page = page.events_size();
    ASSERT_LE(of_page, 1000);
    if (of_page > 0) request.set_after(page.events(of_page - 1).sequence());
  }
  EXPECT_GT(events, 1500) << "one an evaluation, besides others";
}

TEST_F(RpcTest, SubmitToAFullDiskIsAnErrorAndNoJob) {
  FillDisk();

  EXPECT_TRUE(absl::IsInternal(TrySubmit().status()));

  EXPECT_EQ(ListJobs().jobs_size(), 0);
}

TEST_F(RpcTest, DeleteOnAFullDiskIsAnErrorAndLeavesTheJob) {
  const int64_t job = Submit();
  ASSERT_TRUE(Call(&Control::StopJob, Of<v1::StopJobRequest>(job)).ok());
  FillDisk();

  const absl::Status deleted =
      Call(&Control::DeleteJob, Of<v1::DeleteJobRequest>(job)).status();

  EXPECT_TRUE(absl::IsInternal(deleted)) << deleted;
  EXPECT_THAT(deleted.message(), HasSubstr("still there"));
  EXPECT_EQ(GetJob(job).state(), v1::JOB_STATE_STOPPED);
  store_.FailWith(absl::OkStatus());
  coordinator_.Tick();
  ASSERT_TRUE(coordinator_.Summary(absl::Seconds(60)).has_value());
  EXPECT_EQ(GetJob(job).state(), v1::JOB_STATE_STOPPED);
}

TEST_F(RpcTest, FullDiskIsSaidOfTheJobAndCostsNoRecord) {
  FakeWorker worker(*stub_);
  const int64_t job = Submit();
  const v1::RunOrder run = worker.ReadRun();
  FillDisk();
  v1::Heartbeat first = BeatOf(run, kRunning, 1);
  first.add_steps()->set_step(1);
  worker.Beat(first);
  while (GetJob(job).why().empty()) std::this_thread::yield();

  EXPECT_THAT(GetJob(job).why(), HasSubstr("disk is full"));
  const v1::GetEventsResponse events =
      Call(&Control::GetEvents, Of<v1::GetEventsRequest>(job)).value();
  EXPECT_EQ(events.events().rbegin()->kind(), "store");

  ASSERT_TRUE(coordinator_.Summary(absl::Seconds(60)).has_value());
  store_.FailWith(absl::OkStatus());
  worker.Beat(BeatOf(run, kRunning, 2));
  EXPECT_EQ(worker.ReadAck(), 2);
  coordinator_.Tick();
  ASSERT_TRUE(coordinator_.Summary(absl::Seconds(60)).has_value());
  EXPECT_EQ(GetJob(job).why(), "");
  EXPECT_EQ(GetJob(job).curve_size(), 1);
}

// Job 3 has ended, with a checkpoint.
class PieceRequestTest : public RpcTest {
 protected:
  static constexpr Cut kCut{2, 20};

  static StoredState Stored() {
    StoredState stored;
    JobRecord& record = stored.jobs[JobId{3}];
    record.spec = SpecOf(1);
    record.job.set_id(3);
    record.job.set_state(v1::JOB_STATE_STOPPED);
    *record.job.add_checkpoints()->mutable_cut() = ToProto(kCut);
    return stored;
  }

  PieceRequestTest() : RpcTest(absl::Seconds(10), Stored()) {
    const JobSpec spec = SpecOf(1);
    const CheckpointId id{JobId{3}, kCut.step};
    CheckpointOrder order{
        id, {}, LayOutState(*Describe(spec), spec.train.optimizer).value(), {}};
    *order.manifest.mutable_cut() = ToProto(kCut);
    *order.manifest.mutable_spec() = ToProto(spec);
    layers_ = static_cast<int>(order.layout.layers.size());
    order.holders.assign(layers_, {{"a:1", {1}}});
    const auto fetched = AwaitAnswer<absl::StatusOr<v1::Checkpoint>>(
        [&](auto done) { checkpoints_.Fetch(order, done); });
    EXPECT_TRUE(fetched.ok()) << fetched.status();
    EXPECT_TRUE(AwaitAnswer<absl::Status>([&](auto done) {
                  checkpoints_.Keep(id, done);
                }).ok());
  }

  v1::PieceRequest AllLayers() const {
    v1::PieceRequest request;
    request.set_to(kCoordinatorProcess.incarnation.value);
    request.set_job(3);
    request.set_attempt(kCut.attempt);
    request.set_step(kCut.step);
    request.add_layers()->set_last(layers_);
    return request;
  }
  // Asks for all layers, but for what `change` does to that; how it ended.
  absl::StatusCode Ask(const std::function<void(v1::PieceRequest&)>& change =
                           [](auto&) {}) {
    v1::PieceRequest request = AllLayers();
    change(request);
    grpc::ClientContext context;
    const auto stub = v1::Stage::NewStub(channel_);
    const auto reader = stub->Pieces(&context, request);
    chunks_ = 0;
    for (v1::PieceChunk chunk; reader->Read(&chunk);) ++chunks_;
    return FromGrpc(reader->Finish()).code();
  }

  // Opens more streams of chunks than a host may have, while nothing is read
  // from the disk.  Returns when so many are refused and the others answered.
  template <typename Chunk, typename Open>
  void OpenTooMany(const Open& open) {
    absl::Notification read_on;
    checkpoints_.Check({JobId{99}, 1}, {}, [&](const absl::Status&) {
      read_on.WaitForNotification();
    });
    constexpr int kOver = 6;
    absl::BlockingCounter refused(kOver);
    absl::BlockingCounter answered(StreamLimit::kMostOfAHost);
    struct Asker : grpc::ClientReadReactor<Chunk> {
      void OnReadDone(bool ok) override {
        if (ok) this->StartRead(&chunk);
      }
      void OnDone(const grpc::Status& status) override {
        (status.ok() ? answered : refused)->DecrementCount();
      }
      absl::BlockingCounter* answered;
      absl::BlockingCounter* refused;
      grpc::ClientContext context;
      Chunk chunk;
    };
    std::shared_ptr<grpc::Channel> channel;
    std::vector<Asker> askers(StreamLimit::kMostOfAHost + kOver);
    for (size_t i = 0; i < askers.size(); ++i) {
      if (i % kMaxCallsAConnection == 0) {
        channel = MakeChannel("127.0.0.1:" + std::to_string(server_.port));
      }
      Asker& asker = askers[i];
      asker.answered = &answered;
      asker.refused = &refused;
      open(channel, &asker.context, &asker);
      asker.StartRead(&asker.chunk);
      asker.StartCall();
    }

    refused.Wait();
    read_on.Notify();
    answered.Wait();
  }

  int layers_ = 0;
  int chunks_ = 0;
};

// Each holds a chunk that its peer may never read.
TEST_F(PieceRequestTest, IsRefusedWhereTooManyAreOpen) {
  const v1::PieceRequest request = AllLayers();
  OpenTooMany<v1::PieceChunk>([&](auto channel, auto* context, auto* asker) {
    v1::Stage::NewStub(channel)->async()->Pieces(context, &request, asker);
  });
}

TEST_F(PieceRequestTest, ThatIsAnExportIsRefusedWhereTooManyAreOpen) {
  auto request = Of<v1::ExportWeightsRequest>(3);
  request.set_step(kCut.step);
  OpenTooMany<v1::WeightsChunk>([&](auto channel, auto* context, auto* asker) {
    v1::Control::NewStub(channel)->async()->ExportWeights(context, &request,
                                                          asker);
  });
}

TEST_F(PieceRequestTest, ThatCannotBeIsAnsweredWithAClearError) {
  using Code = absl::StatusCode;

  EXPECT_EQ(Ask(), Code::kOk);
  EXPECT_EQ(chunks_, layers_);
  EXPECT_EQ(Ask([](auto& r) { r.set_to(0); }), Code::kAborted);
  EXPECT_EQ(Ask([](auto& r) { r.set_to(7); }), Code::kAborted);
  EXPECT_EQ(Ask([](auto& r) { r.set_job(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_job(99); }), Code::kNotFound);
  EXPECT_EQ(Ask([](auto& r) { r.set_attempt(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_attempt(9); }), Code::kNotFound);
  EXPECT_EQ(Ask([](auto& r) { r.set_attempt(0); }), Code::kNotFound);
  EXPECT_EQ(Ask([](auto& r) { r.set_step(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_offset(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_offset(1 << 20); }),
            Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_offset(INT64_MAX); }),
            Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_step(INT64_MAX); }), Code::kNotFound);
  EXPECT_EQ(Ask([](auto& r) { r.clear_what(); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_follow(true); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.set_follow(false); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.clear_layers(); }), Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.mutable_layers(0)->set_first(-1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.mutable_layers(0)->set_last(0); }),
            Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) { r.mutable_layers(0)->set_last(INT32_MAX); }),
            Code::kInvalidArgument);
  EXPECT_EQ(Ask([](auto& r) {
              for (int i = 0; i < 9000; ++i) *r.add_layers() = r.layers(0);
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(chunks_, 0);
}

TEST_F(PieceRequestTest, ForMoreLayersThanThereAreGetsThoseFirst) {
  EXPECT_EQ(Ask([](auto& r) { r.mutable_layers(0)->set_last(4096); }),
            absl::StatusCode::kInvalidArgument);

  EXPECT_EQ(chunks_, layers_);
  EXPECT_EQ(GetJob(3).checkpoints_size(), 1) << "it is not damaged";
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
  EXPECT_THAT(refused.message(), HasSubstr("--listen 192.0.2.7:7401"));
  EXPECT_THAT(refused.message(), HasSubstr("--advertise"));
  EXPECT_TRUE(take("127.0.0.1:7401", "ipv4:127.0.0.1:4242").ok());
  EXPECT_TRUE(take("127.0.0.1:7401", "ipv6:%5B::1%5D:4242").ok());
  EXPECT_TRUE(take(":7401", "ipv4:192.0.2.7:4242").ok());
}

TEST(ServiceDiscovery, ListsLiveWorkersAndTheCoordinator) {
  Mesh mesh;
  mesh.Attach("a", 1);
  mesh.Break(mesh.Attach("b", 2));
  mesh.Attach("c", 3, [](v1::Registration& it) { it.set_http_tls(true); });
  mesh.Pass(500);

  EXPECT_EQ(
      ServiceDiscoveryJson(mesh.ViewWorkers(), "c:7480", false),
      R"([{"targets":["c:7480"],"labels":{"job":"paceline-coordinator",)"
      R"("instance":"coordinator"}},{"targets":["a:7481"],"labels":{"job":)"
      R"("paceline-worker","instance":"a"}},{"targets":["c:7481"],"labels":)"
      R"({"job":"paceline-worker","instance":"c","__scheme__":"https"}}])");
}

// --- certificates -----------------------------------------------------------

class TrustTest : public RpcTest {
 protected:
  TrustTest() {
    GetToken();
    join_.set_role("worker");
    join_.set_name("pi-1");
    join_.set_request(MakeSigningRequest(key_).value());
  }

  // A new one, for the next Join().
  void GetToken() {
    v1::CreateTokenRequest request;
    request.set_role("worker");
    const auto token = JoinTokenText::Parse(
        CallTrust(Address(), grpc::InsecureChannelCredentials(),
                  &v1::Trust::Stub::CreateToken, request)
            ->token());
    join_.set_token(absl::StrCat(token->id, ".", token->secret));
  }

  std::string Address() const {
    return "127.0.0.1:" + std::to_string(server_.port);
  }
  absl::StatusOr<v1::Certificate> Join(
      const std::function<void(v1::JoinRequest&)>& change = nullptr) {
    v1::JoinRequest request = join_;
    if (change) change(request);
    return CallTrust(Address(), grpc::InsecureChannelCredentials(),
                     &v1::Trust::Stub::Join, request);
  }

  const std::string key_ = MakeKey();
  v1::JoinRequest join_;
};

TEST_F(TrustTest, ATokenGivesOneHolderACertificateHoweverOftenItAsks) {
  const auto first = Join();
  const auto again = Join();
  const auto renamed = Join([](auto& join) { join.set_name("pi-2"); });

  ASSERT_TRUE(first.ok() && again.ok()) << first.status() << again.status();
  EXPECT_EQ(ReadCertificate(first->certificate())->identity,
            (Identity{Role::kWorker, "pi-1"}));
  EXPECT_TRUE(absl::IsPermissionDenied(renamed.status())) << renamed.status();
}

TEST_F(TrustTest, WhatCannotBeCostsNoUseAndIsNotKept) {
  const auto code =
      [this](const std::function<void(v1::JoinRequest&)>& change) {
        return Join(change).status().code();
      };
  using Code = absl::StatusCode;
  const std::string much(1 << 20, 'x');

  EXPECT_EQ(code([](auto& j) { j.set_role("root"); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& j) { j.set_name("a,URI:b"); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([&](auto& j) { j.set_request(much); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([&](auto& j) { j.set_request(much + j.request()); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([&](auto& j) { j.set_token(much); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& j) { j.set_role("coordinator"); }),
            Code::kPermissionDenied);
  EXPECT_EQ(code([](auto& j) { j.set_token("1234.5678"); }),
            Code::kPermissionDenied);

  EXPECT_TRUE(Join().ok());
}

TEST_F(TrustTest, ARevokedHolderThatJoinsAgainGetsALaterCertificate) {
  ASSERT_TRUE(Join().ok());
  v1::RevokeRequest request;
  request.set_role("worker");
  request.set_name("pi-1");
  const auto revoked = CallTrust(Address(), grpc::InsecureChannelCredentials(),
                                 &v1::Trust::Stub::Revoke, request);
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  const absl::Time until = absl::FromUnixMillis(revoked->unix_ms());
  EXPECT_EQ(RevokedUntil({Role::kWorker, "pi-1"}), until);

  EXPECT_TRUE(absl::IsPermissionDenied(Join().status())) << "with a used token";
  GetToken();
  const auto again = Join();

  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(ReadCertificate(again->certificate())->signed_at(), until);
}

TEST_F(TrustTest, RevokesNothingThatIsNoWorkerOrClient) {
  v1::RevokeRequest request;
  for (const auto& [role, name] :
       {std::pair("coordinator", "coordinator"), std::pair("worker", "a/b")}) {
    request.set_role(role);
    request.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(
        CallTrust(Address(), grpc::InsecureChannelCredentials(),
                  &v1::Trust::Stub::Revoke, request)
            .status()))
        << role;
  }
}

TEST_F(TrustTest, TheClientOnTheCoordinatorsHostGetsAnotherCertificate) {
  const std::string path = folder_.path() + "/tls/client/certificate.pem";
  const std::string before = ReadFile(path, 10'000).value();

  RevokeCertificates("client/root", SystemClock().Today());
  ASSERT_TRUE(authority_->RenewOwn(SystemClock().Today()).ok());

  EXPECT_NE(ReadFile(path, 10'000).value(), before);
  RevokeCertificates("client/root", absl::InfinitePast());
}

TEST_F(TrustTest, AnAuthorityThatHasLostAFileIsNotReplaced) {
  const std::string folder = folder_.path() + "/tls";
  const auto open = [&folder] {
    return Authority::Open(folder, absl::Hours(1), SystemClock().Today())
        .status();
  };
  const std::string key = ReadFile(folder + "/ca.key", 10'000).value();
  // Its own certificate is made anew.
  ASSERT_TRUE(WriteFileAtomically(folder + "/certificate.pem", "").ok());
  EXPECT_TRUE(open().ok()) << open();

  std::filesystem::remove(folder + "/ca.pem");

  EXPECT_TRUE(absl::IsInvalidArgument(open())) << open();
  EXPECT_THAT(open().message(), HasSubstr("ca.pem is missing"));
  EXPECT_EQ(ReadFile(folder + "/ca.key", 10'000).value(), key);
}

}  // namespace
}  // namespace paceline
