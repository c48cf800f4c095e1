#include "coordinator/job_store.h"

#include <algorithm>

namespace paceline {

std::vector<int64_t> EvenlyTaken(int64_t count, int64_t points) {
  const int64_t taken = std::max<int64_t>(0, std::min(count, points));
  std::vector<int64_t> positions(taken);
  // Counted from the end, so that the newest record is never left out.
  for (int64_t i = 0; i < taken; ++i) {
    positions[taken - 1 - i] =
        count - 1 -
        static_cast<int64_t>(static_cast<__int128>(i) * count / taken);
  }
  return positions;
}

}  // namespace paceline
