#include "core/obs/metrics.h"

#include <sys/wait.h>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, ShowNameHelpTypeAndValue) {
  MetricsRegistry registry;
  registry.DeclareCounter("paceline_test_frames_total", "Frames taken.",
                          {"stage", "code"});
  registry.DeclareGauge("paceline_test_memory_bytes", "Memory in use.");

  registry.GetCounter("paceline_test_frames_total", {"2", "ok"}).Add(3);
  registry.GetCounter("paceline_test_frames_total", {"2", "ok"}).Add();
  registry.GetGauge("paceline_test_memory_bytes").Set(-1.5);

  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# HELP paceline_test_frames_total Frames "
                              "taken.\n# TYPE paceline_test_frames_total "
                              "counter\npaceline_test_frames_total{"));
  EXPECT_THAT(text, HasSubstr("stage=\"2\""));
  EXPECT_THAT(text, HasSubstr("code=\"ok\""));
  EXPECT_THAT(text, HasSubstr("} 4\n"));
  EXPECT_THAT(text, HasSubstr("paceline_test_memory_bytes -1.5\n"));
}

TEST(Metrics, CountObservationsUpToEveryBucketsBound) {
  MetricsRegistry registry;
  registry.DeclareHistogram("step_seconds", "Step time.", {0.1, 1, 10});
  const Histogram histogram = registry.GetHistogram("step_seconds");

  for (const double seconds : {0.05, 0.5, 0.75, 100.0}) {
    histogram.Observe(seconds);
  }

  EXPECT_THAT(registry.Text(),
              HasSubstr("step_seconds_count 4\n"
                        "step_seconds_sum 101.3\n"
                        "step_seconds_bucket{le=\"0.1\"} 1\n"
                        "step_seconds_bucket{le=\"1\"} 3\n"
                        "step_seconds_bucket{le=\"10\"} 3\n"
                        "step_seconds_bucket{le=\"+Inf\"} 4\n"));
  // It takes what was counted elsewhere.
  histogram.ObserveMany({2, 0, 3, 1}, 31);
  histogram.ObserveMany({1, 1, 1, 1}, NAN);
  histogram.ObserveMany({1, -1, 1, 1}, 1);

  EXPECT_THAT(registry.Text(),
              HasSubstr("step_seconds_count 10\n"
                        "step_seconds_sum 132.3\n"
                        "step_seconds_bucket{le=\"0.1\"} 3\n"
                        "step_seconds_bucket{le=\"1\"} 5\n"
                        "step_seconds_bucket{le=\"10\"} 8\n"
                        "step_seconds_bucket{le=\"+Inf\"} 10\n"));
}

TEST(Metrics, AreNotSpoiledByAmountsThatAreNoNumbers) {
  MetricsRegistry registry;
  registry.DeclareCounter("c_total", "C.");
  registry.DeclareHistogram("h_seconds", "H.", {1});
  const Counter counter = registry.GetCounter("c_total");
  const Histogram histogram = registry.GetHistogram("h_seconds");
  counter.Add(2);
  histogram.Observe(0.5);

  for (const double bad :
       {double{NAN}, std::numeric_limits<double>::infinity()}) {
    counter.Add(bad);
    histogram.Observe(bad);
  }
  counter.Add(-1);

  EXPECT_THAT(registry.Text(), HasSubstr("c_total 2\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("h_seconds_sum 0.5\n"));
}

TEST(Metrics, LoseTheirSeriesWhenAJobEndsAndStartAgainFromZero) {
  MetricsRegistry registry;
  registry.DeclareCounter("steps_total", "S.", {"job"});
  registry.DeclareGauge("loss", "L.", {"job"});
  registry.DeclareHistogram("step_seconds", "T.", {1}, {"job"});
  registry.DeclareGauge("workers", "W.");
  registry.GetCounter("steps_total", {"1"}).Add(5);
  registry.GetCounter("steps_total", {"2"}).Add(5);
  registry.GetGauge("loss", {"1"}).Set(5);
  registry.GetHistogram("step_seconds", {"1"}).Observe(5);
  registry.GetGauge("workers").Set(4);

  registry.RemoveSeries("steps_total");
  registry.RemoveSeries("loss");
  registry.RemoveSeries("step_seconds");

  EXPECT_THAT(registry.Text(), Not(HasSubstr("job=")));
  EXPECT_THAT(registry.Text(), HasSubstr("workers 4\n"));
  registry.GetCounter("steps_total", {"1"}).Add(1);
  EXPECT_THAT(registry.Text(), HasSubstr("steps_total{job=\"1\"} 1\n"));
}

TEST(Metrics, OfOneJobGoWithoutThoseOfOthers) {
  MetricsRegistry registry;
  registry.DeclareGauge("seconds", "S.", {"job", "stage"});
  registry.GetGauge("seconds", {"1", "2"}).Set(5);
  registry.GetGauge("seconds", {"2", "1"}).Set(7);

  registry.RemoveSeries("seconds", "1");

  EXPECT_THAT(registry.Text(), Not(HasSubstr("job=\"1\"")));
  EXPECT_THAT(registry.Text(), HasSubstr("seconds{job=\"2\",stage=\"1\"} 7\n"));
}

TEST(Metrics, ComeInTheOrderOfTheirLabels) {
  MetricsRegistry registry;
  registry.DeclareGauge("g", "G.", {"stage"});
  for (const char* stage : {"3", "1", "0", "2"}) {
    registry.GetGauge("g", {stage}).Set(1);
  }

  EXPECT_THAT(registry.Text(),
              HasSubstr("g{stage=\"0\"} 1\ng{stage=\"1\"} 1\n"
                        "g{stage=\"2\"} 1\ng{stage=\"3\"} 1\n"));
}

TEST(Metrics, EscapeLabelValues) {
  MetricsRegistry registry;
  registry.DeclareGauge("g", "G.", {"why"});

  registry.GetGauge("g", {"a \"b\"\\\nc"}).Set(1);

  EXPECT_THAT(registry.Text(), HasSubstr("{why=\"a \\\"b\\\"\\\\\\nc\"} 1\n"));
}

TEST(Metrics, AddUpWhatThreadsCountWhileOthersRead) {
  MetricsRegistry registry;
  registry.DeclareCounter("c_total", "C.", {"stage"});
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;

  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("counter", [&registry] {
        for (int i = 0; i < kEach; ++i) {
          registry.GetCounter("c_total", {"0"}).Add();
        }
      });
    }
    for (int i = 0; i < 20; ++i) registry.Text();
  }

  EXPECT_THAT(registry.Text(), HasSubstr("c_total{stage=\"0\"} 4000\n"));
}

// Returns promtool's output for `text`, and its exit code in `code`.
std::string Promtool(const std::string& text, int* code) {
  const TempFolder folder;
  folder.Write("metrics", text);
  FILE* pipe = popen(
      absl::StrCat("promtool check metrics < ", folder.Path("metrics"), " 2>&1")
          .c_str(),
      "r");
  std::string said;
  char buffer[1024];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) {
    said.append(buffer, got);
  }
  *code = WEXITSTATUS(pclose(pipe));
  return said;
}

TEST(Metrics, AreAcceptedByPromtool) {
  MetricsRegistry registry;
  registry.DeclareCounter("paceline_test_frames_total", "Frames.", {"code"});
  registry.DeclareGauge("paceline_test_memory_bytes", "Memory.");
  registry.DeclareHistogram("paceline_test_step_seconds", "Time.", {0.1, 1},
                            {"stage"});
  registry.DeclareCounter("paceline_test_unused_total", "No series yet.");
  registry.GetCounter("paceline_test_frames_total", {"a\"\\\nb"}).Add(1e300);
  registry.GetGauge("paceline_test_memory_bytes").Set(NAN);
  registry.GetHistogram("paceline_test_step_seconds", {"0"}).Observe(0.3);

  int code = 0;
  const std::string said = Promtool(registry.Text(), &code);

  ASSERT_NE(code, 127) << "promtool is missing: install Debian's package "
                          "prometheus, as deploy/install-deps.sh --test does";
  EXPECT_EQ(code, 0) << said << registry.Text();
}

TEST(Metrics, AreRefusedByPromtoolWhenTheyAreWrong) {
  int code = 0;
  Promtool("paceline_test_frames{code=} 1\n", &code);

  EXPECT_NE(code, 0) << "the test above could not fail";
}

TEST(MetricsDeathTest, MustBeDeclaredOnceAndUsedAsDeclared) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MetricsRegistry registry;
  registry.DeclareCounter("c_total", "C.", {"code"});

  EXPECT_DEATH(registry.DeclareGauge("c_total", "C."), "declared twice");
  EXPECT_DEATH(registry.GetCounter("d_total"), "never declared");
  EXPECT_DEATH(registry.GetGauge("c_total", {"ok"}), "another type");
  EXPECT_DEATH(registry.GetCounter("c_total"), "has 1 labels, got 0");
  EXPECT_DEATH(Counter().Add(), "no registry");
}

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
