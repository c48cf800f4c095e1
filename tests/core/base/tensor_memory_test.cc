
#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/tensor.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(TensorMemory, CountsATensorAsLongAsAnyCopyLives) {
  const int64_t before = TensorBytesNow();

  Tensor first = Tensor::Allocate(DType::kF32, {100});
  Tensor copy = first;
  first = {};

  EXPECT_EQ(TensorBytesNow(), before + 400);
  copy = {};
  EXPECT_EQ(TensorBytesNow(), before);
}

TEST(TensorMemory, RemembersTheMostAtATime) {
  BeginTensorPeak();
  const int64_t before = TensorBytesPeak();
  EXPECT_EQ(before, TensorBytesNow());

  { const Tensor one = Tensor::Allocate(DType::kF32, {100}); }
  { const Tensor two = Tensor::Allocate(DType::kF32, {50}); }

  EXPECT_EQ(TensorBytesPeak(), before + 400);
  BeginTensorPeak();
  EXPECT_EQ(TensorBytesPeak(), before);
}

TEST(TensorMemory, LosesNothingBetweenThreads) {
  constexpr int kThreads = 4, kRounds = 20'000;
  BeginTensorPeak();
  const int64_t before = TensorBytesNow();

  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kRounds; ++i) {
        CountTensorBytes(64);
        CountTensorBytes(-64);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(TensorBytesNow(), before);
  EXPECT_GE(TensorBytesPeak(), before + 64);
  EXPECT_LE(TensorBytesPeak(), before + 64 * kThreads);
}

}  // namespace
}  // namespace paceline
