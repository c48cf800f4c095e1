#include "worker/wiring.h"

#include <algorithm>

namespace paceline {

int StageWiring::IndexOf(WorkerId worker) const {
  const auto found = std::find_if(
      replicas.begin(), replicas.end(),
      [worker](const WorkerAddress& each) { return each.worker == worker; });
  return found == replicas.end() ? -1
                                 : static_cast<int>(found - replicas.begin());
}

}  // namespace paceline
