#include "client/views.h"

namespace paceline {

std::optional<double> TestAccuracy(const JobView& job) {
  if (job.evaluations.empty()) return std::nullopt;
  return job.evaluations.back().accuracy;
}

}  // namespace paceline
