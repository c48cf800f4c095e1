// The asynchronous schedule (ScheduleTraits::asynchronous; Narayanan et al.
// 2019, "PipeDream", section 3.2): micro-batches stream through the stages
// without a flush, and each is an update of its own on every stage.  Pure.
//
// Each stage has one worker.  The first stage then admits as many micro-batches
// as there are stages, N, before the first of them is back (NOAM in the paper),
// and the warm-up of stage s is N - 1 - s.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/errors.h"
#include "core/schedule/schedule.h"

namespace paceline {

// The number of forwards by which `stage` runs ahead of its backwards.
constexpr int WarmUp(int stage, int stages) { return stages - 1 - stage; }

// The order in which one stage computes, from an empty pipeline until it is
// empty again: that of the schedule's lists, for a stream of unknown length.
// Thread-compatible.
class AsynchronousOrder {
 public:
  enum class Next : uint8_t {
    kForward,
    kBackward,  // and then the update, before anything else
    kNothing,   // the pipeline is empty
  };

  // 0 <= stage < stages
  AsynchronousOrder(int stage, int stages)
      : warm_up_(WarmUp(stage, stages)), first_warm_up_(WarmUp(0, stages)) {
    PACELINE_CHECK(stage >= 0 && stage < stages, "stage=", stage,
                   " stages=", stages);
  }

  // more: another micro-batch comes that has not gone forward here.  The stage
  // asks for it only while WantsForward().
  Next Decide(bool more) const {
    if (WantsForward() && more) return Next::kForward;
    return in_flight() > 0 ? Next::kBackward : Next::kNothing;
  }
  // A forward comes next if there is a micro-batch for it.
  bool WantsForward() const { return in_flight() <= warm_up_; }

  void OnForward() { ++forwards_; }
  void OnBackward() { ++backwards_; }

  int64_t in_flight() const { return forwards_ - backwards_; }

  // The version at which the next forward computes, counted in updates of this
  // stream: the newest that this stage has; with vertical sync the newest that
  // the first stage had when it admitted the micro-batch, so that it is the
  // same on all stages.
  int64_t VersionOfNext(bool vertical_sync) const {
    if (!vertical_sync) return backwards_;
    // Micro-batch g enters the first stage after the updates of all up to
    // g - 1 - warm_up; so the version need not travel with it.
    return std::max<int64_t>(0, forwards_ - first_warm_up_);
  }

 private:
  const int warm_up_;
  const int first_warm_up_;  // of stage 0
  int64_t forwards_ = 0;
  int64_t backwards_ = 0;
};

// --- versions of the weights ---

// Follows one stage along its instructions and counts its versions.
//
// A version exists from the UPDATE that makes it.  It ends when no micro-batch
// that went forward at it waits for its backward, and no later forward will use
// it.  The next update overwrites a version that no micro-batch needs.  Without
// UPDATEs there is one version.  Thread-compatible.
class VersionCounter {
 public:
  // forced: the version of each micro-batch; empty: the newest there is.
  explicit VersionCounter(std::vector<int> forced);

  // Takes the stage's next instruction; only F, B, W and UPDATE change
  // anything.
  // Errors: InvalidArgument  a forward at a version that was not made yet
  absl::Status Follow(const Instruction& instruction);

  int kept() const;
  int most_kept() const { return most_; }
  int newest() const { return newest_; }

 private:
  std::vector<int> forced_;
  std::map<int, int> version_of_;  // of micro-batches in flight
  std::map<int, int> users_;       // by version
  int newest_ = 0;
  int oldest_to_come_ = 0;  // that a forward will ask for
  int most_ = 1;
};

// The version that the first stage has when it takes in each micro-batch, read
// from the list of its worker.  Vertical sync makes all stages use it.
std::vector<int> VersionsOfFirstStage(const InstructionList& list,
                                      int micro_batches);

// The most versions that each stage has.
//
// Returns [stages].
// Errors: InvalidArgument  with vertical sync, a forward at a version that its
//                          stage has not made yet
absl::StatusOr<std::vector<int>> KeptVersions(const Schedule& schedule);

}  // namespace paceline
