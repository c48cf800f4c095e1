#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "coordinator/store/file_checkpoint_store.h"
#include "core/rpc/convert/job_convert.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/checkpoint_files.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kStep = 20;
const CheckpointId kCheckpoint = {JobId{3}, kStep};

StateLayout LayoutOf(const JobSpec& spec) {
  return LayOutState(*Describe(spec), spec.train.optimizer).value();
}

class CheckpointStoreTest : public testing::Test {
 protected:
  CheckpointStoreTest() { spec_.train.optimizer.name = "adamw"; }

  CheckpointOrder Order(int64_t step = kStep) {
    CheckpointOrder order{{JobId{3}, step}, {}, LayoutOf(spec_), {}};
    order.manifest.mutable_cut()->set_attempt(2);
    order.manifest.mutable_cut()->set_step(step);
    *order.manifest.mutable_spec() = ToProto(spec_);
    order.holders.assign(order.layout.layers.size(),
                         {{"a:1", {1}}, {"b:1", {2}}});
    return order;
  }
  absl::StatusOr<v1::Checkpoint> Fetch(int64_t step = kStep) {
    return AwaitAnswer<absl::StatusOr<v1::Checkpoint>>(
        [&](auto done) { store_.Fetch(Order(step), done); });
  }
  void Make(int64_t step = kStep) {
    const auto fetched = Fetch(step);
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    const auto kept = AwaitAnswer<absl::Status>([&](auto done) {
      store_.Keep({JobId{3}, step}, done);
    });
    ASSERT_TRUE(kept.ok()) << kept;
  }
  absl::Status Check(const JobSpec& spec) {
    return AwaitAnswer<absl::Status>(
        [&](auto done) { store_.Check(kCheckpoint, LayoutOf(spec), done); });
  }
  absl::Status Check() { return Check(spec_); }
  absl::StatusOr<v1::PieceChunk> ReadPiece(int layer, int64_t offset,
                                           int64_t limit,
                                           int64_t step = kStep) {
    return AwaitAnswer<absl::StatusOr<v1::PieceChunk>>([&](auto done) {
      store_.ReadPiece({JobId{3}, step}, layer, offset, limit, done);
    });
  }
  absl::StatusOr<v1::WeightsChunk> ReadWeights(int64_t offset, int64_t limit) {
    return AwaitAnswer<absl::StatusOr<v1::WeightsChunk>>([&](auto done) {
      store_.ReadWeights(kCheckpoint, offset, limit, done);
    });
  }

  std::string PathOf(const std::string& name) const {
    return absl::StrCat(folder_.path(), "/3/step-", kStep, "/", name);
  }
  // Another bit in the byte at `offset`.
  void Flip(const std::string& name, int64_t offset) {
    std::fstream file(PathOf(name),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(offset);
    file.put(byte);
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    std::error_code ignored;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_.path() + "/3", ignored)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  JobSpec spec_ = SpecOf(2);
  const TempFolder folder_;
  FakePieceFetcher fetcher_;
  FileCheckpointStore store_{folder_.path(), fetcher_, absl::ZeroDuration()};
};

TEST_F(CheckpointStoreTest, WhatWasFetchedIsReadBackLayerByLayer) {
  Make();

  EXPECT_TRUE(Check().ok()) << Check();
  const StateLayout layout = LayoutOf(spec_);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const int layer = static_cast<int>(i);
    const std::string piece =
        FakePieceFetcher::PieceText(layer, layout.layers[i].bytes);
    const auto first = ReadPiece(layer, 0, 10);
    const auto rest = ReadPiece(layer, 10, 1 << 20);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->data() + rest->data(), piece);
    EXPECT_EQ(first->checksum(), HashText(piece));
    EXPECT_EQ(first->total_bytes(), layout.layers[i].bytes);
  }
}

TEST_F(CheckpointStoreTest, CountsOnlyOnceItIsKept) {
  ASSERT_TRUE(Fetch().ok());

  EXPECT_TRUE(absl::IsNotFound(Check())) << Check();
}

TEST_F(CheckpointStoreTest, AnotherHolderIsAskedWhereOneIsGoneOrLies) {
  fetcher_.lies = "a:1";
  Make();
  EXPECT_TRUE(Check().ok()) << Check();

  fetcher_.refuses = "a:1";
  Make();
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(CheckpointStoreTest, ALayerThatNobodyGivesIsNamedAndNothingIsLeft) {
  fetcher_.refuses = "a:1";
  fetcher_.lies = "b:1";

  const auto fetched = Fetch();

  EXPECT_TRUE(absl::IsUnavailable(fetched.status())) << fetched.status();
  EXPECT_THAT(fetched.status().message(), HasSubstr("layer 0 cannot be had"));
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(CheckpointStoreTest, AHolderThatBreaksOffIsAskedForTheRest) {
  spec_.model.hidden = {256, 256, 16};
  constexpr int64_t kPart = 100'000;
  fetcher_.breaks_after = kPart;
  Make();

  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_THAT(fetcher_.asked, testing::Each("a:1"));
  EXPECT_THAT(fetcher_.offsets, testing::Contains(3 * kPart));

  // One that gives little each time would hold up all checkpoints.
  fetcher_.breaks_after = 1000;
  EXPECT_TRUE(absl::IsUnavailable(Fetch().status()));
}

// A link that was out for 40 s once cost all that had come over it, and so did
// a second holder that has no piece any more.
TEST_F(CheckpointStoreTest, AHaltCostsNothingThatHasCome) {
  spec_.model.hidden = {256, 256, 16};
  fetcher_.has_none = "b:1";
  fetcher_.halts = 2;  // in the second layer
  fetcher_.away = {4, 5};
  FileCheckpointStore patient(folder_.path(), fetcher_, absl::Seconds(12));

  const auto fetched = AwaitAnswer<absl::StatusOr<v1::Checkpoint>>(
      [&](auto done) { patient.Fetch(Order(), done); });
  AwaitAnswer<absl::Status>([&](auto done) {
    patient.Keep(kCheckpoint, done);
  }).IgnoreError();

  EXPECT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_TRUE(Check().ok()) << Check();
  const int64_t half = LayoutOf(spec_).layers[1].bytes / 2;
  EXPECT_THAT(fetcher_.offsets,
              ElementsAre(0, 0, half, half, half, half, 0, 0));
  EXPECT_THAT(fetcher_.asked, ElementsAre("a:1", "a:1", "b:1", "a:1", "a:1",
                                          "a:1", "a:1", "a:1"));
}

TEST_F(CheckpointStoreTest, AStopEndsTheWaitForAHolder) {
  fetcher_.has_none = "b:1";
  for (int64_t call = 2; call < 100; ++call) fetcher_.away.insert(call);
  absl::Notification ended;
  FileCheckpointStore patient(folder_.path(), fetcher_, absl::Hours(9));
  patient.Fetch(Order(), [&](const absl::StatusOr<v1::Checkpoint>& fetched) {
    EXPECT_TRUE(absl::IsUnavailable(fetched.status())) << fetched.status();
    ended.Notify();
  });

  patient.Stop();

  EXPECT_TRUE(ended.HasBeenNotified());
}

// A part that lies is not gone on from.
TEST_F(CheckpointStoreTest, TheRestOfAPartThatLiedIsNotTaken) {
  spec_.model.hidden = {256, 256, 16};
  fetcher_.breaks_after = 400'000;  // of the largest layer alone
  fetcher_.lies = "a:1";
  Make();

  EXPECT_TRUE(Check().ok()) << Check();
}

// Each read of a chunk once filled a buffer of 64 MiB.
TEST_F(CheckpointStoreTest, ManySmallChunksCostLittle) {
  Make();
  const auto cpu = [] {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
  };
  const double before = cpu();

  for (int i = 1; i < 400; ++i) {
    ASSERT_TRUE(ReadPiece(0, i, 16).ok());
    ASSERT_TRUE(ReadWeights(i, 16).ok());
  }

  EXPECT_LT(cpu() - before, 2.0);
}

TEST_F(CheckpointStoreTest, OneThatTookTheOthersPlaceIsReadAnew) {
  Make();
  ASSERT_TRUE(ReadPiece(0, 0, 10).ok());
  spec_.train.optimizer.name = "sgd";
  Make();
  const StateLayout layout = LayoutOf(spec_);

  EXPECT_EQ(ReadPiece(0, 0, 10)->total_bytes(), layout.layers[0].bytes);
  store_.Retain(JobId{3}, {});
  ASSERT_FALSE(AwaitAnswer<absl::Status>([&](auto done) {
                 store_.Keep({JobId{9}, 1}, done);
               }).ok());  // it comes after that
  EXPECT_TRUE(absl::IsNotFound(ReadPiece(0, 0, 10).status()));
}

// A peer that asked on from there once got empty chunks for ever.
TEST_F(CheckpointStoreTest, NothingIsReadFromBeyondALayersEnd) {
  Make();
  const int64_t bytes = LayoutOf(spec_).layers[1].bytes;

  EXPECT_EQ(ReadPiece(1, bytes, 10)->data(), "");
  for (const int64_t offset : {bytes + 1, INT64_MAX, int64_t{-1}}) {
    const absl::Status status = ReadPiece(1, offset, 10).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << offset << ": " << status;
  }
  EXPECT_EQ(ReadWeights(INT64_MAX, 10)->data(), "");
}

// One more reader than stay open once closed them all.
TEST_F(CheckpointStoreTest, TheOneUsedLongestAgoIsClosedForAnother) {
  constexpr int64_t kOpen = FileCheckpointStore::kMostOpen;
  for (int64_t step = 1; step <= kOpen + 1; ++step) Make(step);
  for (int64_t step = 1; step <= kOpen; ++step) {
    ASSERT_TRUE(ReadPiece(0, 0, 10, step).ok());
  }
  ASSERT_TRUE(ReadPiece(0, 10, 10, 1).ok());
  ASSERT_TRUE(ReadPiece(0, 0, 10, kOpen + 1).ok());

  std::filesystem::remove_all(folder_.path() + "/3");

  for (int64_t step = 1; step <= kOpen + 1; ++step) {
    EXPECT_EQ(ReadPiece(0, 20, 10, step).ok(), step != 2) << step;
  }
}

TEST_F(CheckpointStoreTest, AFlippedBitIsFoundAndTheLayerNamed) {
  Make();
  const StateLayout layout = LayoutOf(spec_);
  Flip("layers.safetensors", layout.layers[1].offset + 5);

  for (const absl::Status& status :
       {Check(), ReadPiece(1, 0, 10).status(), ReadWeights(0, 10).status()}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(),
                HasSubstr("the checksum of layer 1 is not the one"));
  }
  EXPECT_TRUE(ReadPiece(0, 0, 10).ok());
}

TEST_F(CheckpointStoreTest, ABitOfTheHeaderOrTheManifestIsFoundToo) {
  Make();
  Flip("layers.safetensors", 20);
  EXPECT_THAT(Check().message(), HasSubstr("the checksum of its header"));

  Make();
  Flip("manifest.json", 0);
  EXPECT_TRUE(absl::IsDataLoss(Check())) << Check();
  EXPECT_THAT(Check().message(), HasSubstr("its manifest cannot be read"));
}

// The manifest reads well then: a digit has become another one.
TEST_F(CheckpointStoreTest, AFlippedDigitOfASizeOrAChecksumIsFound) {
  Make();
  std::stringstream manifest;
  manifest << std::ifstream(PathOf("manifest.json")).rdbuf();
  const std::string text = manifest.str();
  const size_t begin = text.find("file_bytes");
  ASSERT_NE(begin, std::string::npos) << text;
  int digits = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (!absl::ascii_isdigit(text[at])) continue;
    ++digits;
    Flip("manifest.json", static_cast<int64_t>(at));
    EXPECT_TRUE(absl::IsDataLoss(Check()))
        << text.substr(begin, at - begin) << ": " << Check();
    Flip("manifest.json", static_cast<int64_t>(at));
  }
  EXPECT_GT(digits, 50);
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(CheckpointStoreTest, ATruncatedOrMissingFileIsNamedWithBothSizes) {
  Make();
  const auto bytes = std::filesystem::file_size(PathOf("layers.safetensors"));
  std::filesystem::resize_file(PathOf("layers.safetensors"), bytes - 7);
  EXPECT_TRUE(absl::IsDataLoss(Check())) << Check();
  EXPECT_THAT(
      Check().message(),
      HasSubstr(absl::StrCat("has ", bytes - 7, " bytes, need ", bytes)));

  std::filesystem::remove(PathOf("layers.safetensors"));
  EXPECT_TRUE(absl::IsDataLoss(Check())) << Check();

  std::filesystem::remove_all(folder_.path() + "/3");
  EXPECT_TRUE(absl::IsNotFound(Check())) << Check();
  EXPECT_THAT(Check().message(),
              HasSubstr("there is no checkpoint of job 3 at step 20"));
}

TEST_F(CheckpointStoreTest, AMachineWithoutFreeDescriptorsIsNoDamage) {
  Make();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status checked = Check(spec_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

  EXPECT_FALSE(checked.ok() || absl::IsDataLoss(checked) ||
               absl::IsNotFound(checked))
      << checked;
  EXPECT_TRUE(Check(spec_).ok());
}

TEST_F(CheckpointStoreTest, AnotherModelFewerLayersAndAnotherOptimizerNoFit) {
  Make();
  JobSpec wider = spec_, fewer = spec_, sgd = spec_;
  wider.model.hidden = {16, 16, 32};
  fewer.model.hidden = {16, 16};
  sgd.train.optimizer.name = "sgd";

  for (const auto& [spec, why] :
       {std::pair{wider, "where the job's model has"},
        {fewer, "it has 4 layers, the job's model has 3"},
        {sgd, "optimizer.0"}}) {
    const absl::Status status = Check(spec);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
}

TEST_F(CheckpointStoreTest, TheManifestOfAnotherJobIsNotTaken) {
  Make();
  std::filesystem::create_directories(folder_.path() + "/4");
  std::filesystem::rename(folder_.path() + "/3/step-20",
                          folder_.path() + "/4/step-20");

  const auto status = AwaitAnswer<absl::Status>([&](auto done) {
    store_.Check({JobId{4}, kStep}, LayoutOf(spec_), done);
  });

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("is of job 3, step 20"));
}

TEST_F(CheckpointStoreTest, AManifestWhoseJobCannotBeIsDamaged) {
  CheckpointOrder order = Order();
  order.manifest.mutable_spec()->mutable_model()->clear_hidden();
  order.manifest.mutable_spec()->mutable_model()->add_hidden(-1);
  const auto fetched = AwaitAnswer<absl::StatusOr<v1::Checkpoint>>(
      [&](auto done) { store_.Fetch(order, done); });
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  AwaitAnswer<absl::Status>([&](auto done) {
    store_.Keep(kCheckpoint, done);
  }).IgnoreError();

  for (const absl::Status& status : {Check(), ReadWeights(0, 10).status()}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("its manifest has a wrong job"));
  }
}

TEST_F(CheckpointStoreTest, AFullDiskIsSaidBeforeAnybodySendsAnything) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {1 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);

  const auto fetched = Fetch();
  setrlimit(RLIMIT_FSIZE, &before);

  EXPECT_TRUE(absl::IsResourceExhausted(fetched.status())) << fetched.status();
  EXPECT_THAT(fetched.status().message(), HasSubstr(folder_.path()));
  EXPECT_TRUE(fetcher_.asked.empty());
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(CheckpointStoreTest, RemovesAllButThoseThatAreToStay) {
  for (const int64_t step : {20, 30, 40}) Make(step);
  ASSERT_TRUE(Fetch(50).ok());

  store_.Retain(JobId{3}, {30, 40});
  Make(60);  // after it
  EXPECT_THAT(Files(), ElementsAre("step-30", "step-40", "step-60"));

  store_.Retain(JobId{3}, {});
  EXPECT_TRUE(Fetch(70).ok());
  EXPECT_THAT(Files(), ElementsAre("step-70.partial"));
}

TEST_F(CheckpointStoreTest, WhatIsOnlyFetchedStaysWithTheStepsThatAreToStay) {
  ASSERT_TRUE(Fetch(50).ok());

  store_.Retain(JobId{3}, {50});

  const auto kept = AwaitAnswer<absl::Status>([&](auto done) {
    store_.Keep({JobId{3}, 50}, done);
  });
  EXPECT_TRUE(kept.ok()) << kept;
}

TEST_F(CheckpointStoreTest, ItsWeightsAreTheFileThatAJobWouldEndWith) {
  Make();
  const SafetensorsLayout weights = LayOut(*Describe(spec_)).value();
  const StateLayout state = LayoutOf(spec_);
  std::string wanted = weights.header;
  for (const TensorPlace& place : state.file.tensors) {
    if (absl::StrContains(place.name, ".optimizer.")) continue;
    wanted += ReadFile(PathOf("layers.safetensors"))
                  .substr(place.offset, place.bytes);
  }

  std::string got;
  for (int64_t total = 1; std::ssize(got) < total;) {
    const auto chunk = ReadWeights(std::ssize(got), 1000);
    ASSERT_TRUE(chunk.ok()) << chunk.status();
    ASSERT_FALSE(chunk->data().empty());
    EXPECT_EQ(chunk->step(), kStep);
    total = chunk->total_bytes();
    got += chunk->data();
  }

  EXPECT_EQ(got, wanted);
}

}  // namespace
}  // namespace paceline
