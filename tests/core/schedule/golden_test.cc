// Schedules against golden text: every file of tests/golden/schedules, whose
// name says what it holds.
//
//   SCHEDULE-STAGESxMICRO_BATCHES[-N-workers][-evaluation].txt
//
// Without N workers each stage has one of its own.  After a change that is
// meant, and after `touch` of a new file:
//   PACELINE_UPDATE_GOLDEN=1 build/release/bin/core_schedule_tests
// and read the difference before it is committed.
#include "tests/support/golden.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"

namespace paceline {
namespace {

constexpr char kFolder[] = PACELINE_SOURCE_DIR "/tests/golden/schedules";

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kFolder)) {
    if (file.path().extension() == ".txt") names.push_back(file.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The schedule that a file of this name holds.
Schedule Named(const std::string& name) {
  static const std::regex kName(
      "(.+)-([0-9]+)x([0-9]+)(-([0-9]+)-workers?)?(-evaluation)?");
  std::smatch parts;
  PACELINE_CHECK(std::regex_match(name, parts, kName), name);
  const std::string schedule = parts[1];
  const int stages = std::stoi(parts[2]);
  const int workers = parts[5].matched ? std::stoi(parts[5]) : stages;
  std::vector<int> worker_of = RoundRobin(stages, workers);
  // Neighbours share a worker where stages are not dealt out.
  if (!ScheduleTraitsOf(schedule).deals)
    std::sort(worker_of.begin(), worker_of.end());
  return MustMake(schedule, stages, std::stoi(parts[3]), worker_of,
                  /*training=*/!parts[6].matched);
}

TEST(GoldenSchedules, AreAsWritten) {
  for (const std::string& name : GoldenNames()) {
    Golden(absl::StrCat("schedules/", name)).AddText(ToText(Named(name)));
  }
}

TEST(GoldenSchedules, HoldEverySchedule) {
  const std::vector<std::string> files = GoldenNames();
  for (const std::string& name : ScheduleNames()) {
    EXPECT_TRUE(std::any_of(files.begin(), files.end(),
                            [&](const std::string& file) {
                              return file.rfind(name + "-", 0) == 0;
                            }))
        << name << " has no file in tests/golden/schedules";
  }
}

}  // namespace
}  // namespace paceline
