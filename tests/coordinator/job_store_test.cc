#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/store/file_system.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<SqliteStore> OpenSqlite(const std::string& path) {
  auto store = SqliteStore::Open(path);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

class JobStoreTest : public testing::Test {
 protected:
  void Commit(const StoreBatch& batch) {
    const absl::Status committed = store_->Commit(batch);
    EXPECT_TRUE(committed.ok()) << committed;
  }
  // Records of job 1.
  void CommitRecords(const StoreBatch::Records& records) {
    Commit({.records = {{JobId{1}, records}}});
  }

  const std::unique_ptr<SqliteStore> store_ = OpenSqlite(":memory:");
};

v1::JobEvent EventOf(const std::string& kind) {
  v1::JobEvent event;
  event.set_kind(kind);
  return event;
}

template <typename Records>
std::vector<int64_t> StepsOf(const Records& records) {
  std::vector<int64_t> steps;
  for (const auto& record : records) steps.push_back(record.step());
  return steps;
}

std::pair<Incarnation, v1::LogLine> LineOf(const std::string& text,
                                           int64_t sequence = 0,
                                           uint64_t incarnation = 0) {
  v1::LogLine line;
  line.set_text(text);
  line.set_sequence(sequence);
  return {Incarnation{incarnation}, line};
}

JobRecord FullRecord() {
  JobRecord record;
  record.spec = SpecOf(2);
  record.stages = {{{0, 2}, WorkerId{1}}, {{2, 5}, WorkerId{2}, 0.25}};
  v1::Job& job = record.job;
  job.set_id(3);
  job.set_request_id("r");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_why("because");
  job.set_evaluated_step(2);
  job.set_attempt(1);
  job.set_plan_version(2);
  v1::JobWorker& worker = *job.add_workers();
  worker.set_id(1);
  v1::RunState& run = *worker.mutable_run();
  run.set_phase(v1::RunState::PHASE_RUNNING);
  run.mutable_seconds()->set_forward(1.5);
  run.mutable_flow()->set_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_unreadable()->mutable_test()->add_numbers(7);
  job.add_stage_times()->set_seconds(3.5);
  job.mutable_estimate()->add_layer_seconds(0.5);
  job.set_total_samples(40);
  return record;
}

TEST_F(JobStoreTest, GivesBackWorkersAndJobsWhole) {
  const v1::Registration worker = WorkerNamed("a", 0xffffffffffffffffu);
  Commit({.durable = true,
          .workers = {{WorkerId{1}, worker}},
          .jobs = {{JobId{3}, FullRecord()}}});

  const absl::StatusOr<StoredState> state = store_->Load();

  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->next_job, JobId{4});
  EXPECT_EQ(state->workers.at(WorkerId{1}).DebugString(), worker.DebugString());
  const JobRecord& record = state->jobs.at(JobId{3});
  EXPECT_EQ(record.spec.pipeline.stages, 2);
  EXPECT_THAT(record.spec.model.hidden, ElementsAre(16, 16, 16));
  EXPECT_EQ(record.fence(), (Fence{JobId{3}, 1, 2}));
  ASSERT_EQ(record.stages.size(), 2u);
  EXPECT_EQ(record.stages[1].layers, (LayerRange{2, 5}));
  EXPECT_EQ(record.stages[1].worker, WorkerId{2});
  EXPECT_EQ(record.stages[1].share, 0.25);
  v1::Job expected = FullRecord().job;
  EXPECT_EQ(record.job.DebugString(), expected.DebugString());
}

// A view of two members, the second a joiner.
View ViewOfTwo(int64_t counter) {
  View view;
  view.id = {3, counter};
  view.members = {{{WorkerId{1}, {~uint64_t{0}}}, 0, 0.25},
                  {{WorkerId{2}, {22}}, 9, 1}};
  view.leveller = view.members[0].id;
  return view;
}

TEST_F(JobStoreTest, KeepsTheNewestViewOfEachJobAndTheHighestTerm) {
  Commit({.term = 3,
          .views = {{JobId{1}, {1, ViewOfTwo(1)}},
                    {JobId{2}, {1, ViewOfTwo(2)}}}});
  Commit({.durable = true,
          .views = {{JobId{1}, {2, ViewOfTwo(7)}}},
          .deleted = {JobId{2}}});

  const StoredState state = *store_->Load();

  EXPECT_EQ(state.term, 3);
  ASSERT_EQ(state.views.size(), 1u);
  EXPECT_EQ(state.views.at(JobId{1}).attempt, 2);
  EXPECT_EQ(state.views.at(JobId{1}).view, ViewOfTwo(7));
}

TEST_F(JobStoreTest, KeepsWhoWasTakenOutOfAGroupBesideItsView) {
  const std::map<WorkerId, Incarnation> excluded = {
      {WorkerId{3}, {~uint64_t{0}}}, {WorkerId{4}, {44}}};
  Commit({.views = {{JobId{1}, {1, ViewOfTwo(7), excluded, false, excluded}},
                    {JobId{2}, {1, ViewOfTwo(1), excluded, true}}}});
  Commit({.views = {{JobId{2}, {2, ViewOfTwo(1), {}, true}}}});

  const StoredState state = *store_->Load();

  EXPECT_EQ(state.views.at(JobId{1}).excluded, excluded);
  EXPECT_EQ(state.views.at(JobId{1}).distrusted, excluded);
  EXPECT_FALSE(state.views.at(JobId{1}).faults_are_spent);
  EXPECT_TRUE(state.views.at(JobId{2}).excluded.empty());
  EXPECT_TRUE(state.views.at(JobId{2}).faults_are_spent);
}

TEST_F(JobStoreTest, KeepsWhoIsDrainedUntilTakenBackOrForgotten) {
  Commit({.workers = {{WorkerId{1}, WorkerNamed("a", 1)},
                      {WorkerId{2}, WorkerNamed("b", 2)}},
          .drained = {{WorkerId{1}, true}, {WorkerId{2}, true}}});
  Commit({.drained = {{WorkerId{1}, false}, {WorkerId{3}, false}}});
  EXPECT_EQ(store_->Load()->drained, std::set<WorkerId>{WorkerId{2}});

  Commit({.forgotten = {WorkerId{2}}});

  EXPECT_EQ(store_->Load()->workers.size(), 1u);
  EXPECT_TRUE(store_->Load()->drained.empty());
}

TEST_F(JobStoreTest, KeepsWhoseCertificatesWereRevokedLast) {
  Commit({.revoked = {{"worker/a", 1000}, {"client/a", 2000}}});
  Commit({.revoked = {{"worker/a", 3000}}});

  EXPECT_THAT(store_->Load()->revoked,
              ElementsAre(testing::Pair("client/a", 2000),
                          testing::Pair("worker/a", 3000)));
}

TEST_F(JobStoreTest, KeepsWhichKeyANameBelongsToUntilItIsFree) {
  Commit({.keys = {{"a", "k1"}, {"b", "k2"}}});
  Commit({.keys = {{"a", "k3"}, {"b", ""}}});

  EXPECT_THAT(store_->Load()->keys, ElementsAre(testing::Pair("a", "k3")));
}

TEST_F(JobStoreTest, NumberOfADeletedJobIsNotUsedAgain) {
  Commit({.jobs = {{JobId{3}, FullRecord()}},
          .records = {{JobId{3}, {.steps = {StepOf(1, 1.0)}}}}});
  Commit({.deleted = {JobId{3}}});

  const absl::StatusOr<StoredState> state = store_->Load();

  EXPECT_TRUE(state->jobs.empty());
  EXPECT_EQ(state->next_job, JobId{4});
  EXPECT_TRUE(store_->Curve(JobId{3}, 0, 10)->points.empty());
}

TEST_F(JobStoreTest, CurveIsTakenEvenlyAndEndsWithTheNewest) {
  StoreBatch::Records records;
  for (int step = 1; step <= 100; ++step) {
    records.steps.push_back(StepOf(step, 1.0 / step));
    records.steps.back().set_skipped(step == 50);
  }
  CommitRecords(records);

  const auto curve = store_->Curve(JobId{1}, 0, 4);

  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_THAT(StepsOf(curve->points), ElementsAre(25, 50, 75, 100));
  EXPECT_TRUE(curve->points[1].skipped());
  EXPECT_EQ(store_->Curve(JobId{1}, 98, 10)->points.size(), 2u);
  EXPECT_TRUE(store_->Curve(JobId{1}, 0, 0)->points.empty());
  EXPECT_TRUE(store_->Curve(JobId{2}, 0, 10)->points.empty());
}

TEST_F(JobStoreTest, SameStepAgainReplacesAndNanSurvives) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const v1::StepRecord& step : {StepOf(1, 3.0), StepOf(1, nan, 6)}) {
    CommitRecords({.steps = {step}, .evaluations = {PartOf(1)}});
  }

  const std::vector<v1::StepRecord> curve =
      store_->Curve(JobId{1}, 0, 10)->points;

  ASSERT_EQ(curve.size(), 1u);
  EXPECT_TRUE(std::isnan(curve[0].loss()));
  EXPECT_EQ(curve[0].unix_ms(), 6);
  EXPECT_EQ(store_->Evaluations(JobId{1}, 10)->size(), 1u);
}

TEST_F(JobStoreTest, EvaluationsAreTheNewestByStep) {
  CommitRecords(
      {.evaluations = {PartOf(30), PartOf(10), PartOf(40), PartOf(20)}});
  Commit({.records = {{JobId{2}, {.evaluations = {PartOf(50)}}}}});
  const auto steps = [this](int64_t newest) {
    return StepsOf(*store_->Evaluations(JobId{1}, newest));
  };

  EXPECT_THAT(steps(1), ElementsAre(40));
  EXPECT_THAT(steps(3), ElementsAre(20, 30, 40));
  EXPECT_THAT(steps(9), ElementsAre(10, 20, 30, 40));
}

TEST_F(JobStoreTest, RowsComeInOrderAndBothKindsEndAtTheSameStep) {
  CommitRecords({.steps = {StepOf(1, 3.0), StepOf(2, 2.0), StepOf(4, 1.5),
                           StepOf(9, 1.0)},
                 .evaluations = {PartOf(0), PartOf(2), PartOf(3), PartOf(9)}});
  const auto rows = [this](int64_t after, int64_t limit) {
    return *store_->RowsAfter(JobId{1}, after, limit);
  };

  EXPECT_THAT(StepsOf(rows(0, 3).steps), ElementsAre(1, 2));
  EXPECT_THAT(StepsOf(rows(0, 3).evaluations), ElementsAre(0, 2, 3));
  EXPECT_THAT(StepsOf(rows(3, 3).steps), ElementsAre(4, 9));
  EXPECT_THAT(StepsOf(rows(3, 3).evaluations), ElementsAre(9));
  EXPECT_THAT(StepsOf(rows(0, 1).evaluations), ElementsAre(0));
  EXPECT_THAT(rows(0, 1).steps, testing::IsEmpty());
  EXPECT_THAT(StepsOf(rows(2, 2).steps), ElementsAre(4, 9));
  EXPECT_THAT(rows(9, 5).evaluations, testing::IsEmpty());
}

TEST_F(JobStoreTest, JobThatBeginsAgainKeepsNoStepOfBefore) {
  CommitRecords({.steps = {StepOf(1, 2.5), StepOf(2, 2.0)},
                 .evaluations = {PartOf(2)},
                 .events = {EventOf("kept")}});

  Commit({.restarted = {{JobId{1}, 0}},
          .records = {{JobId{1}, {.steps = {StepOf(1, 3.0)}}}}});

  const std::vector<v1::StepRecord> curve =
      store_->Curve(JobId{1}, 0, 10)->points;
  ASSERT_EQ(curve.size(), 1u);
  EXPECT_EQ(curve.front().loss(), 3.0);
  EXPECT_TRUE(store_->Evaluations(JobId{1}, 10)->empty());
  EXPECT_EQ(store_->Events(JobId{1}, 0, 10)->size(), 1u);
}

TEST_F(JobStoreTest, JobThatGoesOnFromAStepKeepsWhatWasBeforeIt) {
  CommitRecords({.steps = {StepOf(1, 2.5), StepOf(2, 2.0), StepOf(3, 1.5)},
                 .evaluations = {PartOf(0), PartOf(2), PartOf(3)}});

  Commit({.restarted = {{JobId{1}, 2}},
          .records = {{JobId{1}, {.steps = {StepOf(3, 1.0)}}}}});

  const std::vector<v1::StepRecord> curve =
      store_->Curve(JobId{1}, 0, 10)->points;
  EXPECT_THAT(StepsOf(curve), ElementsAre(1, 2, 3));
  EXPECT_EQ(curve.back().loss(), 1.0);
  EXPECT_THAT(StepsOf(*store_->Evaluations(JobId{1}, 10)), ElementsAre(0, 2));
}

TEST_F(JobStoreTest, EventsAndLogsGoOnFromASequence) {
  CommitRecords({.events = {EventOf("submitted"), EventOf("placed")},
                 .logs = {LineOf("one"), LineOf("two"), LineOf("three")}});

  const auto events = store_->Events(JobId{1}, 0, 10);
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(store_->Events(JobId{1}, 0, 1)->back().kind(), "submitted");
  const auto later = store_->Events(JobId{1}, (*events)[0].sequence(), 10);
  ASSERT_EQ(later->size(), 1u);
  EXPECT_EQ((*later)[0].kind(), "placed");

  const auto logs = store_->Logs(JobId{1}, 0, 2);
  ASSERT_EQ(logs->size(), 2u);
  const auto rest = store_->Logs(JobId{1}, (*logs)[1].sequence(), 10);
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ((*rest)[0].text(), "three");
}

TEST_F(JobStoreTest, KeepsTheNewestEventsOnly) {
  StoreBatch::Records records;
  for (int64_t i = 0; i < kEventsKept + 5; ++i) {
    records.events.push_back(EventOf(std::to_string(i)));
  }
  CommitRecords(records);
  CommitRecords({.events = {EventOf("newest")}});

  const auto events = store_->Events(JobId{1}, 0, 2 * kEventsKept);

  ASSERT_EQ(std::ssize(*events), kEventsKept);
  EXPECT_EQ(events->front().kind(), "6");
  EXPECT_EQ(events->back().kind(), "newest");
}

TEST_F(JobStoreTest, KeepsTheNewestLogLinesOnly) {
  StoreBatch::Records records;
  for (int64_t i = 0; i < kLogLinesKept + 5; ++i) {
    records.logs.push_back(LineOf(std::to_string(i)));
  }
  Commit({.records = {{JobId{1}, records},
                      {JobId{2}, {.logs = {LineOf("other")}}}}});

  const auto logs = store_->Logs(JobId{1}, 0, 2 * kLogLinesKept);

  ASSERT_EQ(std::ssize(*logs), kLogLinesKept);
  EXPECT_EQ(logs->front().text(), "5");
  EXPECT_EQ(store_->Logs(JobId{2}, 0, 10)->size(), 1u);
}

TEST_F(JobStoreTest, LogLineThatComesAgainIsStoredOnceIfItHasANumber) {
  const auto first = LineOf("one", 1, 7);
  const auto second = LineOf("two", 2, 7);
  const auto restarted = LineOf("three", 1, 8);
  CommitRecords({.logs = {first, second}});

  CommitRecords(
      {.logs = {first, second, restarted, LineOf("same"), LineOf("same")}});

  const auto logs = store_->Logs(JobId{1}, 0, 10);
  ASSERT_EQ(logs->size(), 5u);
  EXPECT_EQ((*logs)[2].text(), "three");
}

TEST_F(JobStoreTest, KeepsTheNewestMeasurementOfEveryKey) {
  DeviceProfile profile;
  profile.key = {"lenet() 1x28x28 -> 10", 16, "f32", 1, "a"};
  profile.cpu_capability = "avx2";
  profile.runs = 9;
  profile.cpu_share = 0.4;
  profile.quota_period_seconds = 0.005;
  profile.frame_seconds = 1e-4;
  LayerMeasurement layer;
  layer.name = "conv1";
  layer.kind = "conv2d";
  layer.forward = {1e-3, 1e-5, 9e-4};
  layer.backward = {2e-3, 2e-5, 1.9e-3};
  layer.update_seconds = 1e-6;
  layer.flops = 1e6;
  layer.output_bytes = 100;
  layer.parameter_bytes = 200;
  layer.kept_bytes = 300;
  profile.layers = {layer, layer};
  StoreBatch batch;
  batch.measurements.Put(profile);
  batch.measurements.Put(LinkMeasurement{"a", "b", 1e8, 1e-3, 7});
  Commit(batch);

  profile.layers[1].forward.wall = 5e-3;
  StoreBatch newer;
  newer.measurements.Put(profile);
  const LinkMeasurement link{"a", "b", 2e8, 1e-3, 8, 4e-9, 5e-9};
  newer.measurements.Put(link);
  Commit(newer);

  const auto state = store_->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->measurements.profiles.size(), 1u);
  EXPECT_EQ(state->measurements.profiles.begin()->second, profile);
  ASSERT_EQ(state->measurements.links.size(), 1u);
  EXPECT_EQ(state->measurements.links.begin()->second, link);
}

TEST(EvenlyTaken, AlwaysHasTheLast) {
  for (int64_t count = 0; count < 40; ++count) {
    for (int64_t points = 0; points < 45; ++points) {
      const std::vector<int64_t> taken = EvenlyTaken(count, points);

      ASSERT_EQ(std::ssize(taken), std::min(count, points));
      if (!taken.empty()) {
        EXPECT_EQ(taken.back(), count - 1);
      }
      for (size_t i = 1; i < taken.size(); ++i) {
        EXPECT_LT(taken[i - 1], taken[i]);
      }
    }
  }
}

class SqliteFile : public testing::Test {
 protected:
  // A store with job 3.
  void MakeStore() {
    ASSERT_TRUE(
        OpenSqlite(path_)->Commit({.jobs = {{JobId{3}, FullRecord()}}}).ok());
  }

  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/db";
};

TEST_F(SqliteFile, ReopenedFileHasWhatWasCommitted) {
  MakeStore();

  EXPECT_EQ(OpenSqlite(path_)->Load()->jobs.size(), 1u);
}

TEST_F(SqliteFile, RowThatIsNoMessageIsRefusedClearly) {
  OpenSqlite(path_);
  ASSERT_TRUE((*Database::Open(path_))
                  ->Execute("INSERT INTO jobs VALUES (3, x'ff')")
                  .ok());

  const absl::Status loaded = OpenSqlite(path_)->Load().status();

  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_THAT(loaded.message(), HasSubstr("job 3"));
}

TEST_F(SqliteFile, FileThatIsNoDatabaseIsRefusedClearly) {
  std::ofstream(path_) << std::string(8192, 'x');

  const auto store = SqliteStore::Open(path_);

  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss)
      << store.status();
  EXPECT_THAT(store.status().message(), HasSubstr(path_));
}

TEST_F(SqliteFile, DamagedPagesAreAnErrorAndNoCrash) {
  MakeStore();
  const auto bytes = std::filesystem::file_size(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t offset = 4096; offset < bytes; offset += 97) {
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('\x5a');
  }
  file.close();

  const auto store = SqliteStore::Open(path_);
  const absl::Status status =
      store.ok() ? (*store)->Load().status() : store.status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

// Versions that are not ours, and tables of another program.
TEST(SqliteStore, RefusesWhatItHasNotWrittenAndLeavesItUntouched) {
  struct Case {
    std::string sql;
    absl::StatusCode code;
    std::string says;
  };
  const Case cases[] = {
      {"PRAGMA user_version=99", absl::StatusCode::kInvalidArgument,
       "newer paceline-coordinator (schema 99"},
      {"PRAGMA user_version=12", absl::StatusCode::kInvalidArgument,
       "older paceline-coordinator (schema 12"},
      {"PRAGMA user_version=-1", absl::StatusCode::kDataLoss, "schema is -1"},
      {"PRAGMA user_version=-2000000000", absl::StatusCode::kDataLoss,
       "move the file away"},
      {"CREATE TABLE t (a INTEGER)", absl::StatusCode::kDataLoss,
       "none of paceline-coordinator's"}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.sql);
    const TempFolder folder;
    const std::string path = folder.path() + "/db";
    ASSERT_TRUE((*Database::Open(path))->Execute(each.sql).ok());
    const std::string before = ReadFile(path);

    const absl::Status status = SqliteStore::Open(path).status();

    EXPECT_EQ(status.code(), each.code) << status;
    EXPECT_THAT(status.message(), HasSubstr(each.says));
    EXPECT_EQ(ReadFile(path), before);
  }
}

TEST(StateDir, KnowsTheNewestJobThatLeftAFolder) {
  const TempFolder folder;
  const auto state = StateDir::Open(folder.path());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(NewestJobFolder((*state)->jobs()), 0) << "no jobs yet";

  for (const char* name : {"7", "12", "3", "notes", "99.bak"}) {
    std::filesystem::create_directories((*state)->jobs() + "/" + name);
  }

  EXPECT_EQ(NewestJobFolder((*state)->jobs()), 12);
}

TEST(StateDir, SecondCoordinatorOnTheSameFolderIsRefused) {
  const TempFolder folder;
  const std::string path = folder.path() + "/a/b";
  const auto first = StateDir::Open(path);
  ASSERT_TRUE(first.ok()) << first.status();

  const auto second = StateDir::Open(path);

  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("--state"));
}

// Checkpoints in a folder of their own, and two states.
class CheckpointDirTest : public testing::Test {
 protected:
  absl::StatusOr<OpenFile> Open(const StateDir& state, bool adopt = false) {
    return LockCheckpoints(path_, state, adopt);
  }
  static std::unique_ptr<StateDir> State(const std::string& path) {
    return StateDir::Open(path).value();
  }

  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/checkpoints";
  const std::string kept_ = path_ + "/4/step-20";
  const std::unique_ptr<StateDir> mine_ = State(folder_.path() + "/mine");
  const std::unique_ptr<StateDir> other_ = State(folder_.path() + "/other");
};

TEST_F(CheckpointDirTest, BelongsToOneStateAndKeepsItsFiles) {
  ASSERT_TRUE(Open(*mine_).ok());
  std::filesystem::create_directories(kept_);

  const absl::Status refused = Open(*other_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  for (const std::string& word :
       {mine_->path(), other_->path(), mine_->identity(), other_->identity(),
        std::string("--checkpoint-dir"), std::string("--adopt-checkpoints")}) {
    EXPECT_THAT(refused.message(), HasSubstr(word));
  }

  EXPECT_TRUE(Open(*other_, /*adopt=*/true).ok());
  EXPECT_TRUE(std::filesystem::exists(kept_));
  EXPECT_EQ(NewestJobFolder(path_), 4);  // the next job is the fifth
  EXPECT_TRUE(Open(*other_).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Open(*mine_).status()));
}

TEST_F(CheckpointDirTest, IsTakenByOneCoordinatorAtATime) {
  const auto first = Open(*mine_);
  ASSERT_TRUE(first.ok()) << first.status();

  for (const StateDir* state : {mine_.get(), other_.get()}) {
    const absl::Status second = Open(*state, /*adopt=*/true).status();
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(second.message(), HasSubstr("--checkpoint-dir"));
  }
}

TEST_F(CheckpointDirTest, KnowsItsStateAgainWhereverThatIs) {
  ASSERT_TRUE(Open(*mine_).ok());
  const std::string moved = folder_.path() + "/moved";
  std::filesystem::copy(mine_->path(), moved);

  const std::unique_ptr<StateDir> again = State(moved);

  EXPECT_EQ(again->identity(), mine_->identity());
  EXPECT_NE(again->identity(), other_->identity());
  EXPECT_TRUE(Open(*again).ok());
}

// A program that wrote no identity made it.
TEST_F(CheckpointDirTest, ThatBelongsToNobodyIsTakenWithItsFiles) {
  std::filesystem::create_directories(kept_);

  EXPECT_TRUE(Open(*mine_).ok());

  EXPECT_TRUE(std::filesystem::exists(kept_));
  EXPECT_TRUE(absl::IsPermissionDenied(Open(*other_).status()));
}

}  // namespace
}  // namespace paceline
