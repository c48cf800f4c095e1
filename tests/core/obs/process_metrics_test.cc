// A process shows what it uses.
#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/obs/metrics.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

class ProcessMetricsTest : public ::testing::Test {
 protected:
  // -1: there is no such series.
  double Value(const std::string& name) {
    metrics_.Update();
    double value = -1;
    for (const absl::string_view line :
         absl::StrSplit(registry_.Text(), '\n')) {
      if (!absl::StartsWith(line, absl::StrCat(name, " "))) continue;
      if (!absl::SimpleAtod(line.substr(name.size() + 1), &value)) return -1;
    }
    return value;
  }

  MetricsRegistry registry_;
  ProcessMetrics metrics_{registry_};
};

TEST_F(ProcessMetricsTest, CountAFileWhileItIsOpen) {
  const double before = Value(kProcessFiles);
  std::FILE* const file = std::fopen("/dev/null", "r");
  ASSERT_NE(file, nullptr);

  EXPECT_EQ(Value(kProcessFiles), before + 1);

  std::fclose(file);
  EXPECT_EQ(Value(kProcessFiles), before);
}

TEST_F(ProcessMetricsTest, CountCpuTimeOfTheProcess) {
  const double before = Value(kProcessCpu);
  EXPECT_GT(before, 0);

  const double more = Value(kProcessCpu) - before;

  EXPECT_GT(more, 0);
  EXPECT_LT(more, 60);
}

TEST_F(ProcessMetricsTest, SayMemoryThreadsAndTheStart) {
  const double now =
      absl::ToDoubleSeconds(SystemClock().Today() - absl::UnixEpoch());

  EXPECT_GT(Value(kProcessMemory), 1 << 20);
  EXPECT_GE(Value(kProcessThreads), 1);
  EXPECT_NEAR(Value(kProcessStart), now, 60);
}

}  // namespace
}  // namespace paceline
