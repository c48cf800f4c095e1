// Which life of a job a frame belongs to, as seen from this worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/ids.h"

namespace paceline {

// What this worker knows.  A worker that never ran anything knows nothing, and
// everything is newer to it.
struct FenceState {
  std::optional<Fence> open;    // the run it is in
  std::optional<Fence> closed;  // the highest it has left
};

enum class FenceVerdict : uint8_t {
  kAccept,     // of the open run
  kDropOlder,  // left behind by an earlier life: drop, count, keep the stream
  kHoldNewer,  // read no further until this worker's own order arrives
};

FenceVerdict DecideFence(const FenceState& mine, const Fence& theirs);

// "job=3 attempt=1 plan=7".
std::string ToText(const Fence& fence);

}  // namespace paceline
