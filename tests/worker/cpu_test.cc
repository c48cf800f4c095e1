#include "worker/measure/cpu.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(EnvironmentFor, HoldsAllThreeLibrariesAtOneLevel) {
  const auto environment = Value(EnvironmentFor("avx2", "x86_64", "avx512"));

  EXPECT_THAT(environment, Contains(Pair("ATEN_CPU_CAPABILITY", "avx2")));
  EXPECT_THAT(environment, Contains(Pair("ONEDNN_MAX_CPU_ISA", "AVX2")));
  EXPECT_THAT(environment, Contains(Pair("OPENBLAS_CORETYPE", "HASWELL")));
}

TEST(EnvironmentFor, KeepsIdleThreadPoolsAtOneThread) {
  const auto environment =
      Value(EnvironmentFor("default", "aarch64", "default"));

  EXPECT_THAT(environment, Contains(Pair("OMP_NUM_THREADS", "1")));
  EXPECT_THAT(environment, Contains(Pair("OPENBLAS_NUM_THREADS", "1")));
}

TEST(EnvironmentFor, RefusesMoreThanTheCpuHas) {
  const auto environment = EnvironmentFor("avx512", "x86_64", "avx2");

  ExpectError(environment.status(), absl::StatusCode::kFailedPrecondition,
              HasSubstr("this CPU has avx2"));
}

TEST(EnvironmentFor, RefusesAnUnknownLevel) {
  EXPECT_EQ(EnvironmentFor("sse9", "x86_64", "avx2").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DetectCpuCapability, IsOneThatEnvironmentForAccepts) {
  const std::string detected = DetectCpuCapability();

  EXPECT_TRUE(EnvironmentFor(detected, Architecture(), detected).ok())
      << detected;
}

TEST(MemoryBytes, IsKnownHere) { EXPECT_GT(MemoryBytes(), 0); }

TEST(EnvironmentFor, Bf16IsAMatterOfOneDnnAlone) {
  const auto environment =
      Value(EnvironmentFor("avx512_bf16", "x86_64", "avx512_bf16"));

  EXPECT_THAT(environment, Contains(Pair("ATEN_CPU_CAPABILITY", "avx512")));
  EXPECT_THAT(environment,
              Contains(Pair("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")));
  EXPECT_THAT(environment, Contains(Pair("OPENBLAS_CORETYPE", "SKYLAKEX")));
  EXPECT_FALSE(EnvironmentFor("avx512_bf16", "x86_64", "avx512").ok());
}

TEST(FirstCpuCapability, LeavesOutWhatOnlyBf16JobsAskFor) {
  const std::string detected = DetectCpuCapability();

  EXPECT_EQ(FirstCpuCapability(),
            detected == "avx512_bf16" ? "avx512" : detected);
}

}  // namespace
}  // namespace paceline
