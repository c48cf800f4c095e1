// --slow and --fail of `paceline simulate`.  Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/plan/problem.h"
#include "core/simulate/simulation.h"

namespace paceline {

// "DEVICE@TIME=FACTOR[:DURATION]": a device's name, else its number; seconds.
// Errors: InvalidArgument  names the flag, the part that is wrong, and what is
// right; a factor below 1; a device that there is not.
absl::StatusOr<SimulatedSlowDown> ParseSlowDown(const std::string& text,
                                                const PlanProblem& problem);

// "DEVICE@TIME[:BACK]": BACK seconds later the step is run again.
// Errors: as above.
absl::StatusOr<SimulatedFailure> ParseFailure(const std::string& text,
                                              const PlanProblem& problem);

}  // namespace paceline
