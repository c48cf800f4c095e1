// The outer level of the pipedream cost model: which machines hold which run of
// states.  Internal to core/plan.  Thread-compatible.
#pragma once

#include <vector>

#include "core/plan/pipedream_row.h"
#include "core/plan/state_space.h"

namespace paceline {

struct LevelOptions {
  RowOptions row;               // inside a machine
  int machines = 1;             // 1: there is only the inner level
  double bytes_per_second = 0;  // between machines
};

// State `last` without state `first`, on as many machines.
struct PipedreamRun {
  int first = 0;
  int last = 0;
  int machines = 1;
  std::vector<RowStage> stages;  // of each of the machines
};

struct LevelAnswer {
  double seconds = 0;  // infinite: none
  std::vector<PipedreamRun> runs;
};

// The synchronisation of a run's parameters between its machines, and twice its
// boundary bytes over their links, in seconds before division by machines.
double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines);
double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state);

// The most bytes, one version of each, that `devices` of `memory_bytes` hold
// in any stages when `later_devices` come after them: a stage on m devices with
// n after it keeps at least 1 + n / m versions, so that m devices hold no more
// than what m stages of one device would.
double MostHeldBytes(double memory_bytes, int later_devices, int devices);

class PipedreamLevels {
 public:
  // `space` outlives this.
  PipedreamLevels(const StateSpace& space, const LevelOptions& options);

  // The best of all plans; of equal ones one on more machines.  Its seconds are
  // infinite when nothing fits.
  LevelAnswer Solve();

 private:
  struct Next {
    int state = -1;
    int machines = 0;
  };
  // `machines` hold the run that ends at a state, `rest` are after it.
  struct Split {
    int rest = 0;
    int machines = 0;
  };

  size_t At(int machines, int state) const {
    return static_cast<size_t>(machines) * space_.states + state;
  }
  bool CouldBeFaster(int last, const Split& split) const;
  bool CouldFit(int last, const Split& split) const;
  RowPlace PlaceOf(const Split& split) const;
  std::vector<Split> SplitsAt(int last) const;
  void SolveAt(int last);
  void Extend(int last, const Split& split);
  int BestTotal() const;
  std::vector<PipedreamRun> RunsFrom(int machines, double seconds);
  // Only runs that end at each `step`-th state, and at the last one.
  void SolveEvery(int step);

  const StateSpace& space_;
  const LevelOptions options_;
  PipedreamRow row_;
  std::vector<double> transfer_;  // [states]
  std::vector<double> held_;      // [machines + 1]: by the last so many
  double below_seconds_ = 0;
  // [machines + 1, states]: of (state, all], and what comes first there.
  std::vector<double> best_;
  std::vector<Next> next_;
};

}  // namespace paceline
