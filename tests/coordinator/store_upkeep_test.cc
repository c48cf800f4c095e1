// The store in a long life: curves are thinned, jobs go bit by bit, and a start
// reads no more than it needs.
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr JobId kJob{1};
constexpr int64_t kAllPoints = 1'000'000;

JobRecord JobOf(int64_t id, v1::JobState state, int64_t ended = 0) {
  JobRecord record;
  record.spec = SpecOf(1);
  record.job.set_id(id);
  record.job.set_state(state);
  record.job.set_ended_unix_ms(ended);
  record.job.set_request_id(absl::StrCat("request-", id));
  return record;
}

TEST(CurveStride, IsTheLeastThatLeavesFewEnough) {
  for (const int64_t first : {1, 777}) {
    for (int64_t steps = 1; steps < 100'000'000; steps += 1 + steps / 7) {
      const int64_t newest = first + steps - 1;
      const int64_t stride = CurveStride(first, newest);
      const int64_t older = std::max<int64_t>(0, steps - kWholeSteps);
      const auto left = [older](int64_t of) { return (older + of - 1) / of; };
      EXPECT_LE(left(stride), kOlderSteps) << newest;
      EXPECT_EQ(stride & (stride - 1), 0) << newest;
      if (stride > 1) {
        EXPECT_GT(left(stride / 2), kOlderSteps) << newest;
      }
    }
  }
}

class StoreUpkeep : public testing::Test {
 protected:
  void Open() {
    store_.reset();
    auto store = SqliteStore::Open(path_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Commit(const StoreBatch& batch) {
    const absl::Status committed = store_->Commit(batch);
    ASSERT_TRUE(committed.ok()) << committed;
  }
  // Steps of a job, a thousand in a transaction, with an evaluation each 500.
  void Train(int64_t first, int64_t last, bool upkeep = true,
             JobId job = kJob) {
    for (int64_t step = first; step <= last;) {
      StoreBatch::Records records;
      for (int i = 0; i < 1000 && step <= last; ++i, ++step) {
        records.steps.push_back(StepOf(step, 1.0 / static_cast<double>(step)));
        if (step % 500 == 0) records.evaluations.push_back(PartOf(step));
      }
      Commit({.records = {{job, records}}});
      if (upkeep) Keep();
    }
  }
  // A tick's.
  void Keep() {
    const absl::Status kept = store_->Upkeep();
    ASSERT_TRUE(kept.ok()) << kept;
  }
  int64_t Count(const std::string& what) {
    auto database = Database::Open(path_);
    return *(*database)->QueryInteger("SELECT count(*) FROM " + what);
  }
  // Until nothing more changes; how many rows went at most at a time.
  int64_t KeepAll() {
    const auto rows = [this] {
      return Count("records") + Count("events") + Count("logs");
    };
    int64_t most = 0;
    int quiet = 0;
    for (int64_t before = rows(); quiet < 3;) {
      Keep();
      const int64_t now = rows();
      most = std::max(most, before - now);
      quiet = now == before ? quiet + 1 : 0;
      before = now;
    }
    return most;
  }
  std::vector<int64_t> Steps(JobId job = kJob) {
    std::vector<int64_t> steps;
    const auto curve = store_->Curve(job, 0, kAllPoints);
    for (const auto& point : curve->points) steps.push_back(point.step());
    return steps;
  }
  // That the curve of steps `first` to `last` is what it shall be.
  void ExpectThinned(int64_t first, int64_t last, JobId job = kJob) {
    const int64_t stride = CurveStride(first, last);
    std::vector<int64_t> expected;
    for (int64_t step = first; step <= last; ++step) {
      const bool is_old = step <= last - kWholeSteps;
      if (!is_old || (step - first) % stride == 0) expected.push_back(step);
    }
    EXPECT_EQ(Steps(job), expected);
    EXPECT_EQ(store_->Curve(job, 0, 1)->stride, stride);
  }

  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/db";
  std::unique_ptr<SqliteStore> store_;

  void SetUp() override { Open(); }
};

TEST_F(StoreUpkeep, KeepsTheLastStepsWholeAndTheBeginning) {
  Train(1, 20'000);
  KeepAll();
  EXPECT_EQ(std::ssize(Steps()), 20'000);

  Train(20'001, 20'001);
  KeepAll();
  ExpectThinned(1, 20'001);

  Train(20'002, 75'000);
  KeepAll();
  ExpectThinned(1, 75'000);
  EXPECT_EQ(Steps().front(), 1);
  EXPECT_EQ(store_->Evaluations(kJob, 1000)->size(), 150u);
}

TEST_F(StoreUpkeep, IsTheSameWhereItLagsBehind) {
  Train(1, 75'000, /*upkeep=*/false);
  EXPECT_EQ(std::ssize(Steps()), 75'000);

  EXPECT_LE(KeepAll(), kRowsATime);

  ExpectThinned(1, 75'000);
}

TEST_F(StoreUpkeep, ThinsWhatAnEarlierProgramLeftWhole) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_SUCCEEDED, 5)}}});
  Train(1, 45'000, /*upkeep=*/false);
  Open();

  EXPECT_LE(KeepAll(), kRowsATime);

  ExpectThinned(1, 45'000);
}

// A coordinator that ends in the middle of it, again and again.
TEST_F(StoreUpkeep, GoesOnAfterRestarts) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_RUNNING)}}});
  Train(1, 45'000, /*upkeep=*/false);
  for (int i = 0; i < 40; ++i) {
    Open();
    for (int tick = 0; tick <= i % 7; ++tick) Keep();
  }

  Train(45'001, 47'000);
  KeepAll();

  ExpectThinned(1, 47'000);
}

TEST_F(StoreUpkeep, ARecoveryMakesStepsAgainAndLosesNoOthers) {
  Train(1, 60'000);
  KeepAll();
  const std::vector<int64_t> before = Steps();

  Commit({.restarted = {{kJob, 58'000}}});
  Train(58'001, 58'500);
  KeepAll();
  const std::vector<int64_t> after = Steps();
  for (const int64_t step : before) {
    if (step > 58'000) break;
    EXPECT_TRUE(std::binary_search(after.begin(), after.end(), step)) << step;
  }
  EXPECT_EQ(after.back(), 58'500);

  Train(58'501, 75'000);
  KeepAll();
  ExpectThinned(1, 75'000);
  EXPECT_EQ(store_->Evaluations(kJob, 1000)->size(), 150u);
}

TEST_F(StoreUpkeep, AJobThatBeginsAgainAtStep0HasAWholeCurve) {
  Train(1, 30'000);
  KeepAll();

  Commit({.restarted = {{kJob, 0}}});
  Train(1, 9'000);
  KeepAll();

  ExpectThinned(1, 9'000);
}

// It begins with step 1 001, which stays.
TEST_F(StoreUpkeep, AResumedJobsCurveBeginsWithItsOwnFirstStep) {
  Train(1'001, 32'000);
  KeepAll();
  ExpectThinned(1'001, 32'000);
}

// Another member's part of it.
TEST_F(StoreUpkeep, AStepThatWasLeftOutDoesNotComeBack) {
  Train(1, 40'000);
  KeepAll();

  Commit({.records = {{kJob, {.steps = {StepOf(2, 9.0), StepOf(5, 9.0)}}}}});
  KeepAll();

  ExpectThinned(1, 40'000);
  EXPECT_EQ(store_->Curve(kJob, 4, kAllPoints)->points.front().loss(), 9.0);
}

TEST_F(StoreUpkeep, CurvesOfOtherJobsStayAsTheyAre) {
  Train(1, 15'000, true, JobId{2});
  Train(1, 45'000);
  KeepAll();
  EXPECT_EQ(std::ssize(Steps(JobId{2})), 15'000);
}

// 1 000 points of ten times as many records cost about as much.
TEST_F(StoreUpkeep, ACurveIsReadWhereItsPointsAre) {
  Train(1, 15'000);
  const auto curve = store_->Curve(kJob, 0, 100);
  ASSERT_EQ(curve->points.size(), 100u);
  EXPECT_EQ(curve->points.back().step(), 15'000);
  EXPECT_EQ(curve->points.front().step(), 150);
  EXPECT_EQ(store_->Curve(kJob, 14'990, 2)->points.size(), 2u);
  EXPECT_EQ(store_->Curve(kJob, 14'999, 2)->points.size(), 1u);
  EXPECT_THAT(store_->Curve(kJob, 15'000, 2)->points, IsEmpty());
  EXPECT_THAT(store_->Curve(kJob, 0, -3)->points, IsEmpty());
}

TEST_F(StoreUpkeep, ADeletedJobGoesBitByBit) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_SUCCEEDED, 5)},
                   {JobId{2}, JobOf(2, v1::JOB_STATE_SUCCEEDED, 5)}}});
  Train(1, 12'000, /*upkeep=*/false);
  Train(1, 100, true, JobId{2});
  StoreBatch::Records rest;
  for (int i = 1; i <= 2'500; ++i) {
    rest.events.emplace_back().set_job(1);
    rest.logs.emplace_back(Incarnation{1}, v1::LogLine());
  }
  Commit({.records = {{kJob, rest}}});

  const int64_t before = Count("records") + Count("events") + Count("logs");
  Commit({.deleted = {kJob}});
  EXPECT_GE(Count("records") + Count("events") + Count("logs"),
            before - kRowsATime);
  EXPECT_THAT(*store_->NewestEvents(10), IsEmpty());
  // The rest goes although the coordinator has started anew meanwhile.
  Keep();
  Open();
  EXPECT_LE(KeepAll(), kRowsATime);

  EXPECT_EQ(Count("records WHERE job=1"), 0);
  EXPECT_EQ(Count("events") + Count("logs"), 0);
  EXPECT_EQ(std::ssize(Steps(JobId{2})), 100);
}

TEST_F(StoreUpkeep, NothingIsDoneWhereNothingIsLeftToDo) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_RUNNING)}}});
  Train(1, 25'000);
  KeepAll();
  const auto changes = [this] {
    return Count("records") * 1000 + std::filesystem::file_size(path_ + "-wal");
  };
  const auto before = changes();

  for (int i = 0; i < 10; ++i) Keep();

  EXPECT_EQ(changes(), before);
}

// --- what a start reads
// -------------------------------------------------------

TEST_F(StoreUpkeep, OfJobsThatHaveEndedAStartReadsTheLast) {
  StoreBatch batch;
  for (int64_t id = 1; id <= 100; ++id) {
    batch.jobs[JobId{id}] = JobOf(id,
                                  id % 10 == 0  ? v1::JOB_STATE_QUEUED
                                  : id % 2 == 0 ? v1::JOB_STATE_FAILED
                                                : v1::JOB_STATE_SUCCEEDED,
                                  id % 10 == 0 ? 0 : 1000 - id);
  }
  Commit(batch);
  Open();

  const StoredState state = *store_->Load();

  EXPECT_EQ(std::ssize(state.jobs), kEndedInMemory + 10);
  EXPECT_TRUE(state.jobs.contains(JobId{1})) << "it has ended last";
  EXPECT_TRUE(state.jobs.contains(JobId{100}));
  EXPECT_FALSE(state.jobs.contains(JobId{99}));
  Mesh mesh(state);
  Brain& brain = mesh.brain();
  EXPECT_EQ(brain.CountJobs().at(v1::JOB_STATE_SUCCEEDED), 50);
  EXPECT_EQ(brain.CountJobs().at(v1::JOB_STATE_FAILED), 40);
  EXPECT_EQ(brain.CountJobs().at(v1::JOB_STATE_QUEUED), 10);
}

TEST_F(StoreUpkeep, JobsArePagedFromTheNewestByNumberAndByBytes) {
  StoreBatch batch;
  for (int64_t id = 1; id <= 10; ++id) {
    batch.jobs[JobId{id}] = JobOf(id, v1::JOB_STATE_QUEUED);
  }
  Commit(batch);
  const auto ids = [this](int64_t below, int64_t limit, int64_t bytes) {
    std::vector<int64_t> found;
    const auto records = *store_->JobsBelow(JobId{below}, limit, bytes);
    for (const JobRecord& record : records) found.push_back(record.id().value);
    return found;
  };
  EXPECT_THAT(ids(100, 3, 1 << 20), ElementsAre(10, 9, 8));
  EXPECT_THAT(ids(8, 2, 1 << 20), ElementsAre(7, 6));
  EXPECT_THAT(ids(8, 5, 1), ElementsAre(7));
  EXPECT_THAT(ids(1, 5, 1 << 20), IsEmpty());
  EXPECT_EQ(*store_->FindRequest("request-4"), JobId{4});
  EXPECT_FALSE(store_->FindRequest("request-11")->assigned());
  EXPECT_FALSE(store_->FindRequest("")->assigned());
}

// A program without the index wrote the file, also after one that has it.
TEST_F(StoreUpkeep, AJobThatAnotherProgramWroteIsFound) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_RUNNING)}}});
  {
    auto database = *Database::Open(path_);
    const std::string job =
        ToStored(JobOf(1, v1::JOB_STATE_STOPPED, 7)).SerializeAsString();
    ASSERT_TRUE(
        Query(*database, "INSERT OR REPLACE INTO jobs VALUES (1,?)", Blob{job})
            .Run()
            .ok());
  }
  Open();

  const StoredState state = *store_->Load();

  EXPECT_EQ(state.jobs.at(kJob).state(), v1::JOB_STATE_STOPPED);
  ASSERT_EQ(store_->LastEnded(10)->size(), 1u);
  EXPECT_EQ(*store_->FindRequest("request-1"), kJob);
}

TEST_F(StoreUpkeep, AnAnswerHasNoMoreThanItMay) {
  StoreBatch::Records records;
  v1::JobEvent event;
  event.set_text(std::string(16'000, 'x'));
  records.events.assign(200, event);
  Commit({.records = {{kJob, records}}});

  std::set<int64_t> seen;
  for (int64_t after = 0;;) {
    const auto page = *store_->Events(kJob, after, 1000);
    if (page.empty()) break;
    size_t bytes = 0;
    for (const v1::JobEvent& each : page) {
      bytes += each.ByteSizeLong();
      seen.insert(each.sequence());
    }
    EXPECT_LT(bytes, 1'100'000u);
    after = page.back().sequence();
  }
  EXPECT_EQ(seen.size(), 200u);
}

TEST_F(StoreUpkeep, TheCheckFindsDamageBesideWhatAStartReads) {
  Commit({.jobs = {{kJob, JobOf(1, v1::JOB_STATE_SUCCEEDED, 5)}}});
  Train(1, 9'000);
  store_.reset();
  {
    const StoreCheck check(path_, [](const absl::Status& why) {
      ADD_FAILURE() << "nothing is damaged: " << why;
    });
  }
  const auto bytes = std::filesystem::file_size(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t at = bytes / 2; at < bytes / 2 + 4096; at += 7) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x5a');
  }
  file.close();

  absl::Notification found;
  absl::Status damage;
  const StoreCheck check(path_, [&](const absl::Status& why) {
    damage = why;
    found.Notify();
  });
  found.WaitForNotification();

  EXPECT_TRUE(absl::IsDataLoss(damage)) << damage;
  EXPECT_THAT(damage.message(), HasSubstr(path_));
}

}  // namespace
}  // namespace paceline
