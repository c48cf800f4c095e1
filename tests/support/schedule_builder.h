// Schedules for tests, from a name or written by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/schedule/schedule.h"

namespace paceline {

inline std::vector<int> OneWorkerAStage(int stages) {
  std::vector<int> worker_of;
  for (int stage = 0; stage < stages; ++stage) worker_of.push_back(stage);
  return worker_of;
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

// A schedule written down by hand, a line a worker.
inline Schedule FromText(int stages, int micro_batches,
                         std::vector<int> worker_of,
                         const std::vector<std::string>& lines,
                         bool training = true) {
  Schedule schedule{.stages = stages,
                    .micro_batches = micro_batches,
                    .training = training,
                    .worker_of = std::move(worker_of),
                    .workers = {}};
  for (const std::string& line : lines) {
    absl::StatusOr<InstructionList> list = InstructionsFromText(line);
    PACELINE_CHECK(list.ok(), list.status().ToString());
    schedule.workers.push_back(*std::move(list));
  }
  return schedule;
}

}  // namespace paceline
