// How many versions of its weights each stage has at a time.  Pure.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/schedule/schedule.h"

namespace paceline {

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
