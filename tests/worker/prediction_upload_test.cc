#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/pipeline/predictions.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

v1::PredictedMark Through(int64_t through) {
  v1::PredictedMark mark;
  mark.set_through(through);
  return mark;
}

std::vector<TensorPart> Part(int64_t bytes = 1) {
  return {{"classes", Tensor::Zeros(DType::kU8, {bytes}), 0}};
}

TEST(PredictionUpload, TellsOfAMarkWhenAllBeforeItIsStored) {
  absl::Notification may_store;
  absl::Mutex mutex;
  std::vector<int64_t> stored;
  PredictionUpload upload(
      [&](const std::vector<TensorPart>& /*parts*/, const CancelToken&) {
        may_store.WaitForNotification();
        return absl::OkStatus();
      },
      [&](const v1::PredictedMark& mark) {
        absl::MutexLock lock(&mutex);
        stored.push_back(mark.through());
      });

  for (const int64_t through : {1, 2}) {
    ASSERT_TRUE(upload.Add(Part(), Through(through)).ok());
  }
  ASSERT_TRUE(upload.Add(Part(), std::nullopt).ok());
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(stored.empty());
  }
  may_store.Notify();
  ASSERT_TRUE(upload.Finish().ok());

  absl::MutexLock lock(&mutex);
  EXPECT_THAT(stored, ElementsAre(1, 2));
}

TEST(PredictionUpload, HandsOverTogetherWhatComesWithinAPause) {
  std::vector<size_t> uploads;
  PredictionUpload upload(
      [&](const std::vector<TensorPart>& parts, const CancelToken&) {
        uploads.push_back(parts.size());
        return absl::OkStatus();
      },
      [](const v1::PredictedMark&) {}, /*pause=*/absl::Minutes(10));

  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(upload.Add(Part(), std::nullopt).ok());
  }
  ASSERT_TRUE(upload.Finish().ok());

  EXPECT_THAT(uploads, ElementsAre(5));
}

TEST(PredictionUpload, AnErrorEndsItAndMarksNothing) {
  const absl::Status full = absl::ResourceExhaustedError("the disk is full");
  int marks = 0;
  PredictionUpload upload(
      [&](const std::vector<TensorPart>&, const CancelToken&) { return full; },
      [&](const v1::PredictedMark&) { ++marks; });

  upload.Add(Part(), Through(1)).IgnoreError();

  EXPECT_EQ(upload.Finish(), full);
  EXPECT_EQ(upload.Add(Part(), Through(2)), full);
  EXPECT_EQ(marks, 0);
}

TEST(PredictionUpload, HoldsBackWhoMakesThemFasterThanTheyLeave) {
  absl::Notification may_store, second_added;
  PredictionUpload upload(
      [&](const std::vector<TensorPart>&, const CancelToken&) {
        may_store.WaitForNotification();
        return absl::OkStatus();
      },
      [](const v1::PredictedMark&) {});
  ASSERT_TRUE(
      upload.Add(Part(PredictionUpload::kMostWaitingBytes), std::nullopt).ok());

  Thread adder("adder", [&] {
    EXPECT_TRUE(upload.Add(Part(), std::nullopt).ok());
    EXPECT_TRUE(may_store.HasBeenNotified());
    second_added.Notify();
  });
  may_store.Notify();

  second_added.WaitForNotification();
}

TEST(PredictionUpload, EndsWithWhatIsUnderWay) {
  absl::Notification begun;
  auto upload = std::make_unique<PredictionUpload>(
      [&](const std::vector<TensorPart>&, const CancelToken& cancel) {
        begun.Notify();
        while (cancel.status().ok()) {
          cancel.Pause(absl::InfiniteDuration()).IgnoreError();
        }
        return cancel.status();
      },
      [](const v1::PredictedMark&) {});
  ASSERT_TRUE(upload->Add(Part(), Through(1)).ok());
  begun.WaitForNotification();

  upload->Cancel(absl::CancelledError("the order has changed"));

  EXPECT_TRUE(absl::IsCancelled(upload->Finish()));
}

}  // namespace
}  // namespace paceline
