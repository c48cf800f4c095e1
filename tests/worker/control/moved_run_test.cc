// Pipelines that go on elsewhere: agents over real sockets whose runs stop, or
// are withdrawn, and begin again with pieces of other workers.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/control/await_beat.h"
#include "tests/worker/control/fake_pipeline.h"
#include "tests/worker/control/fake_run_factory.h"
#include "worker/control/agent.h"
#include "worker/transport/piece/piece_client.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr JobId kJob{4};
constexpr absl::Duration kLongestMove = absl::Seconds(60);
using Weights = std::map<std::string, std::vector<uint8_t>>;

// A gate whose verdict of one step comes only after the run was left.
class DeafGate final : public GateClient {
 public:
  DeafGate(std::shared_ptr<GateClient> gate, int64_t deaf_step)
      : gate_(std::move(gate)), deaf_step_(deaf_step) {}

  absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) override {
    absl::StatusOr<StepVerdict> verdict = gate_->Decide(reports);
    if (!verdict.ok() || verdict->step != deaf_step_) return verdict;
    cancelled_.WaitForNotification();
    return absl::CancelledError("cancelled");
  }
  void Cancel(absl::Status why) override {
    gate_->Cancel(std::move(why));
    if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
  }

 private:
  const std::shared_ptr<GateClient> gate_;
  const int64_t deaf_step_;
  absl::Notification cancelled_;
};

// Runs over the data plane; keeps what is uploaded.
class PlaneRunFactory final : public FakeRunFactory {
 public:
  explicit PlaneRunFactory(DataPlane& plane) : plane_(plane) {}

  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    PACELINE_ASSIGN_OR_RETURN(RunConnections connections, plane_.Open(wiring));
    if (deaf_step_.has_value() && wiring.fence.attempt == 1) {
      connections.gate =
          std::make_shared<DeafGate>(std::move(connections.gate), *deaf_step_);
    }
    return connections;
  }
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate) override {
    return plane_.OpenGate(fence, gate);
  }
  absl::Status UploadWeights(const Fence&, const std::vector<TensorPart>& parts,
                             const CancelToken&) override {
    absl::MutexLock lock(&mutex_);
    for (const TensorPart& part : parts) {
      std::vector<uint8_t>& whole = uploaded_[part.name];
      const auto end =
          static_cast<size_t>(part.offset_bytes + part.tensor.bytes());
      whole.resize(std::max(whole.size(), end));
      std::copy_n(part.tensor.data.get(), part.tensor.bytes(),
                  whole.begin() + part.offset_bytes);
    }
    return absl::OkStatus();
  }

  Weights uploaded() const {
    absl::MutexLock lock(&mutex_);
    return uploaded_;
  }

  std::optional<int64_t> deaf_step_;  // of the first attempt; counts from 0

 private:
  DataPlane& plane_;
  mutable absl::Mutex mutex_;
  Weights uploaded_ ABSL_GUARDED_BY(mutex_);
};

// A worker but for its control stream.
struct TestWorker {
  explicit TestWorker(int64_t number)
      : id{WorkerId{number}, Incarnation{static_cast<uint64_t>(1000 + number)}},
        plane({.incarnation = id.incarnation, .pieces = &pieces}),
        server(
            StartServer({.listen = "127.0.0.1:0"}, {plane.service()}).value()) {
    AgentOptions options;
    options.cpu_capability = "avx2";
    options.restart = [](const std::string&) {};
    options.pieces = &pieces;
    options.exchange = &exchange;
    agent = std::make_unique<Agent>(std::move(options), factory, clock);
    agent->OnWelcome(id.worker);
  }
  ~TestWorker() {
    agent.reset();
    exchange.Shutdown();
    plane.Shutdown();
    if (server.server != nullptr) server.server->Shutdown();
  }
  // As the end of the process does.
  void Die() {
    plane.Shutdown();
    server.server->Shutdown();
    server.server.reset();
  }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server.port);
  }

  const MemberId id;
  const SystemClock clock{};
  PieceStore pieces;
  DataPlane plane;
  BoundServer server;
  PlaneRunFactory factory{plane};
  PieceClient exchange{pieces};
  std::unique_ptr<Agent> agent;
};

// Which worker holds so many layers, in layer order.
using Cuts = std::vector<std::pair<int, int>>;  // worker, layers

class Mesh {
 public:
  Mesh(JobSpec spec, int workers) : spec_(std::move(spec)) {
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<TestWorker>(i));
    }
  }

  TestWorker& worker(int i) { return *workers_[i]; }

  RunOrder Order(const Cuts& cuts) {
    RunOrder order;
    order.fence = {kJob, ++attempt_, attempt_};
    order.spec = spec_;
    order.spec.pipeline.stages = static_cast<int32_t>(cuts.size());
    order.cpu_capability = "avx2";
    int layer = 0;
    for (const auto& [worker, layers] : cuts) {
      const TestWorker& holder = *workers_[worker];
      order.stages.push_back({static_cast<int32_t>(order.stages.size()),
                              {layer, layer + layers},
                              holder.id.worker,
                              absl::StrCat("w", worker),
                              holder.address()});
      layer += layers;
    }
    return order;
  }

  // A coordinator would say so in the same standing order.
  void Keep(KeepOrder keep) {
    for (const auto& worker : workers_) worker->agent->OnKeep(keep);
  }
  // Keeps what is at the floor or above, of one attempt.
  KeepOrder KeepFrom(std::optional<Cut> floor) {
    KeepOrder keep;
    keep.keep[kJob] = {floor, {{1, {}}}, {}};
    Keep(keep);
    return keep;
  }

  // Begins the order on its workers, and withdraws from the others.
  void Give(const RunOrder& order) {
    std::set<WorkerId> holders;
    for (const StagePlacement& stage : order.stages) {
      holders.insert(stage.worker);
    }
    for (const auto& worker : workers_) {
      worker->agent->OnOrder(holders.contains(worker->id.worker)
                                 ? std::optional(order)
                                 : std::nullopt);
    }
  }
  std::vector<v1::RunState> Run(const RunOrder& order) {
    Give(order);
    return Await(order, v1::RunState::PHASE_DONE);
  }

  // Until the order's workers are in that phase; their states.
  std::vector<v1::RunState> Await(const RunOrder& order,
                                  v1::RunState::Phase phase) {
    std::vector<v1::RunState> states;
    std::set<WorkerId> asked;
    for (const StagePlacement& stage : order.stages) {
      if (!asked.insert(stage.worker).second) continue;
      const v1::RunState run =
          AwaitBeat(*workers_[stage.worker.value]->agent,
                    [&](const v1::Heartbeat& beat) {
                      return beat.run().attempt() == order.fence.attempt &&
                             (beat.run().phase() == phase ||
                              beat.run().phase() == v1::RunState::PHASE_FAILED);
                    })
              .run();
      EXPECT_EQ(run.attempt(), order.fence.attempt);
      EXPECT_EQ(run.phase(), phase) << run.ShortDebugString();
      states.push_back(run);
    }
    return states;
  }

  // The order's workers handed these over.
  Weights Uploaded(const RunOrder& order) {
    Weights all;
    for (const StagePlacement& stage : order.stages) {
      all.merge(workers_[stage.worker.value]->factory.uploaded());
    }
    return all;
  }

  // All workers that hold pieces of the cut, as sources.
  std::vector<PieceSource> Sources(Cut cut) {
    std::vector<PieceSource> sources;
    for (const auto& worker : workers_) {
      if (worker->server.server == nullptr) continue;
      const auto held = worker->pieces.Holdings();
      const auto of_job = held.find(kJob);
      if (of_job == held.end() || !of_job->second.contains(cut)) continue;
      for (const LayerRange& layers : of_job->second.at(cut)) {
        sources.push_back({layers, worker->id, worker->address()});
      }
    }
    return sources;
  }

 private:
  const JobSpec spec_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  int64_t attempt_ = 0;
};

// Eight steps of four layers; AdamW and clipping, with a shorter last batch.
JobSpec SmallJob() {
  JobSpec spec = FourLayerSpec();
  spec.data.train_samples = 84;
  spec.data.test_samples = 10;
  spec.train.learning_rate = {0.01, "cosine", 3};
  spec.pipeline.schedule = "1f1b";
  return spec;
}

Weights Undisturbed(const JobSpec& spec, const Cuts& cuts) {
  Mesh mesh(spec, static_cast<int>(cuts.size()));
  const RunOrder order = mesh.Order(cuts);
  mesh.Run(order);
  return mesh.Uploaded(order);
}

// Moves after each of the first steps, and ends with the same bytes.
void ExpectToMove(const JobSpec& spec, const std::vector<Cuts>& cuts) {
  const Weights expected = Undisturbed(spec, cuts[0]);
  ASSERT_FALSE(expected.empty());
  Mesh mesh(spec, 5);
  Cut base;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const bool last = i + 1 == cuts.size();
    RunOrder order = mesh.Order(cuts[i]);
    order.base = base;
    if (base != Cut()) order.sources = mesh.Sources(base);
    order.stop_after_batch = !last;
    mesh.Give(order);
    const auto states = mesh.Await(
        order, last ? v1::RunState::PHASE_DONE : v1::RunState::PHASE_STOPPED);
    if (testing::Test::HasFailure()) return;
    if (last) {
      EXPECT_EQ(mesh.Uploaded(order), expected);
      return;
    }
    base = {order.fence.attempt, base.step + 1};
    for (const v1::RunState& state : states) {
      EXPECT_EQ(state.stopped_at(), base.step);
    }
  }
}

const std::vector<Cuts> kFourLayers = {{{0, 1}, {1, 1}, {2, 1}, {3, 1}},
                                       {{4, 3}, {0, 1}},
                                       {{2, 1}, {3, 3}},
                                       {{1, 4}},
                                       {{3, 2}, {4, 1}, {0, 1}}};

TEST(MovedRun, EndsWithTheSameBytesWhereverItStops) {
  ExpectToMove(SmallJob(), kFourLayers);
}

TEST(MovedRun, MovesMomentum) {
  JobSpec spec = SmallJob();
  spec.train.optimizer = {.name = "sgd", .momentum = 0.9};

  ExpectToMove(spec, kFourLayers);
}

TEST(MovedRun, MovesParametersThatTwoLayersShare) {
  ModelSpec model = DefaultModel("gpt");
  model.depth = 2;
  model.width = 4;
  model.heads = 2;
  JobSpec spec = SmallTokenJob(model, 6);
  spec.train.clip_norm = 1.0;
  spec.pipeline.schedule = "1f1b";

  ExpectToMove(spec, {{{0, 2}, {1, 2}, {2, 2}},
                      {{3, 6}},
                      {{4, 1}, {0, 2}, {1, 3}},
                      {{2, 3}, {3, 3}}});
}

TEST(MovedRun, InterleavesAsBefore) {
  JobSpec spec = SmallJob();
  spec.pipeline.schedule = "interleaved-1f1b";
  spec.train.micro_batch = 6;

  ExpectToMove(spec, {{{0, 1}, {1, 1}, {0, 1}, {1, 1}},
                      {{2, 1}, {3, 1}, {2, 1}, {3, 1}},
                      {{3, 1}, {0, 1}, {3, 1}, {0, 1}}});
}

TEST(MovedRun, GoesOnFromAMarkedStepWhenAWorkerIsLost) {
  JobSpec spec = SmallJob();
  spec.pipeline.snapshot_every = 4;
  const Weights expected = Undisturbed(spec, kFourLayers[0]);
  Mesh mesh(spec, 5);
  // The fifth worker keeps copies of what the fourth, which dies, deposits.
  KeepOrder keep = mesh.KeepFrom(Cut());
  keep.follow = {
      {kJob, 1, mesh.worker(3).id, mesh.worker(3).address(), {3, 4}}};
  mesh.worker(4).agent->OnKeep(keep);
  mesh.worker(0).agent->OnAck({});
  mesh.Give(mesh.Order(kFourLayers[0]));
  // The first stage waits for the floor, which never comes.
  Cut marked{1, 0};
  const Instant give_up = SteadyNow() + kLongestMove;
  while (mesh.Sources(marked).size() < 5 && SteadyNow() < give_up) {
    marked.step = marked.step % 7 + 1;
    mesh.worker(0).agent->OnAck({});
    mesh.worker(0).agent->AwaitChange(absl::Milliseconds(1));
  }

  mesh.worker(3).Die();
  RunOrder second = mesh.Order({{4, 2}, {0, 1}, {1, 1}});
  second.base = marked;
  second.sources = mesh.Sources(marked);
  mesh.Run(second);

  EXPECT_EQ(mesh.Uploaded(second), expected);
  // The restored step is deposited again, under the new attempt.
  EXPECT_NE(mesh.worker(4).pieces.Find(kJob, {{2, marked.step}, 1}), nullptr);
}

// Nobody computes its floor, which the run of 20 steps would wait for else.
TEST(MovedRun, WaitsForNoCoordinatorThatIsGoneOrDoesNotKnowTheFloor) {
  enum Why { kFloorUnknown, kIsGone, kIsJustBack };
  JobSpec spec = SmallJob();
  spec.train.epochs = 4;
  for (const Why why : {kFloorUnknown, kIsGone, kIsJustBack}) {
    SCOPED_TRACE(why);
    Mesh mesh(spec, 2);
    Agent& first = *mesh.worker(0).agent;
    if (why == kIsJustBack) {
      first.OnDetached();
      first.OnAttached();
    }
    mesh.KeepFrom(why == kFloorUnknown ? std::nullopt : std::optional(Cut()));
    first.OnAck({});
    if (why == kIsGone) first.OnDetached();
    const RunOrder order = mesh.Order({{0, 2}, {1, 2}});

    const Instant give_up = SteadyNow() + kLongestMove;
    mesh.Give(order);
    while (first.Heartbeat().heartbeat.run().phase() !=
               v1::RunState::PHASE_DONE &&
           SteadyNow() < give_up) {
      first.OnAck({});
      first.AwaitChange(absl::Milliseconds(1));
    }

    mesh.Await(order, v1::RunState::PHASE_DONE);
  }
}

// Steps 1 to 10 are all that a failure may cost, while the coordinator answers.
TEST(MovedRun, WaitsForTheFloorWhileTheCoordinatorAnswers) {
  JobSpec spec = SmallJob();
  spec.train.epochs = 4;
  Mesh mesh(spec, 2);
  KeepOrder keep = mesh.KeepFrom(Cut());
  const RunOrder order = mesh.Order({{0, 2}, {1, 2}});
  Agent& agent = *mesh.worker(0).agent;
  agent.OnAck({});
  mesh.Give(order);
  const Instant give_up = SteadyNow() + kLongestMove;
  const auto beat = [&agent] {
    const MarkedHeartbeat content = agent.Heartbeat();
    agent.OnAck(content.marks);
    agent.AwaitChange(absl::Milliseconds(5));
    return content.heartbeat.run();
  };
  while (beat().step() < 10 && SteadyNow() < give_up) {
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(beat().step(), 10);

  keep.keep[kJob].floor = Cut{1, 8};
  mesh.Keep(keep);
  mesh.Await(order, v1::RunState::PHASE_DONE);

  // Marked after the floor had reached the mark before, and at the end.
  const auto held = mesh.worker(1).pieces.Holdings();
  EXPECT_TRUE(held.at(kJob).contains({1, 14}));
  EXPECT_TRUE(held.at(kJob).contains({1, 16}));
}

// Eight stages have as many batches of one micro-batch on their way: the marked
// one is among them when the first stage would wait for its snapshot.
TEST(MovedRun, AStreamDoesNotWaitForASnapshotThatIsOnItsWay) {
  JobSpec spec = SmallJob();
  spec.model.hidden = {8, 8, 8, 8, 8, 8, 8};
  spec.train.batch = spec.train.micro_batch = 3;
  spec.train.epochs = 1;  // 28 steps
  spec.train.clip_norm = 0;
  spec.pipeline.schedule = "pipedream";
  Mesh mesh(spec, 8);
  KeepOrder keep = mesh.KeepFrom(Cut());
  Cuts cuts;
  for (int i = 0; i < 8; ++i) cuts.push_back({i, 1});
  const RunOrder order = mesh.Order(cuts);
  Agent& first = *mesh.worker(0).agent;
  first.OnAck({});
  mesh.Give(order);

  // The floor is what all have deposited.
  const Instant give_up = SteadyNow() + kLongestMove;
  v1::RunState run;
  while (run.phase() != v1::RunState::PHASE_DONE && SteadyNow() < give_up) {
    const MarkedHeartbeat content = first.Heartbeat();
    first.OnAck(content.marks);
    run = content.heartbeat.run();
    std::map<Cut, size_t> holders;
    for (int i = 0; i < 8; ++i) {
      const auto held = mesh.worker(i).pieces.Holdings();
      if (!held.contains(kJob)) continue;
      for (const auto& [cut, layers] : held.at(kJob)) ++holders[cut];
    }
    for (const auto& [cut, count] : holders) {
      if (count == 8) keep.keep[kJob].floor = cut;
    }
    mesh.Keep(keep);
    first.AwaitChange(absl::Milliseconds(5));
  }

  EXPECT_EQ(run.phase(), v1::RunState::PHASE_DONE) << run.ShortDebugString();
  EXPECT_EQ(run.step(), 28);
}

TEST(MovedRun, HandsTheWeightsOverWhereNothingIsLeftToRun) {
  const JobSpec spec = SmallJob();
  Mesh mesh(spec, 3);
  mesh.KeepFrom(std::nullopt);
  const RunOrder first = mesh.Order({{0, 2}, {1, 2}});
  mesh.Run(first);
  const Weights expected = mesh.Uploaded(first);

  RunOrder second = mesh.Order({{1, 1}, {2, 3}});
  second.base = {1, 8};
  second.sources = mesh.Sources(second.base);
  second.trained = true;
  mesh.Run(second);

  EXPECT_EQ(mesh.Uploaded(second), expected);
}

TEST(MovedRun, MakesAnEvaluationThatIsDueAtTheCutUnlessItWasMade) {
  JobSpec spec = SmallJob();
  for (const bool was_made : {false, true}) {
    Mesh mesh(spec, 3);
    mesh.KeepFrom(std::nullopt);
    const RunOrder first = mesh.Order({{0, 2}, {1, 2}});
    mesh.Run(first);
    RunOrder second = mesh.Order({{2, 4}});
    second.spec.train.epochs = 3;  // ends with an evaluation, too
    second.base = {1, 8};
    second.sources = mesh.Sources(second.base);
    second.evaluated = was_made;
    mesh.Give(second);

    std::set<int64_t> evaluated;
    AwaitBeat(*mesh.worker(2).agent, [&](const v1::Heartbeat& beat) {
      for (const auto& one : beat.evaluations()) evaluated.insert(one.step());
      return beat.run().phase() == v1::RunState::PHASE_DONE;
    });

    EXPECT_EQ(evaluated,
              was_made ? std::set<int64_t>({12}) : std::set<int64_t>({8, 12}));
  }
}

TEST(MovedRun, PredictsTheRestFromAnyMicroBatchOn) {
  JobSpec spec = SmallJob();
  spec.kind = kInferKind;
  spec.infer.micro_batch = 3;  // of ten samples
  spec.train = ForInference(spec.infer, spec.train.seed);
  const Weights whole = Undisturbed(spec, {{0, 2}, {1, 2}});
  Mesh mesh(spec, 2);
  mesh.Order({{0, 4}});
  RunOrder order = mesh.Order({{1, 1}, {0, 3}});
  order.base = {1, 2};

  const auto states = mesh.Run(order);

  ASSERT_THAT(states, SizeIs(2));
  ASSERT_FALSE(states[1].predicted().empty());
  EXPECT_EQ(states[1].predicted().rbegin()->through(), 4);
  EXPECT_EQ(states[1].predicted().rbegin()->labels(), 4) << "of this attempt";
  Weights expected = whole;
  for (auto& [name, bytes] : expected) {
    std::fill_n(bytes.begin(), 6 * bytes.size() / 10, 0);
  }
  EXPECT_EQ(mesh.Uploaded(order), expected);
}

// But for the end, which stands in for a worker that is lost after it.
TEST(MovedRun, CopiesNothingOnTheWayWhereNoSnapshotsAreWanted) {
  JobSpec spec = SmallJob();
  spec.train.epochs = 4;
  spec.pipeline.snapshot_every = 0;
  Mesh mesh(spec, 2);
  mesh.KeepFrom(Cut());
  mesh.worker(0).agent->OnAck({});
  const RunOrder order = mesh.Order({{0, 2}, {1, 2}});

  mesh.Run(order);

  EXPECT_THAT(mesh.worker(1).pieces.Holdings().at(kJob), SizeIs(1));
}

TEST(MovedRun, FailsWhereNoSourceIsLeft) {
  Mesh mesh(SmallJob(), 1);
  mesh.Order({{0, 4}});
  RunOrder order = mesh.Order({{0, 4}});
  order.base = {1, 5};
  mesh.Give(order);

  const v1::RunState run =
      mesh.Await(order, v1::RunState::PHASE_FAILED).front();

  EXPECT_EQ(run.error_code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(run.error_message(),
              HasSubstr("layer 0 of step 5 of attempt 1 of job 4"));
}

TEST(MovedRun, NeverBeginsAFenceThatItHasLeft) {
  Mesh mesh(SmallJob(), 1);
  const RunOrder order = mesh.Order({{0, 4}});
  mesh.Run(order);

  mesh.worker(0).agent->OnOrder(std::nullopt);
  mesh.Give(order);
  const v1::RunState run =
      mesh.Await(order, v1::RunState::PHASE_FAILED).front();

  EXPECT_EQ(run.error_code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_THAT(run.error_message(), HasSubstr("was left here before"));
}

// As one that is moved here after a later job has ended.
TEST(MovedRun, BeginsAnOlderJobAfterALaterOne) {
  Mesh mesh(SmallJob(), 1);
  mesh.Run(mesh.Order({{0, 4}}));

  mesh.worker(0).agent->OnOrder(std::nullopt);
  RunOrder older = mesh.Order({{0, 4}});
  older.fence.job = JobId{kJob.value - 1};
  mesh.Run(older);
}

TEST(MovedRun, EchoesAnOrderWhenWhatItWithdrewHasEnded) {
  Mesh mesh(SmallJob(), 1);
  Agent& agent = *mesh.worker(0).agent;
  const auto echo = [&agent] {
    const v1::OrderNumber said = agent.Heartbeat().heartbeat.echo();
    return OrderNumber{said.term(), said.n()};
  };
  const RunOrder order = mesh.Order({{0, 4}});
  agent.OnOrder(order, {2, 1});
  mesh.Await(order, v1::RunState::PHASE_DONE);
  EXPECT_EQ(echo(), (OrderNumber{2, 1}));

  agent.OnOrder(order, {2, 2});  // nothing is to be done
  EXPECT_EQ(echo(), (OrderNumber{2, 2}));
  agent.OnOrder(std::nullopt, {2, 3});
  const v1::Heartbeat beat = AwaitBeat(
      agent, [](const v1::Heartbeat& each) { return each.echo().n() == 3; });
  EXPECT_EQ(beat.echo().n(), 3);
  EXPECT_FALSE(beat.has_run());
}

TEST(MovedRun, SaysOnceWhatItHoldsAndAgainOnANewStream) {
  Mesh mesh(SmallJob(), 1);
  TestWorker& worker = mesh.worker(0);
  mesh.KeepFrom(Cut{1, 2});
  worker.agent->Heartbeat();

  ScatteredBytes nothing;
  worker.pieces.Deposit(
      kJob, {CopyPiece({{1, 5}, 0}, nothing), CopyPiece({{1, 5}, 1}, nothing)});
  const v1::Heartbeat said = worker.agent->Heartbeat().heartbeat;
  ASSERT_THAT(said.pieces().jobs(), SizeIs(1));
  const v1::PiecesHeld::OfJob& job = said.pieces().jobs(0);
  EXPECT_EQ(job.job(), kJob.value);
  EXPECT_EQ(job.floor().step(), 2);
  ASSERT_THAT(job.cuts(), SizeIs(1));
  EXPECT_EQ(job.cuts(0).cut().step(), 5);
  ASSERT_THAT(job.cuts(0).layers(), SizeIs(1));
  EXPECT_EQ(job.cuts(0).layers(0).last(), 2);

  EXPECT_FALSE(worker.agent->Heartbeat().heartbeat.has_pieces());
  worker.agent->OnAttached();
  EXPECT_TRUE(worker.agent->Heartbeat().heartbeat.has_pieces());
}

// --- Replicas that train ---

// The second stage has two replicas, on workers 1 and 2.
RunOrder OrderOfReplicas(Mesh& mesh) {
  RunOrder order = mesh.Order({{0, 2}, {1, 2}});
  StagePlacement second = order.stages.back();
  second.worker = mesh.worker(2).id.worker;
  second.address = mesh.worker(2).address();
  order.stages.push_back(second);
  order.routes = {RouteTable(), MakeRouteTable({1, 1})};
  return order;
}

// The verdict of the third step reaches all but worker 2, then the order is
// withdrawn.
struct ThirdStepInTheAir {
  ThirdStepInTheAir() {
    mesh.worker(2).factory.deaf_step_ = 2;
    mesh.KeepFrom(Cut());
    mesh.Give(OrderOfReplicas(mesh));
    for (const int worker : {0, 1}) {
      AwaitBeat(*mesh.worker(worker).agent, [](const v1::Heartbeat& beat) {
        return beat.run().step() >= 3;
      });
    }
    for (int i = 0; i < 3; ++i) mesh.worker(i).agent->OnOrder(std::nullopt);
    for (int i = 0; i < 3; ++i) kept.push_back(AwaitKept(i, i < 2 ? 3 : 2));
  }

  v1::KeptState AwaitKept(int worker, int64_t applied) {
    return AwaitBeat(*mesh.worker(worker).agent,
                     [&](const v1::Heartbeat& beat) {
                       return beat.has_kept() &&
                              beat.kept().applied() == applied;
                     })
        .kept();
  }
  Mesh mesh{SmallJob(), 3};
  std::vector<v1::KeptState> kept;  // [workers]
};

TEST(ReplicaRun, ALeaverKeepsWhatItAppliedAndTheSumThatItHolds) {
  const ThirdStepInTheAir air;

  for (const int worker : {0, 1}) {
    EXPECT_EQ(air.kept[worker].attempt(), 1);
    EXPECT_EQ(air.kept[worker].applied(), 3);
    EXPECT_EQ(air.kept[worker].held(), 0);
    EXPECT_EQ(air.kept[worker].verdict().step(), 2);
  }
  EXPECT_EQ(air.kept[2].applied(), 2);
  EXPECT_EQ(air.kept[2].held(), 3);
}

TEST(ReplicaRun, AHolderFinishesTheStepThatAnotherHasApplied) {
  RunOrder whole_order;
  const Weights expected = [&whole_order] {
    Mesh whole(SmallJob(), 3);
    whole_order = OrderOfReplicas(whole);
    whole.Run(whole_order);
    return whole.Uploaded(whole_order);
  }();
  ThirdStepInTheAir air;
  Mesh& mesh = air.mesh;

  KeepOrder keep = mesh.KeepFrom(Cut());
  keep.finish[kJob] = {1, 3, Taken<StepVerdict>(air.kept[1].verdict())};
  mesh.worker(2).agent->OnKeep(keep);
  v1::StepRecord record;
  const v1::Heartbeat finished =
      AwaitBeat(*mesh.worker(2).agent, [&](const v1::Heartbeat& beat) {
        for (const v1::StepRecord& step : beat.steps()) record = step;
        return beat.kept().applied() == 3;
      });

  EXPECT_EQ(finished.kept().held(), 0);
  EXPECT_EQ(record.step(), 3) << "its record is told";
  EXPECT_GT(record.learning_rate(), 0);
  for (const int layer : {2, 3}) {
    const Piece key{{1, 3}, layer};
    const PiecePtr applied = mesh.worker(1).pieces.Find(kJob, key);
    const PiecePtr finished_piece = mesh.worker(2).pieces.Find(kJob, key);
    ASSERT_TRUE(applied != nullptr && finished_piece != nullptr) << layer;
    EXPECT_TRUE(absl::c_equal(applied->bytes(), finished_piece->bytes()));
  }
  RunOrder second = OrderOfReplicas(mesh);
  second.base = {1, 3};
  second.sources = mesh.Sources(second.base);
  mesh.Run(second);
  EXPECT_EQ(mesh.Uploaded(second), expected);
}

TEST(ReplicaRun, AHolderDropsTheStepThatNobodyTellsOf) {
  ThirdStepInTheAir air;

  KeepOrder next = air.mesh.KeepFrom(Cut());
  next.keep[kJob].rows.push_back({2, {1, 2}});
  air.mesh.Keep(next);

  const v1::Heartbeat dropped =
      AwaitBeat(*air.mesh.worker(2).agent,
                [](const v1::Heartbeat& beat) { return !beat.has_kept(); });
  EXPECT_FALSE(dropped.has_kept());
  EXPECT_EQ(air.mesh.worker(2).pieces.Find(kJob, {{1, 3}, 2}), nullptr);
  EXPECT_NE(air.mesh.worker(2).pieces.Find(kJob, {{1, 2}, 2}), nullptr);
}

}  // namespace
}  // namespace paceline
