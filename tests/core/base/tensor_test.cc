#include "core/base/tensor.h"

#include <cstdint>
#include <limits>

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

}  // namespace
}  // namespace paceline
