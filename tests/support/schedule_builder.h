// Schedules for tests, from a name or written by hand.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/schedule/schedule.h"

namespace paceline {

inline std::vector<int> OneWorkerAStage(int stages) {
  std::vector<int> worker_of;
  for (int stage = 0; stage < stages; ++stage) worker_of.push_back(stage);
  return worker_of;
}

// Every stage on the worker after that of the stage before.
inline std::vector<int> RoundRobin(int stages, int workers) {
  std::vector<int> worker_of;
  for (int stage = 0; stage < stages; ++stage) {
    worker_of.push_back(stage % workers);
  }
  return worker_of;
}

// Whether there is to be such a training schedule: what schedule.h says of
// each name, in other words.
inline bool IsMadeFor(const std::string& name, int micro_batches,
                      const std::vector<int>& worker_of) {
  const int stages = static_cast<int>(worker_of.size());
  const int workers = *std::max_element(worker_of.begin(), worker_of.end()) + 1;
  if (ScheduleTraitsOf(name).asynchronous)
    return worker_of == OneWorkerAStage(stages);
  if (!ScheduleTraitsOf(name).deals) return true;
  return stages % workers == 0 && worker_of == RoundRobin(stages, workers) &&
         (workers == stages || micro_batches % workers == 0);
}

// A placement of three or four stages that the schedule is made for, together
// with four micro-batches.
inline std::vector<int> PlacementFor(const std::string& name) {
  if (ScheduleTraitsOf(name).asynchronous) return {0, 1, 2};
  if (ScheduleTraitsOf(name).deals) return {0, 1, 0, 1};
  return {0, 0, 1};
}

// A schedule that must exist.
inline Schedule MustMake(const std::string& name, int stages, int micro_batches,
                         std::vector<int> worker_of, bool training = true) {
  absl::StatusOr<Schedule> schedule =
      MakeSchedule({.name = name,
                    .stages = stages,
                    .micro_batches = micro_batches,
                    .training = training,
                    .worker_of = std::move(worker_of)});
  PACELINE_CHECK(schedule.ok(), schedule.status().ToString());
  return *std::move(schedule);
}

// The instruction that ToText() writes as `word`.
inline Instruction InstructionOf(const std::string& word) {
  constexpr char kDigits[] = "0123456789";
  const size_t op = word.find_first_not_of(kDigits);
  PACELINE_CHECK(op != std::string::npos && op > 0, word);
  const size_t number = word.find_first_of(kDigits, op);
  Instruction read;
  read.stage = std::stoi(word);
  if (number != std::string::npos) {
    read.micro_batch = std::stoi(word.substr(number));
  }
  for (int each = 0; each <= static_cast<int>(Op::kUpdate); ++each) {
    read.op = static_cast<Op>(each);
    if (ToText(read) == word) break;
  }
  PACELINE_CHECK(ToText(read) == word, word);
  return read;
}

// A schedule written down by hand, a line a worker.
inline Schedule FromText(int stages, int micro_batches,
                         std::vector<int> worker_of,
                         const std::vector<std::string>& lines,
                         bool training = true, bool asynchronous = false) {
  Schedule schedule{.stages = stages,
                    .micro_batches = micro_batches,
                    .training = training,
                    .asynchronous = asynchronous,
                    .worker_of = std::move(worker_of),
                    .workers = {}};
  for (const std::string& line : lines) {
    InstructionList& list = schedule.workers.emplace_back();
    for (const auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      list.push_back(InstructionOf(std::string(word)));
    }
  }
  return schedule;
}

}  // namespace paceline
