#include "core/base/tensor.h"

#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;

TEST(NumElements, MultipliesTheDimensions) {
  EXPECT_EQ(NumElements({2, 3, 4}), 24);
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({5, 0}), 0);
}

TEST(NumElements, SaysMinusOneForImpossibleShapes) {
  EXPECT_EQ(NumElements({2, -1}), -1);
  EXPECT_EQ(NumElements({kHuge, 3}), -1);
}

TEST(TensorBytes, CountsTheElementSize) {
  EXPECT_EQ(TensorBytes(DType::kF32, {2, 3}), 24);
  EXPECT_EQ(TensorBytes(DType::kI64, {2, 3}), 48);
  EXPECT_EQ(TensorBytes(DType::kU8, {}), 1);
}

TEST(TensorBytes, SaysMinusOneWhenOnlyTheBytesOverflow) {
  EXPECT_EQ(NumElements({kHuge}), kHuge);
  EXPECT_EQ(TensorBytes(DType::kF32, {kHuge}), -1);
}

TEST(Tensor, IsAlignedForEverySimdWidth) {
  for (const int64_t size : {0, 1, 7, 1000}) {
    const Tensor tensor = Tensor::Allocate(DType::kF32, {size});

    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.get()) % 64, 0u) << size;
    EXPECT_EQ(tensor.As<float>().size(), static_cast<size_t>(size));
  }
}

TEST(Tensor, SharesItsMemoryWithCopies) {
  Tensor tensor = Tensor::Allocate(DType::kI64, {2});
  const Tensor copy = tensor;

  tensor.As<int64_t>()[1] = 7;

  EXPECT_EQ(copy.As<int64_t>()[1], 7);
}

TEST(DType, NamesComeBack) {
  for (int value = 1; value < kDTypes; ++value) {
    const auto dtype = static_cast<DType>(value);

    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
    EXPECT_GT(ElementBytes(dtype), 0) << DTypeName(dtype);
  }
  EXPECT_EQ(DTypeFromName("F64"), std::nullopt);
  EXPECT_EQ(DTypeFromName("unspecified"), std::nullopt);
  EXPECT_EQ(ElementBytes(DType::kUnspecified), 0);
}

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
