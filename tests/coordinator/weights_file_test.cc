
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "coordinator/store/file_weights_store.h"
#include "core/model/description.h"
#include "core/transfer/checksum.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

SafetensorsLayout TwoTensors() {
  return *LayOut({{"a", DType::kF32, {2}}, {"b", DType::kF32, {3}}},
                 {{"format", "pt"}});
}

const Fence kRun = {JobId{1}, 1, 1};

class WeightsFileTest : public testing::Test {
 protected:
  std::unique_ptr<WeightsFile> Open(
      const Fence& fence = kRun,
      const SafetensorsLayout& layout = TwoTensors()) {
    auto file = WeightsFile::Open(folder_.path(), fence, layout);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  // As a process does that ends after it has synced tensor a.
  void WriteAndSyncA() {
    const auto file = Open();
    EXPECT_TRUE(file->Write("a", 0, "abcdefgh").ok());
    EXPECT_TRUE(file->Sync().ok());
  }

  const TempFolder folder_;
};

// Writes all of the two tensors.
void Fill(WeightsFile& file) {
  EXPECT_TRUE(file.Write("a", 0, "abcdefgh").ok());
  EXPECT_TRUE(file.Write("b", 0, "012345678901").ok());
}

TEST_F(WeightsFileTest, PiecesInAnyOrderAndTwiceMakeTheWholeFile) {
  auto file = Open();

  ASSERT_TRUE(file->Write("b", 6, "456789").ok());
  ASSERT_TRUE(file->Write("b", 0, "012345").ok());
  ASSERT_TRUE(file->Write("a", 0, "abcdefgh").ok());
  ASSERT_TRUE(file->Write("a", 0, "abcdefgh").ok());
  const auto saved = file->Save();

  ASSERT_TRUE(saved.ok()) << saved.status();
  const std::string whole = TwoTensors().header + "abcdefgh012345456789";
  Sha256 hash;
  hash.Update(whole);
  EXPECT_EQ(ReadFile(saved->path), whole);
  EXPECT_EQ(saved->bytes, TwoTensors().file_bytes);
  EXPECT_EQ(saved->sha256, hash.HexDigest());
}

TEST_F(WeightsFileTest, UnknownTensorAndWrongRangesAreRefused) {
  auto file = Open();

  for (const absl::Status& status :
       {file->Write("c", 0, "x"), file->Write("a", 1, "12345678"),
        file->Write("a", -1, "1"), file->Write("a", INT64_MAX, "1")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(WeightsFileTest, GapIsNamedAtSave) {
  auto file = Open();
  ASSERT_TRUE(file->Write("a", 0, "abcdefgh").ok());
  ASSERT_TRUE(file->Write("b", 0, "0123").ok());
  ASSERT_TRUE(file->Write("b", 8, "0123").ok());

  const auto saved = file->Save();

  EXPECT_EQ(saved.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(saved.status().message(),
              HasSubstr("1 of 2 tensors did not arrive whole; the first is b"));
}

TEST_F(WeightsFileTest, IsCalledByWhatItHolds) {
  SafetensorsLayout layout = TwoTensors();
  layout.content = "predictions";
  auto file = Open(kRun, layout);
  Fill(*file);

  const auto saved = file->Save();

  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->path, folder_.path() + "/predictions.safetensors");
}

TEST_F(WeightsFileTest, AnotherAttemptBeginsFromNothing) {
  WriteAndSyncA();

  auto file = Open(Fence{JobId{1}, 2, 1});
  ASSERT_TRUE(file->Write("b", 0, "012345678901").ok());

  EXPECT_EQ(file->Save().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(WeightsFileTest, AnotherAttemptGoesOnWithPredictions) {
  SafetensorsLayout layout = TwoTensors();
  layout.content = "predictions";
  auto file = Open(kRun, layout);
  ASSERT_TRUE(file->Write("a", 0, "abcdefgh").ok());
  ASSERT_TRUE(file->Sync().ok());

  file = Open(Fence{JobId{1}, 2, 3}, layout);
  ASSERT_TRUE(file->Write("b", 0, "012345678901").ok());

  EXPECT_TRUE(file->Save().ok());
}

// A store that has been given a piece of that attempt.
class WeightsStoreTest : public WeightsFileTest {
 protected:
  void OpenStore(int64_t attempt, const SafetensorsLayout& layout) {
    store_.Open(
        {JobId{1}, attempt, attempt}, layout,
        [](const absl::Status& opened) { EXPECT_TRUE(opened.ok()) << opened; });
  }
  absl::Status Write(int64_t attempt) {
    v1::WeightsPiece piece;
    piece.set_job(1);
    piece.set_attempt(attempt);
    piece.set_plan_version(attempt);
    piece.set_tensor("a");
    piece.set_data(std::string(8, 'x'));
    absl::Status status;
    absl::Notification done;
    store_.Write(piece, [&](absl::Status written) {
      status = std::move(written);
      done.Notify();
    });
    done.WaitForNotification();
    return status;
  }

  FileWeightsStore store_{folder_.path()};
};

// A stage that was left behind uploads what it computed.
TEST_F(WeightsStoreTest, AbortsAnEarlierAttemptsPiece) {
  OpenStore(1, TwoTensors());
  EXPECT_TRUE(Write(1).ok());
  OpenStore(2, TwoTensors());
  EXPECT_TRUE(absl::IsAborted(Write(1)));
  EXPECT_TRUE(Write(2).ok());
}

TEST_F(WeightsStoreTest, AsksForPatienceUntilItKnowsHowMuchThereWillBe) {
  OpenStore(1, SafetensorsLayout());
  EXPECT_TRUE(absl::IsUnavailable(Write(1)));

  OpenStore(1, TwoTensors());
  EXPECT_TRUE(Write(1).ok());
}

TEST_F(WeightsFileTest, SavedFileIsTakenOverWhenNobodyWasTold) {
  std::string hash;
  {
    auto file = Open();
    Fill(*file);
    hash = file->Save()->sha256;
  }

  auto file = Open();

  EXPECT_EQ(file->Save()->sha256, hash);
}

// Files of this process may not grow over `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_F(WeightsFileTest, FullDiskIsSaidAtOnceWithThePath) {
  const SafetensorsLayout large =
      *LayOut({{"a", DType::kF32, {1 << 20}}}, {{"format", "pt"}});

  absl::Status status;
  {
    const FileSizeLimit limit(1 << 16);
    status = WeightsFile::Open(folder_.path(), kRun, large).status();
  }

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), HasSubstr(folder_.path()));
}

TEST_F(WeightsFileTest, AnotherAttemptKeepsTheRoomOfTheOneBefore) {
  auto first = Open();
  struct stat before = {}, after = {};
  const std::string path = folder_.path() + "/weights.partial";
  ASSERT_EQ(stat(path.c_str(), &before), 0);

  const FileSizeLimit limit(0);  // nothing may be reserved any more
  const auto next = WeightsFile::Open(
      folder_.path(), Fence{kRun.job, kRun.attempt + 1, kRun.plan_version + 1},
      TwoTensors());

  EXPECT_FALSE(next.ok());
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_blocks, before.st_blocks);
  EXPECT_EQ(after.st_ino, before.st_ino);
}

// Replicas hand their rows over at different times.
TEST_F(WeightsFileTest, AnotherProcessGoesOnWithTheRowsThatWereSynced) {
  auto killed = Open();
  ASSERT_TRUE(killed->Write("b", 4, "4567").ok());
  ASSERT_TRUE(killed->Write("a", 0, "abcdefgh").ok());
  ASSERT_TRUE(killed->Sync().ok());
  ASSERT_TRUE(killed->Write("b", 8, "89ab").ok());  // not synced
  killed = nullptr;

  auto next = Open();
  ASSERT_TRUE(next->Write("b", 0, "0123").ok());
  EXPECT_THAT(next->Save().status().message(), HasSubstr("is b"));
  ASSERT_TRUE(next->Write("b", 8, "89ab").ok());
  const auto saved = next->Save();

  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(ReadFile(saved->path),
            TwoTensors().header + "abcdefgh" + "0123456789ab");
}

TEST_F(WeightsFileTest, ALineOfProgressThatWasCutShortCountsForNothing) {
  WriteAndSyncA();
  const std::string path = folder_.path() + "/weights.progress";
  std::ofstream(path, std::ios::app)
      << "9 3 b\n0 99 b\nx 4 b\n0 4 c\n0 4\n0 12 b";  // no end

  auto next = Open();
  EXPECT_THAT(next->Save().status().message(),
              HasSubstr("1 of 2 tensors did not arrive whole; the first is b"));

  // And spoils no line after it.
  ASSERT_TRUE(next->Write("b", 0, "012345678901").ok());
  ASSERT_TRUE(next->Sync().ok());
  next = Open();
  EXPECT_TRUE(next->Save().ok());
}

}  // namespace
}  // namespace paceline
