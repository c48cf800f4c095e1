#include "core/transfer/tensor_codec.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  std::copy(values.begin(), values.end(), tensor.As<float>().begin());
  return tensor;
}

Tensor Noise(const Shape& shape) {
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  SplitMix64 random(7);
  for (float& value : tensor.As<float>()) {
    value = static_cast<float>(random.Unit() - 0.5);
  }
  return tensor;
}

std::vector<float> RoundTrip(Codec codec, const Tensor& tensor) {
  const Tensor encoded = Encode(codec, tensor);
  EXPECT_EQ(encoded.bytes(), EncodedBytes(codec, DType::kF32, tensor.shape));
  Tensor decoded = Tensor::Allocate(DType::kF32, tensor.shape);
  const Tensor& bytes = encoded;
  Decode(codec, bytes.As<uint8_t>(), decoded);
  const auto values = decoded.As<float>();
  return {values.begin(), values.end()};
}

double ErrorOf(Codec codec, const Tensor& tensor) {
  return RelativeError(tensor.As<float>(), RoundTrip(codec, tensor));
}

TEST(TensorCodec, HasANameForEach) {
  EXPECT_THAT(CodecNames(), ElementsAre("fp32", "bf16", "fp16", "int8"));
  for (const std::string& name : CodecNames()) {
    ASSERT_TRUE(FindCodec(name).has_value());
    EXPECT_EQ(CodecName(*FindCodec(name)), name);
  }
  EXPECT_EQ(FindCodec("fp8"), std::nullopt);
}

TEST(TensorCodec, RawSharesTheMemoryAndTakesAnyDType) {
  const Tensor labels = Tensor::Allocate(DType::kI64, {5});

  const Tensor encoded = Encode(Codec::kRaw, labels);

  EXPECT_EQ(encoded.data, labels.data);
  EXPECT_EQ(encoded.bytes(), 40);
  EXPECT_EQ(EncodedBytes(Codec::kBf16, DType::kI64, {5}), -1);
}

TEST(TensorCodec, SmallerCodecsHaveFewerBytes) {
  const Shape shape = {4, 197, 384};  // DeiT-S, a micro-batch of 4
  const int64_t elements = NumElements(shape);

  EXPECT_EQ(EncodedBytes(Codec::kRaw, DType::kF32, shape), 4 * elements);
  EXPECT_EQ(EncodedBytes(Codec::kBf16, DType::kF32, shape), 2 * elements);
  EXPECT_EQ(EncodedBytes(Codec::kF16, DType::kF32, shape), 2 * elements);
  // A scale for each token.
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, shape),
            elements + 4 * 197 * 4);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {1 << 30, 1 << 30, 64}),
            -1);
}

TEST(TensorCodec, RowsAreLongEnoughAndNeverAcrossSamples) {
  // 7 x 7 is too short for a scale of its own, 16 x 7 x 7 is not.
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {2, 16, 7, 7}),
            2 * 784 + 2 * 4);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {3, 10}), 30 + 3 * 4);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {3}), 3 + 3 * 4);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {0, 10}), 0);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, DType::kF32, {10, 0}), 0);
}

TEST(TensorCodec, NothingToEncodeIsNothing) {
  for (const Codec codec : {Codec::kBf16, Codec::kF16, Codec::kInt8}) {
    EXPECT_TRUE(
        RoundTrip(codec, Tensor::Allocate(DType::kF32, {2, 0})).empty());
  }
}

TEST(TensorCodec, EveryBf16SurvivesBf16) {
  std::vector<float> values;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    values.push_back(std::bit_cast<float>(half << 16));
  }

  const std::vector<float> got = RoundTrip(Codec::kBf16, Of({0x10000}, values));

  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got[i]),
                std::bit_cast<uint32_t>(values[i]));
    }
  }
}

TEST(TensorCodec, EveryF16SurvivesF16) {
  // All of them: (1 + m / 1024) 2^(e - 15), and m 2^-24 below.
  std::vector<float> values;
  for (int sign : {1, -1}) {
    for (int e = 0; e < 31; ++e) {
      for (int m = 0; m < 1024; ++m) {
        const double size =
            e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
        values.push_back(static_cast<float>(sign * size));
      }
    }
  }

  const std::vector<float> got =
      RoundTrip(Codec::kF16, Of({static_cast<int64_t>(values.size())}, values));

  EXPECT_EQ(got, values);
}

TEST(TensorCodec, RoundsToTheNearestAndTiesToEven) {
  EXPECT_THAT(RoundTrip(Codec::kBf16, Of({4}, {1 + 0x1p-8f, 1 + 0x3p-8f,
                                               1 + 0x1.1p-8f, -1 - 0x1p-8f})),
              ElementsAre(1, 1 + 0x1p-6f, 1 + 0x1p-7f, -1));
  EXPECT_THAT(
      RoundTrip(Codec::kF16, Of({5}, {1 + 0x1p-11f, 1 + 0x3p-11f,
                                      1 + 0x1.1p-11f, 0x1p-25f, 0x3p-25f})),
      ElementsAre(1, 1 + 0x1p-9f, 1 + 0x1p-10f, 0, 0x1p-23f));
}

TEST(TensorCodec, WhatIsNotFiniteIsStillFound) {
  const Tensor tensor = Of({4}, {kNan, kInf, -kInf, 70000});

  const std::vector<float> bf16 = RoundTrip(Codec::kBf16, tensor);
  const std::vector<float> f16 = RoundTrip(Codec::kF16, tensor);

  EXPECT_TRUE(std::isnan(bf16[0]));
  EXPECT_THAT(std::vector<float>(bf16.begin() + 1, bf16.end()),
              ElementsAre(kInf, -kInf, 70144));
  EXPECT_TRUE(std::isnan(f16[0]));
  EXPECT_THAT(std::vector<float>(f16.begin() + 1, f16.end()),
              ElementsAre(kInf, -kInf, kInf));
}

TEST(TensorCodec, Int8LosesARowThatIsNotFiniteAndNoOther) {
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> values(2 * 64, 1);
    values[3] = bad;

    const std::vector<float> got = RoundTrip(Codec::kInt8, Of({2, 64}, values));

    for (int i = 0; i < 64; ++i) {
      EXPECT_TRUE(std::isnan(got[i])) << bad;
      EXPECT_EQ(got[64 + i], 1) << bad;
    }
  }
}

TEST(TensorCodec, Int8IsWithinHalfAStepOfItsRow) {
  const Tensor tensor = Noise({8, 100});
  const auto values = tensor.As<float>();

  const std::vector<float> got = RoundTrip(Codec::kInt8, tensor);

  for (int row = 0; row < 8; ++row) {
    float most = 0;
    for (int i = 0; i < 100; ++i) {
      most = std::max(most, std::abs(values[100 * row + i]));
    }
    for (int i = 100 * row; i < 100 * row + 100; ++i) {
      EXPECT_LE(std::abs(got[i] - values[i]), most / 127 * 0.5001f);
    }
  }
}

TEST(TensorCodec, Int8KeepsTheLargestAndWritesTheTiniestAsZero) {
  std::vector<float> values(64, 0);
  values[0] = -3e38f;
  EXPECT_NEAR(RoundTrip(Codec::kInt8, Of({1, 64}, values))[0] / -3e38f, 1,
              1e-6);
  values[0] = 1e-40f;
  EXPECT_EQ(RoundTrip(Codec::kInt8, Of({1, 64}, values))[0], 0);
}

TEST(TensorCodec, ErrorsAreOfTheSizeThatTheBitsAllow) {
  const Tensor tensor = Noise({16, 384});

  const double bf16 = ErrorOf(Codec::kBf16, tensor);
  const double f16 = ErrorOf(Codec::kF16, tensor);
  const double int8 = ErrorOf(Codec::kInt8, tensor);

  EXPECT_GT(f16, 0);
  EXPECT_LT(f16, 0x1p-11);
  EXPECT_GT(bf16, f16);
  EXPECT_LT(bf16, 0x1p-8);
  EXPECT_GT(int8, bf16);
  EXPECT_LT(int8, 0.01);
}

TEST(TensorCodec, RelativeErrorAtItsEdges) {
  EXPECT_EQ(RelativeError({0.f, 0.f}, {0.f, 0.f}), 0);
  EXPECT_EQ(RelativeError({0.f}, {1.f}), kInf);
  EXPECT_DOUBLE_EQ(RelativeError({3.f, 4.f}, {3.f, 3.f}), 0.2);
}

}  // namespace
}  // namespace paceline
