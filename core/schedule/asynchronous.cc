#include "core/schedule/asynchronous.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr int kNone = std::numeric_limits<int>::max();

}  // namespace

VersionCounter::VersionCounter(std::vector<int> forced)
    : forced_(std::move(forced)) {}

absl::Status VersionCounter::Follow(const Instruction& instruction) {
  const int micro_batch = instruction.micro_batch;
  switch (instruction.op) {
    case Op::kForward: {
      const int version = forced_.empty() ? newest_ : forced_[micro_batch];
      if (version > newest_) {
        return InvalidArgument("version: ", ToText(instruction),
                               " needs version ", version,
                               ", but its stage has made ", newest_);
      }
      version_of_[micro_batch] = version;
      ++users_[version];
      // Micro-batches go forward in ascending order, and versions ascend.
      const auto next = static_cast<size_t>(micro_batch) + 1;
      oldest_to_come_ = next < forced_.size() ? forced_[next] : kNone;
      break;
    }
    case Op::kBackward:
    case Op::kBackwardWeight: {
      const auto users = users_.find(version_of_[micro_batch]);
      if (--users->second == 0) users_.erase(users);
      version_of_.erase(micro_batch);
      break;
    }
    case Op::kUpdate:
      ++newest_;
      break;
    default:
      return absl::OkStatus();
  }
  most_ = std::max(most_, kept());
  return absl::OkStatus();
}

int VersionCounter::kept() const {
  if (forced_.empty()) {
    return static_cast<int>(users_.size() + (users_.count(newest_) == 0));
  }
  // Forced versions ascend, so all between the oldest and the newest are in use
  // or will be.
  int oldest = std::min(oldest_to_come_, newest_);
  if (!users_.empty()) oldest = std::min(oldest, users_.begin()->first);
  return newest_ - oldest + 1;
}

std::vector<int> VersionsOfFirstStage(const InstructionList& list,
                                      int micro_batches) {
  std::vector<int> versions(micro_batches, 0);
  int newest = 0;
  for (const Instruction& instruction : list) {
    if (instruction.stage != 0) continue;
    if (instruction.op == Op::kForward) {
      versions[instruction.micro_batch] = newest;
    }
    newest += instruction.op == Op::kUpdate;
  }
  return versions;
}

absl::StatusOr<std::vector<int>> KeptVersions(const Schedule& schedule) {
  std::vector<int> kept(schedule.stages, 1);
  if (!schedule.training || !schedule.asynchronous) return kept;
  std::vector<int> forced;
  if (schedule.vertical_sync) {
    forced = VersionsOfFirstStage(schedule.workers[schedule.worker_of[0]],
                                  schedule.micro_batches);
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    VersionCounter versions(forced);
    for (const Instruction& instruction :
         schedule.workers[schedule.worker_of[stage]]) {
      if (instruction.stage != stage) continue;
      PACELINE_RETURN_IF_ERROR(versions.Follow(instruction));
    }
    kept[stage] = versions.most_kept();
  }
  return kept;
}

}  // namespace paceline
