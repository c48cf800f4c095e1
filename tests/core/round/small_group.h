// Members and views for tests of core/round.
#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/round/view.h"
#include "tests/support/fake_clock.h"

namespace paceline {

inline MemberId Member(int64_t worker, uint64_t incarnation = 1) {
  return {{worker}, {incarnation}};
}

// Workers 0 to count - 1, all from step 0, levelled by the first.
inline View SmallView(int count, int64_t counter = 1) {
  View view;
  view.id = {1, counter};
  for (int i = 0; i < count; ++i) view.members.push_back({Member(i), 0});
  view.leveller = Member(0);
  return view;
}

}  // namespace paceline
