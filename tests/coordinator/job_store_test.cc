#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/state_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/coordinator/temp_folder.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<SqliteStore> OpenSqlite(const std::string& path) {
  auto store = SqliteStore::Open(path);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

class JobStoreTest : public testing::Test {
 protected:
  const std::unique_ptr<SqliteStore> store_ = OpenSqlite(":memory:");
};

JobRecord FullRecord() {
  JobRecord job;
  job.id = JobId{3};
  job.request_id = "r";
  job.spec = SpecOf(2);
  job.state = JobState::kRunning;
  job.why = "because";
  job.step = 4;
  job.steps = 60;
  job.evaluated_step = 2;
  job.recorded_step = 4;
  job.skipped_steps = 3;
  job.skipping_since = 2;
  job.attempt = 1;
  job.plan_version = 2;
  job.threads = 2;
  job.cpu_capability = "avx2";
  job.submitted_unix_ms = 10;
  job.started_unix_ms = 11;
  job.stages = {{{0, 2}, WorkerId{1}}, {{2, 5}, WorkerId{2}, 0.25}};
  job.workers = {{WorkerId{1}, "a", RunPhase::kRunning, {}},
                 {WorkerId{2}, "b", RunPhase::kNone, {}}};
  job.workers[0].seconds.forward = 1.5;
  job.workers[0].seconds.wall = 2.5;
  job.workers[0].peak_memory_bytes = int64_t{5} << 40;
  job.workers[0].predicted_memory_bytes = 4096;
  job.workers[1].let_go = true;
  return job;
}

TEST_F(JobStoreTest, GivesBackWorkersAndJobsWhole) {
  StoreBatch batch;
  batch.durable = true;
  batch.workers[WorkerId{1}] = WorkerNamed("a", 0xffffffffffffffffu);
  batch.jobs[JobId{3}] = FullRecord();
  ASSERT_TRUE(store_->Commit(batch).ok());

  const absl::StatusOr<StoredState> state = store_->Load();

  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->next_job, JobId{4});
  const Registration& worker = state->workers.at(WorkerId{1});
  EXPECT_EQ(worker.name, "a");
  EXPECT_EQ(worker.incarnation.value, 0xffffffffffffffffu);
  EXPECT_EQ(worker.http_address, "a:7481");
  const JobRecord& job = state->jobs.at(JobId{3});
  EXPECT_EQ(job.request_id, "r");
  EXPECT_EQ(job.spec.pipeline.stages, 2);
  EXPECT_THAT(job.spec.model.hidden, ElementsAre(16, 16, 16));
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.why, "because");
  EXPECT_EQ(job.evaluated_step, 2);
  EXPECT_EQ(job.recorded_step, 4);
  EXPECT_EQ(job.skipped_steps, 3);
  EXPECT_EQ(job.skipping_since, 2);
  EXPECT_EQ(job.fence(), (Fence{JobId{3}, 1, 2}));
  ASSERT_EQ(job.stages.size(), 2u);
  EXPECT_EQ(job.stages[1].layers, (LayerRange{2, 5}));
  EXPECT_EQ(job.stages[1].worker, WorkerId{2});
  EXPECT_EQ(job.stages[1].share, 0.25);
  ASSERT_EQ(job.workers.size(), 2u);
  EXPECT_EQ(job.workers[0].phase, RunPhase::kRunning);
  EXPECT_EQ(job.workers[0].seconds.forward, 1.5);
  EXPECT_EQ(job.workers[0].seconds.wall, 2.5);
  EXPECT_EQ(job.workers[0].peak_memory_bytes, int64_t{5} << 40);
  EXPECT_EQ(job.workers[0].predicted_memory_bytes, 4096);
  EXPECT_FALSE(job.workers[0].let_go);
  EXPECT_TRUE(job.workers[1].let_go);
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
  StoreBatch first;
  first.term = 3;
  first.views[JobId{1}] = {1, ViewOfTwo(1)};
  first.views[JobId{2}] = {1, ViewOfTwo(2)};
  ASSERT_TRUE(store_->Commit(first).ok());
  StoreBatch second;
  second.durable = true;
  View smaller = ViewOfTwo(5);
  smaller.members.pop_back();
  second.views[JobId{1}] = {2, smaller};
  second.deleted.push_back(JobId{2});
  ASSERT_TRUE(store_->Commit(second).ok());

  const StoredState state = *store_->Load();

  EXPECT_EQ(state.term, 3);
  ASSERT_EQ(state.views.size(), 1u);
  EXPECT_EQ(state.views.at(JobId{1}).attempt, 2);
  EXPECT_EQ(state.views.at(JobId{1}).view, smaller);
}

TEST_F(JobStoreTest, GivesBackAViewWithAllOfItsMembers) {
  StoreBatch batch;
  batch.views[JobId{1}] = {1, ViewOfTwo(7)};
  ASSERT_TRUE(store_->Commit(batch).ok());

  EXPECT_EQ(store_->Load()->views.at(JobId{1}).view, ViewOfTwo(7));
}

TEST_F(JobStoreTest, KeepsWhoWasTakenOutOfAGroupBesideItsView) {
  StoreBatch batch;
  batch.views[JobId{1}] = {
      1, ViewOfTwo(7), {{WorkerId{3}, {~uint64_t{0}}}, {WorkerId{4}, {44}}}};
  batch.views[JobId{2}] = {1, ViewOfTwo(1), {{WorkerId{3}, {33}}}, true};
  ASSERT_TRUE(store_->Commit(batch).ok());
  StoreBatch later;
  later.views[JobId{2}] = {2, ViewOfTwo(1), {}, true};
  ASSERT_TRUE(store_->Commit(later).ok());

  const StoredState state = *store_->Load();

  const KeptView& kept = state.views.at(JobId{1});
  EXPECT_EQ(kept.excluded,
            (std::map<WorkerId, Incarnation>{{WorkerId{3}, {~uint64_t{0}}},
                                             {WorkerId{4}, {44}}}));
  EXPECT_FALSE(kept.faults_are_spent);
  EXPECT_TRUE(state.views.at(JobId{2}).excluded.empty());
  EXPECT_TRUE(state.views.at(JobId{2}).faults_are_spent);
}

TEST_F(JobStoreTest, KeepsWhoIsDrainedUntilTakenBack) {
  StoreBatch batch;
  batch.drained = {{WorkerId{1}, true}, {WorkerId{2}, true}};
  ASSERT_TRUE(store_->Commit(batch).ok());
  StoreBatch back;
  back.drained = {{WorkerId{1}, false}, {WorkerId{3}, false}};
  ASSERT_TRUE(store_->Commit(back).ok());

  EXPECT_EQ(store_->Load()->drained, std::set<WorkerId>{WorkerId{2}});
}

TEST_F(JobStoreTest, ForgetsAWorkerWithItsDrainMark) {
  StoreBatch batch;
  batch.workers[WorkerId{1}].name = "a";
  batch.workers[WorkerId{2}].name = "b";
  batch.drained = {{WorkerId{2}, true}};
  ASSERT_TRUE(store_->Commit(batch).ok());
  StoreBatch forget;
  forget.forgotten = {WorkerId{2}};
  ASSERT_TRUE(store_->Commit(forget).ok());

  EXPECT_EQ(store_->Load()->workers.size(), 1u);
  EXPECT_TRUE(store_->Load()->drained.empty());
}

TEST_F(JobStoreTest, NumberOfADeletedJobIsNotUsedAgain) {
  StoreBatch batch;
  batch.jobs[JobId{3}] = FullRecord();
  batch.records[JobId{3}].steps = {{1, 1.0, 4, 0, 0, false, 5}};
  ASSERT_TRUE(store_->Commit(batch).ok());
  StoreBatch deletion;
  deletion.deleted = {JobId{3}};
  ASSERT_TRUE(store_->Commit(deletion).ok());

  const absl::StatusOr<StoredState> state = store_->Load();

  EXPECT_TRUE(state->jobs.empty());
  EXPECT_EQ(state->next_job, JobId{4});
  EXPECT_TRUE(store_->Curve(JobId{3}, 0, 10)->empty());
}

TEST_F(JobStoreTest, CurveIsTakenEvenlyAndEndsWithTheNewest) {
  StoreBatch batch;
  for (int step = 1; step <= 100; ++step) {
    batch.records[JobId{1}].steps.push_back(
        {step, 1.0 / step, 4, 0.1, 0.2, step == 50, 5});
  }
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto curve = store_->Curve(JobId{1}, 0, 4);

  ASSERT_TRUE(curve.ok()) << curve.status();
  std::vector<int64_t> steps;
  for (const StepRecord& record : *curve) steps.push_back(record.step);
  EXPECT_THAT(steps, ElementsAre(25, 50, 75, 100));
  EXPECT_TRUE((*curve)[1].skipped);
  EXPECT_EQ(store_->Curve(JobId{1}, 98, 10)->size(), 2u);
  EXPECT_TRUE(store_->Curve(JobId{1}, 0, 0)->empty());
  EXPECT_TRUE(store_->Curve(JobId{2}, 0, 10)->empty());
}

TEST_F(JobStoreTest, SameStepAgainReplacesAndNanSurvives) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StoreBatch batch;
  batch.records[JobId{1}].steps = {{1, 3.0, 4, 0, 0, false, 5}};
  batch.records[JobId{1}].evaluations = {{1, 3.0, 0.5, 4}};
  ASSERT_TRUE(store_->Commit(batch).ok());
  batch.records[JobId{1}].steps = {{1, nan, 4, 0, nan, true, 6}};
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto curve = store_->Curve(JobId{1}, 0, 10);

  ASSERT_EQ(curve->size(), 1u);
  EXPECT_TRUE(std::isnan((*curve)[0].loss));
  EXPECT_EQ((*curve)[0].unix_ms, 6);
  EXPECT_EQ(store_->Evaluations(JobId{1}, 10)->size(), 1u);
}

TEST_F(JobStoreTest, EvaluationsAreTheNewestByStep) {
  StoreBatch batch;
  for (const int64_t step : {30, 10, 40, 20}) {
    batch.records[JobId{1}].evaluations.push_back({step, 1.0, 0.5, 4});
  }
  batch.records[JobId{2}].evaluations = {{50, 1.0, 0.5, 4}};
  ASSERT_TRUE(store_->Commit(batch).ok());
  const auto steps = [this](int64_t newest) {
    const auto evaluations = store_->Evaluations(JobId{1}, newest);
    std::vector<int64_t> found;
    for (const EvaluationRecord& each : *evaluations) {
      found.push_back(each.step);
    }
    return found;
  };

  EXPECT_THAT(steps(1), ElementsAre(40));
  EXPECT_THAT(steps(3), ElementsAre(20, 30, 40));
  EXPECT_THAT(steps(9), ElementsAre(10, 20, 30, 40));
}

// Issue 22, defect 5.
TEST_F(JobStoreTest, JobThatBeginsAgainKeepsNoStepOfBefore) {
  StoreBatch before;
  before.jobs[JobId{3}] = FullRecord();
  before.records[JobId{3}].steps = {{1, 2.5, 4, 0, 0, false, 0},
                                    {2, 2.0, 4, 0, 0, false, 0}};
  before.records[JobId{3}].evaluations = {{2, 2.0, 0.5, 4}};
  before.records[JobId{3}].events = {{0, 5, "kept", ""}};
  ASSERT_TRUE(store_->Commit(before).ok());
  StoreBatch again;
  again.restarted = {JobId{3}};
  again.records[JobId{3}].steps = {{1, 3.0, 4, 0, 0, false, 0}};

  ASSERT_TRUE(store_->Commit(again).ok());

  const auto curve = store_->Curve(JobId{3}, 0, 10);
  ASSERT_EQ(curve->size(), 1u);
  EXPECT_EQ(curve->front().loss, 3.0);
  EXPECT_TRUE(store_->Evaluations(JobId{3}, 10)->empty());
  EXPECT_EQ(store_->Events(JobId{3}, 0, 10)->size(), 1u);
}

TEST_F(JobStoreTest, EventsAndLogsGoOnFromASequence) {
  StoreBatch batch;
  batch.records[JobId{1}].events = {{0, 1, "submitted", "x"},
                                    {0, 2, "placed", "y"}};
  batch.records[JobId{1}].logs = {{0, 1, "info", "a", "one"},
                                  {0, 2, "warn", "b", "two"},
                                  {0, 3, "info", "a", "three"}};
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto events = store_->Events(JobId{1}, 0, 10);
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(store_->Events(JobId{1}, 0, 1)->back().kind, "submitted");
  const auto later = store_->Events(JobId{1}, (*events)[0].sequence, 10);
  ASSERT_EQ(later->size(), 1u);
  EXPECT_EQ((*later)[0].kind, "placed");

  const auto logs = store_->Logs(JobId{1}, 0, 2);
  ASSERT_EQ(logs->size(), 2u);
  const auto rest = store_->Logs(JobId{1}, (*logs)[1].sequence, 10);
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ((*rest)[0].text, "three");
}

TEST_F(JobStoreTest, KeepsTheNewestLogLinesOnly) {
  StoreBatch batch;
  for (int64_t i = 0; i < kLogLinesKept + 5; ++i) {
    batch.records[JobId{1}].logs.push_back(
        {0, i, "info", "a", std::to_string(i)});
  }
  batch.records[JobId{2}].logs = {{0, 1, "info", "a", "other"}};
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto logs = store_->Logs(JobId{1}, 0, 2 * kLogLinesKept);

  ASSERT_EQ(std::ssize(*logs), kLogLinesKept);
  EXPECT_EQ(logs->front().text, "5");
  EXPECT_EQ(store_->Logs(JobId{2}, 0, 10)->size(), 1u);
}

TEST_F(JobStoreTest, LogLineThatComesAgainIsStoredOnce) {
  const LogRecord first = {0, 1, "info", "a", "one", 1, Incarnation{7}};
  const LogRecord second = {0, 2, "info", "a", "two", 2, Incarnation{7}};
  const LogRecord restarted = {0, 3, "info", "a", "three", 1, Incarnation{8}};
  StoreBatch batch;
  batch.records[JobId{1}].logs = {first, second};
  ASSERT_TRUE(store_->Commit(batch).ok());

  batch.records[JobId{1}].logs = {first, second, restarted};
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto logs = store_->Logs(JobId{1}, 0, 10);
  ASSERT_EQ(logs->size(), 3u);
  EXPECT_EQ((*logs)[2].text, "three");
}

TEST_F(JobStoreTest, LogLinesWithoutANumberAreAllKept) {
  StoreBatch batch;
  batch.records[JobId{1}].logs = {{0, 1, "info", "a", "same"},
                                  {0, 1, "info", "a", "same"}};

  ASSERT_TRUE(store_->Commit(batch).ok());

  EXPECT_EQ(store_->Logs(JobId{1}, 0, 10)->size(), 2u);
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
  ASSERT_TRUE(store_->Commit(batch).ok());

  profile.layers[1].forward.wall = 5e-3;
  StoreBatch newer;
  newer.measurements.Put(profile);
  const LinkMeasurement link{"a", "b", 2e8, 1e-3, 8, 4e-9, 5e-9};
  newer.measurements.Put(link);
  ASSERT_TRUE(store_->Commit(newer).ok());

  const auto state = store_->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->measurements.profiles.size(), 1u);
  EXPECT_EQ(state->measurements.profiles.begin()->second, profile);
  ASSERT_EQ(state->measurements.links.size(), 1u);
  EXPECT_EQ(state->measurements.links.begin()->second, link);
}

TEST_F(JobStoreTest, KeepsWhatAJobWasPredictedToTakeAndTakes) {
  JobRecord job = FullRecord();
  job.stages = {{{0, 2}, WorkerId{1}}, {{2, 5}, WorkerId{2}}};
  job.estimate = RunEstimate{
      0.5, 128, 0.25, {0.01, 0.02}, {0.008, 0.016}, "measured", true};
  job.stage_times = {{0, 3.5, 100, 90, 2, 180, 3, 4096}, {1, 4.5, 100}};
  job.step_seconds = 12.5;
  job.timed_steps = 25;
  ASSERT_FALSE(job.workers.empty());
  job.workers[0].flow =
      FlowTimes{10, 40, 1'000, 2'000, 1.5, 0.5, 0.25, 1,  2,  3,
                4,  5,  6,     7,     8,   9,   10,   11, 12, 13};
  StoreBatch batch;
  batch.jobs[job.id] = job;
  ASSERT_TRUE(store_->Commit(batch).ok());

  const auto state = store_->Load();

  ASSERT_TRUE(state.ok()) << state.status();
  const JobRecord& loaded = state->jobs.at(job.id);
  ASSERT_TRUE(loaded.estimate.has_value());
  EXPECT_EQ(loaded.estimate->step_seconds, 0.5);
  EXPECT_THAT(loaded.estimate->stage_seconds, ElementsAre(0.01, 0.02));
  EXPECT_THAT(loaded.estimate->layer_seconds, ElementsAre(0.008, 0.016));
  EXPECT_EQ(loaded.estimate->source, "measured");
  EXPECT_EQ(loaded.stage_times, job.stage_times);
  EXPECT_EQ(loaded.timed_steps, 25);
  EXPECT_EQ(loaded.workers[0].flow, job.workers[0].flow);
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

TEST(SqliteStore, ReopenedFileHasWhatWasCommitted) {
  const TempFolder folder;
  StoreBatch batch;
  batch.jobs[JobId{3}] = FullRecord();
  ASSERT_TRUE(OpenSqlite(folder.path() + "/db")->Commit(batch).ok());

  const auto state = OpenSqlite(folder.path() + "/db")->Load();

  EXPECT_EQ(state->jobs.size(), 1u);
}

TEST(SqliteStore, TakesTimesThatAreNoNumbers) {
  StoreBatch batch;
  JobRecord& job = batch.jobs[JobId{3}] = FullRecord();
  FlowTimes& flow = job.workers[0].flow.emplace();
  flow.micro_batches = 7;
  flow.loss = std::numeric_limits<double>::quiet_NaN();
  const auto store = OpenSqlite(":memory:");

  const absl::Status committed = store->Commit(batch);

  ASSERT_TRUE(committed.ok()) << committed;
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  const JobRecord& loaded = state->jobs.at(JobId{3});
  ASSERT_TRUE(loaded.workers[0].flow.has_value());
  EXPECT_EQ(loaded.workers[0].flow->micro_batches, 7);
  EXPECT_TRUE(std::isnan(loaded.workers[0].flow->loss));
}

TEST(SqliteStore, RowThatIsNoMessageIsRefusedClearly) {
  const TempFolder folder;
  const std::string path = folder.path() + "/db";
  OpenSqlite(path);
  ASSERT_TRUE((*Database::Open(path))
                  ->Execute("INSERT INTO jobs VALUES (3, x'ff')")
                  .ok());

  const absl::Status loaded = OpenSqlite(path)->Load().status();

  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("job 3"));
}

TEST(SqliteStore, FileThatIsNoDatabaseIsRefusedClearly) {
  const TempFolder folder;
  const std::string path = folder.path() + "/db";
  std::ofstream(path) << std::string(8192, 'x');

  const auto store = SqliteStore::Open(path);

  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss)
      << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path));
}

TEST(SqliteStore, DamagedPagesAreAnErrorAndNoCrash) {
  const TempFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = OpenSqlite(path);
    StoreBatch batch;
    batch.jobs[JobId{3}] = FullRecord();
    ASSERT_TRUE(store->Commit(batch).ok());
  }
  const auto bytes = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t offset = 4096; offset < bytes; offset += 97) {
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('\x5a');
  }
  file.close();

  const auto store = SqliteStore::Open(path);

  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss)
      << store.status();
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Versions that are not ours, and tables of another program.
TEST(SqliteStore, RefusesWhatItHasNotWrittenAndLeavesItUntouched) {
  struct Case {
    std::string sql;
    absl::StatusCode code;
    std::string says;
  };
  const Case cases[] = {
      {"PRAGMA user_version=99", absl::StatusCode::kFailedPrecondition,
       "newer paceline-coordinator (schema 99"},
      {"PRAGMA user_version=12", absl::StatusCode::kFailedPrecondition,
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
    const std::string before = ContentOf(path);

    const absl::Status status = SqliteStore::Open(path).status();

    EXPECT_EQ(status.code(), each.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.says));
    EXPECT_EQ(ContentOf(path), before);
  }
}

TEST(StateDir, SecondCoordinatorOnTheSameFolderIsRefused) {
  const TempFolder folder;
  const std::string path = folder.path() + "/a/b";
  const auto first = StateDir::Open(path);
  ASSERT_TRUE(first.ok()) << first.status();

  const auto second = StateDir::Open(path);

  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--state"));
}

}  // namespace
}  // namespace paceline
