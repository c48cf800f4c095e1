// Whose state is believed when members' states differ that must be equal:
// DESIGN 7.10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/round/view.h"

namespace paceline {

struct MismatchVerdict {
  std::vector<MemberId> minority;  // are to go, by id
  size_t majority = 0;             // who agree
  // Several states have as many members: none is to be believed, and the
  // group's state is restored in a new attempt.
  bool torn = false;
};

// states: hashes of the state after one step, as a round's server found them;
// 0: not known.  Those of others than the view's members count for nothing.
// Where all are equal nobody goes.
MismatchVerdict DecideMismatch(const View& view,
                               const std::map<MemberId, uint64_t>& states);

}  // namespace paceline
