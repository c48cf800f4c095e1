// The outer level of the pipedream cost model: chooses the machines and the run
// of states of each.  Internal to core/plan.  Thread-compatible.
//
//   time   0 ......... below ........ next ........ best ......... most
//          no plan fits here  | PipedreamFits    | a plan is  | every plan
//                             | decides at next  | known      | fits
//
//   states 0 [ run on 2 machines ][ run on 1 ][ run on 1 ] end
//
// The search narrows [below, best] from both sides by calls of PipedreamFits.
// It computes the runs of an allowed plan exactly (PipedreamRow), one by one,
// until a plan is as fast as its bound or none is left, and keeps the exact
// times.  It first tries the time that a part of the states allows (with many
// devices and little memory, first half of it).  After that ever fewer runs are
// possible.
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

  // Returns the best of all plans, to the last digits; of equal ones a plan on
  // more machines.  Its seconds are infinite when nothing fits.
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
  // Known times of runs with the same end and as many devices after it.
  struct Known {
    double most_seconds = 0;      // times up to this are exact, others above it
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
  std::map<std::pair<int, int>, Known> known_;  // by (end, devices after it)
  // [machines + 1, words]: states from which this many machines could reach the
  // end.
  std::vector<uint64_t> reach_;
  std::vector<uint64_t> firsts_;  // scratch of PutFirsts
};

}  // namespace paceline
