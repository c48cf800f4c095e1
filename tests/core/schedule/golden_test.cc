// Schedules against golden text (tests/golden/schedules).
//
// After a change that is meant:
//   PACELINE_UPDATE_GOLDEN=1 build/release/bin/core_schedule_tests
// and read the difference before it is committed.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"

namespace paceline {
namespace {

struct GoldenCase {
  std::string file;  // without .txt
  std::string schedule;
  int stages;
  int micro_batches;
  std::vector<int> worker_of;
  bool training;
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
  return out << golden.file;
}

class Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, ScheduleIsAsWritten) {
  const GoldenCase& golden = GetParam();
  const std::string path =
      std::string(PACELINE_SOURCE_DIR "/tests/golden/schedules/") +
      golden.file + ".txt";
  const std::string made =
      ToText(MustMake(golden.schedule, golden.stages, golden.micro_batches,
                      golden.worker_of, golden.training));
  if (std::getenv("PACELINE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << made;
  }

  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << "no " << path;
  std::stringstream written;
  written << file.rdbuf();

  EXPECT_EQ(made, written.str())
      << golden.file << ".txt differs. If the change is meant, run this "
      << "program once with PACELINE_UPDATE_GOLDEN=1 and read the difference.";
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Golden,
    ::testing::Values(
        GoldenCase{"1f1b-1x3", "1f1b", 1, 3, {0}, true},
        GoldenCase{"1f1b-2x4", "1f1b", 2, 4, {0, 1}, true},
        GoldenCase{"1f1b-3x4-2-workers", "1f1b", 3, 4, {0, 0, 1}, true},
        GoldenCase{"1f1b-4x2", "1f1b", 4, 2, {0, 1, 2, 3}, true},
        GoldenCase{"1f1b-4x8", "1f1b", 4, 8, {0, 1, 2, 3}, true},
        GoldenCase{"1f1b-4x8-1-worker", "1f1b", 4, 8, {0, 0, 0, 0}, true},
        GoldenCase{"1f1b-4x8-2-workers", "1f1b", 4, 8, {0, 0, 1, 1}, true},
        GoldenCase{"1f1b-4x4-evaluation", "1f1b", 4, 4, {0, 1, 2, 3}, false},
        GoldenCase{"gpipe-1x3", "gpipe", 1, 3, {0}, true},
        GoldenCase{"gpipe-2x4", "gpipe", 2, 4, {0, 1}, true},
        GoldenCase{"gpipe-4x8", "gpipe", 4, 8, {0, 1, 2, 3}, true},
        GoldenCase{"gpipe-4x4-2-workers", "gpipe", 4, 4, {0, 0, 1, 1}, true},
        GoldenCase{"interleaved-1f1b-4x4-2-workers",
                   "interleaved-1f1b",
                   4,
                   4,
                   {0, 1, 0, 1},
                   true},
        GoldenCase{"interleaved-1f1b-8x8-4-workers",
                   "interleaved-1f1b",
                   8,
                   8,
                   {0, 1, 2, 3, 0, 1, 2, 3},
                   true},
        GoldenCase{"interleaved-1f1b-6x4-2-workers",
                   "interleaved-1f1b",
                   6,
                   4,
                   {0, 1, 0, 1, 0, 1},
                   true},
        GoldenCase{"pipedream-1x3", "pipedream", 1, 3, {0}, true},
        GoldenCase{"pipedream-4x8", "pipedream", 4, 8, {0, 1, 2, 3}, true},
        GoldenCase{"pipedream-3x2", "pipedream", 3, 2, {0, 1, 2}, true},
        GoldenCase{"zero-bubble-1x3", "zero-bubble", 1, 3, {0}, true},
        GoldenCase{"zero-bubble-4x8", "zero-bubble", 4, 8, {0, 1, 2, 3}, true},
        GoldenCase{"zero-bubble-4x2", "zero-bubble", 4, 2, {0, 1, 2, 3}, true},
        GoldenCase{"zero-bubble-4x4-2-workers",
                   "zero-bubble",
                   4,
                   4,
                   {0, 0, 1, 1},
                   true}),
    [](const ::testing::TestParamInfo<GoldenCase>& info) {
      std::string name;
      for (const char c : info.param.file) name += c == '-' ? '_' : c;
      return name;
    });

}  // namespace
}  // namespace paceline
