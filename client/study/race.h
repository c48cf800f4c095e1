// A race: successive halving (Jamieson and Talwalkar 2016).  All trials train
// for a while, the better part goes on, and so forth until one is left, which
// trains on.  All of them together take as many samples as one trial that is
// trained to the end.  Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/study/study.h"

namespace paceline {

// `trials` trials train until step `end` of the first trial.  A trial with
// another batch size takes as many samples, in more or fewer steps.
struct Rung {
  size_t trials = 0;
  int64_t end = 0;  // steps since the race began
};

// The race's share of the budget halves the field, in rungs of equal length;
// the rest trains the winner.  With a plateau the rest is cut into eight rungs.
//   budget  steps of the first trial, of all trials together
// Errors: InvalidArgument  there is but one trial, or less than a step for each
absl::StatusOr<std::vector<Rung>> RungsOf(const Race& race, size_t trials,
                                          int64_t budget);

// Makes the jobs of a study those of the first rung.  A job that could not go
// on from a checkpoint to the same weights has the reason in `why`.
// Errors: those of RungsOf(); InvalidArgument  the first job counts epochs, and
//         the race has no budget
absl::StatusOr<std::vector<Rung>> BeginRace(const Study& study,
                                            std::vector<TrialJob>& jobs);

// The job that is alone in the newest rung and has succeeded.
std::optional<size_t> WinnerOf(const std::vector<TrialJob>& jobs);

// Adds the jobs of the next rung, once all jobs of the newest one have ended.
// False: the race is over, at its end or at a plateau.
bool AddRung(const Study& study, const std::vector<Rung>& rungs,
             std::vector<TrialJob>& jobs);

}  // namespace paceline
