// State that the programs of a release wrote is read by every later one: see
// tests/data/state-0.1.0/README.md.
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/sqlite_store.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/checkpoint_files.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

class StateOf010 : public testing::Test {
 protected:
  StateOf010() {
    const std::string path = folder_.path() + "/coordinator.db";
    const std::string dump = ReadFile(from_ + "coordinator.sql");
    EXPECT_FALSE(dump.empty());
    EXPECT_TRUE((*Database::Open(path))->Execute(dump).ok());
    auto store = SqliteStore::Open(path);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    state_ = store_->Load();
  }

  const std::string from_ = PACELINE_SOURCE_DIR "/tests/data/state-0.1.0/";
  const TempFolder folder_;
  std::unique_ptr<SqliteStore> store_;
  absl::StatusOr<StoredState> state_ = absl::UnknownError("");
};

TEST_F(StateOf010, HasItsWorkersJobsTokensAndMeasurements) {
  ASSERT_TRUE(state_.ok()) << state_.status();
  EXPECT_EQ(state_->workers.at(WorkerId{3}).name(), "w3");
  EXPECT_THAT(state_->drained, testing::ElementsAre(WorkerId{3}));
  EXPECT_EQ(state_->term, 1);
  EXPECT_EQ(state_->next_job, JobId{3});
  EXPECT_EQ(state_->views.at(JobId{2}).view.members.size(), 2u);
  EXPECT_EQ(state_->tokens.size(), 2u);
  EXPECT_EQ(state_->revoked.at("worker/w9"), 1'700'000'000'000);
  EXPECT_EQ(state_->measurements.profiles.size(), 3u);
  EXPECT_EQ(state_->measurements.links.size(), 6u);
  const JobRecord& first = state_->jobs.at(JobId{1});
  EXPECT_EQ(first.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(first.spec.train.steps, 8);
  EXPECT_EQ(first.stages.size(), 2u);
  ASSERT_EQ(first.job.checkpoints_size(), 1);
  EXPECT_EQ(first.job.checkpoints(0).cut().step(), 8);
  EXPECT_EQ(state_->jobs.at(JobId{2}).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(StateOf010, HasTheRecordsOfItsJobs) {
  EXPECT_EQ(store_->Curve(JobId{1}, 0, 100)->points.size(), 8u);
  EXPECT_EQ(store_->Evaluations(JobId{1}, 100)->back().accuracy(), 0.5);
  EXPECT_EQ(store_->Events(JobId{1}, 0, 100)->front().kind(), "submitted");
  EXPECT_EQ(store_->Logs(JobId{1}, 0, 100)->size(), 3u);
}

// A group that it kept no attempts of begins a new one.
TEST_F(StateOf010, GoesOnWithTheJobThatRan) {
  ASSERT_TRUE(state_.ok()) << state_.status();
  Mesh mesh(*state_);
  std::vector<StreamId> streams;
  for (const auto& [id, worker] : state_->workers) {
    streams.push_back(mesh.Attach(worker));
    ASSERT_TRUE(mesh.last_attach().ok()) << mesh.last_attach();
  }

  mesh.Pass(100, streams);

  const std::optional<RunOrder>& run = mesh.Order(streams[0]).run;
  ASSERT_TRUE(run.has_value()) << mesh.Record(JobId{2}).job.why();
  EXPECT_EQ(run->fence.job, JobId{2});
  EXPECT_EQ(run->fence.attempt, 2);
}

TEST_F(StateOf010, HasACheckpointThatAJobGoesOnFrom) {
  ASSERT_TRUE(state_.ok()) << state_.status();
  const JobSpec& spec = state_->jobs.at(JobId{1}).spec;
  const auto layout = LayOutState(*Describe(spec), spec.train.optimizer);
  FakePieceFetcher nobody;
  FileCheckpointStore checkpoints(from_ + "checkpoints", nobody);

  const auto checked = AwaitAnswer<absl::Status>([&](auto done) {
    checkpoints.Check({JobId{1}, 8}, *layout, done);
  });

  EXPECT_TRUE(checked.ok()) << checked;
}

}  // namespace
}  // namespace paceline
