#include "core/schedule/kept_versions.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr int kNone = std::numeric_limits<int>::max();

// Follows one stage along its instructions.
class VersionsOfStage {
 public:
  // forced: the version of each micro-batch; empty: the newest there is.
  VersionsOfStage(int micro_batches, const std::vector<int>& forced)
      : forced_(forced), version_of_(micro_batches, 0) {}

  absl::Status Follow(const Instruction& instruction) {
    const int micro_batch = instruction.micro_batch;
    switch (instruction.op) {
      case Op::kForward: {
        const int version = forced_.empty() ? newest_ : forced_[micro_batch];
        if (version > newest_) {
          return absl::InvalidArgumentError(
              absl::StrCat("version: ", ToText(instruction), " needs version ",
                           version, ", but its stage has made ", newest_));
        }
        version_of_[micro_batch] = version;
        ++users_[version];
        if (!forced_.empty()) OnForced(micro_batch);
        break;
      }
      case Op::kBackward:
      case Op::kBackwardWeight: {
        const auto users = users_.find(version_of_[micro_batch]);
        if (--users->second == 0) users_.erase(users);
        break;
      }
      case Op::kUpdate:
        ++newest_;
        break;
      default:
        return absl::OkStatus();
    }
    most_ = std::max(most_, Kept());
    return absl::OkStatus();
  }

  int most() const { return most_; }
  const std::vector<int>& version_of() const { return version_of_; }

 private:
  // Micro-batches go forward in ascending order, and versions ascend.
  void OnForced(int micro_batch) {
    const auto next = static_cast<size_t>(micro_batch) + 1;
    oldest_to_come_ = next < forced_.size() ? forced_[next] : kNone;
  }

  int Kept() const {
    if (forced_.empty()) {
      return static_cast<int>(users_.size() + (users_.count(newest_) == 0));
    }
    // Forced versions ascend, so all between the oldest and the newest are
    // in use or will be.
    int oldest = std::min(oldest_to_come_, newest_);
    if (!users_.empty()) oldest = std::min(oldest, users_.begin()->first);
    return newest_ - oldest + 1;
  }

  const std::vector<int>& forced_;  // outlives this
  std::vector<int> version_of_;     // [micro_batches]
  std::map<int, int> users_;        // by version
  int newest_ = 0;
  int oldest_to_come_ = 0;  // that a forward will ask for
  int most_ = 1;
};

absl::StatusOr<VersionsOfStage> FollowStage(const Schedule& schedule, int stage,
                                            const std::vector<int>& forced) {
  VersionsOfStage versions(schedule.micro_batches, forced);
  for (const Instruction& instruction :
       schedule.workers[schedule.worker_of[stage]]) {
    if (instruction.stage != stage) continue;
    PACELINE_RETURN_IF_ERROR(versions.Follow(instruction));
  }
  return versions;
}

}  // namespace

absl::StatusOr<std::vector<int>> KeptVersions(const Schedule& schedule) {
  std::vector<int> kept(schedule.stages, 1);
  if (!schedule.training || !schedule.asynchronous) return kept;
  const std::vector<int> own;
  PACELINE_ASSIGN_OR_RETURN(const VersionsOfStage first,
                            FollowStage(schedule, 0, own));
  const std::vector<int>& forced =
      schedule.vertical_sync ? first.version_of() : own;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    PACELINE_ASSIGN_OR_RETURN(const VersionsOfStage versions,
                              FollowStage(schedule, stage, forced));
    kept[stage] = versions.most();
  }
  return kept;
}

}  // namespace paceline
