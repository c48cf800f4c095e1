// The outer level of the pipedream cost model: which machines hold which run of
// states.  Internal to core/plan.  Thread-compatible.
//
// The least time for which there is a plan is closed in from both sides, by
// asking PipedreamFits.  Plans that it allows are looked at run by run, exactly
// (PipedreamRow), until one is as good as it seems or none is left; what was
// learnt of a run on the way is kept.  The first time that is asked is what a
// part of the states allows (of many devices with little memory first half of
// it); then ever fewer runs are in question.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/pipedream/fits.h"
#include "core/plan/pipedream/row.h"
#include "core/plan/pipedream/state_space.h"

namespace paceline {

struct LevelAnswer {
  double seconds = 0;  // infinite: none
  std::vector<PipedreamRun> runs;
};

class PipedreamLevels {
 public:
  // `space` outlives this.
  PipedreamLevels(const StateSpace& space, const LevelOptions& options);

  // The best of all plans, to the last digits; of equal ones one on more
  // machines.  Its seconds are infinite when nothing fits.
  LevelAnswer Solve();

 private:
  // The numbers are ranks (see PipedreamFits).
  struct Run {
    int first = 0;
    int last = 0;
    int machines = 1;
    int rest = 0;  // machines after it
  };
  struct Plan {
    double seconds = 0;
    std::vector<Run> runs;
  };
  // Holds what is known of runs with the same end and as many devices after it.
  struct Known {
    double most_seconds = 0;      // exact up to there, more beyond
    std::vector<double> seconds;  // [ranks below the end], of a row
  };
  enum class Total { kFewest, kMost };

  int Later(int rest, int machines) const {
    return LaterDevices(options_, rest, machines);
  }
  LevelAnswer SolveOneMachine();
  double MostSeconds() const;
  double RunSeconds(const Run& run, double row_seconds) const;
  double ExactSeconds(const Run& run, double most_seconds);
  const Known* AtLeast(int last, int later) const;
  void PutFirsts(const Run& run, double most_seconds);
  void Reach(double most_seconds);
  std::optional<Run> RunFrom(int first, int machines, double most_seconds);
  std::vector<Run> Path(int machines, double most_seconds);
  int TotalOf(Total which) const;
  std::optional<Plan> PlanWithin(double most_seconds, Total which);
  double Guess(double least_seconds) const;
  bool GuessIsRough() const;
  Plan CloseIn(double least_seconds);
  std::vector<PipedreamRun> RunsOf(const Plan& plan);

  const StateSpace& space_;
  const LevelOptions options_;
  PipedreamRow row_;
  std::optional<PipedreamFits> fits_;
  std::map<std::pair<int, int>, Known> known_;  // of (end, devices after it)
  // [machines + 1, words]: states from where as many machines could do.
  std::vector<uint64_t> reach_;
  std::vector<uint64_t> firsts_;  // scratch of PutFirsts
};

}  // namespace paceline
