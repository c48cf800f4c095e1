#include "worker/meters/cpu.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"

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

TEST(EnvironmentFor, RefusesUnknownLevelsAndThoseAboveTheCpus) {
  ExpectError(EnvironmentFor("avx512", "x86_64", "avx2").status(),
              absl::StatusCode::kFailedPrecondition,
              HasSubstr("this CPU has avx2"));
  EXPECT_EQ(EnvironmentFor("sse9", "x86_64", "avx2").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DetectCpuCapability, IsOneThatEnvironmentForAccepts) {
  const std::string detected = DetectCpuCapability();

  EXPECT_TRUE(EnvironmentFor(detected, Architecture(), detected).ok())
      << detected;
}

TEST(MemoryBytes, IsKnownHere) { EXPECT_GT(MemoryBytes(), 0); }

TEST(CgroupMemoryLimit, IsTheLeastOfTheProcessesGroupsAndThoseAbove) {
  const TempFolder root;
  root.Write("a.slice/memory.max", "3000\n");
  root.Write("a.slice/b.service/memory.max", "2000\n");
  root.Write("a.slice/c.service/memory.max", "max\n");
  root.Write("memory/d/memory.limit_in_bytes", "1000\n");
  const auto limit = [&root](const char* memberships) {
    return CgroupMemoryLimit(memberships, root.path());
  };

  EXPECT_EQ(limit("0::/a.slice/b.service\n"), 2000);
  EXPECT_EQ(limit("0::/a.slice/c.service\n"), 3000);
  EXPECT_EQ(limit("0::/\n"), 0);
  EXPECT_EQ(limit("5:memory:/d/e\n4:cpu:/a.slice\n1:name=systemd:/d\n"), 1000);
  EXPECT_EQ(limit("no cgroups"), 0);
  // A container sees its own group as the root.
  root.Write("memory.max", "4000\n");
  EXPECT_EQ(limit("0::/\n"), 4000);
}

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

// Two packages, and the cores of the first, which it counts too.
struct Counters {
  TempFolder folder;
  EnergyMeter meter{folder.path()};

  void Show(const std::string& first, const std::string& second) const {
    for (const auto& [name, text] : {std::pair("intel-rapl:0", first),
                                     {"intel-rapl:1", second},
                                     {"intel-rapl:2", first},
                                     {"intel-rapl:0:0", first}}) {
      folder.Write(absl::StrCat(name, "/energy_uj"), absl::StrCat(text, "\n"));
      folder.Write(absl::StrCat(name, "/max_energy_range_uj"), "10000000\n");
    }
    folder.Write("dtpm/energy_uj", "5");
    folder.Write("intel-rapl:0/name", "package-0\n");
    folder.Write("intel-rapl:2/name", "psys\n");
  }
};

TEST(EnergyMeter, AddsAllPackagesFromTheBeginningOn) {
  Counters counters;
  counters.Show("1000000", "2000000");
  counters.meter.Begin();
  counters.Show("1500000", "2250000");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 0.75);

  counters.meter.Begin();
  EXPECT_EQ(counters.meter.Joules(), 0);
}

TEST(EnergyMeter, GoesOnWhereACounterBeginsAnew) {
  Counters counters;
  counters.Show("9000000", "0");
  counters.meter.Begin();
  counters.Show("1000000", "0");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 2);
  counters.Show("1500000", "0");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 2.5);
}

TEST(EnergyMeter, IsZeroWithoutCountersOrWithNoNumbers) {
  Counters counters;
  counters.meter.Begin();
  EXPECT_EQ(counters.meter.Joules(), 0);
  counters.Show("much", "");
  EXPECT_EQ(counters.meter.Joules(), 0);
  EnergyMeter nowhere("/no/such/folder");
  nowhere.Begin();
  EXPECT_EQ(nowhere.Joules(), 0);
}

}  // namespace
}  // namespace paceline
