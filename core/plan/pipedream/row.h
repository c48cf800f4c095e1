// The inner level of the pipedream cost model: the best stages between two
// states on devices that are all alike.  Thread-compatible; keeps its arrays
// between calls.
//
//   states    first ......... cut ................. last
//             | stage on m    | rest: later stages  |
//             | devices       | on rest devices     |
//   rest[m + rest][first] = min over cut of max(stage, rest[rest][cut])
//
// A stage (a, b] holds the nodes of state b that are not in state a.  On m
// devices at B bytes a second it takes
//   t = (C + 4 (m - 1) / m W / B) / m
// with C its seconds and W its parameter bytes.  This is the released
// optimizer's formula; that of Narayanan et al. 2019, section 3.1, has 2 for 4,
// and the larger of both for the sum.  With transfers counted, a stage takes at
// least 2 x / (B m), for the x bytes over the boundary before it and for those
// over the one after it.  Transfers of the first stage of a row and of the end
// of the graph do not count.  A row takes as long as its slowest stage.
//
// A stage fits when (outputs + parameters) x versions are within the memory of
// a device: versions = ceil(devices after it / its replicas) + 1, the stash of
// the paper's section 3.3.  (The released optimizer leaves out the 1 and so
// never bounds the last stage.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/pipedream/state_space.h"

namespace paceline {

struct RowOptions {
  double bytes_per_second = 0;  // between two of the devices
  int devices = 1;
  bool replicas = true;
  bool count_transfers = false;
  double memory_bytes = 0;  // of a device; 0: no bound
};

// The row's position in the whole pipeline: the machines that hold the same
// row, and the devices after it.
struct RowPlace {
  int machines = 1;
  int later_devices = 0;
};

// The nodes of state `last` that are not in state `first`.
struct RowStage {
  int first = 0;
  int last = 0;
  int replicas = 1;      // in one machine
  int rest_devices = 0;  // devices of the row after this stage
};

// Returns the copies of weights and outputs that a stage keeps.
int64_t VersionsOf(const RowPlace& place, int replicas, int rest_devices);

class PipedreamRow {
 public:
  // `space` outlives the row.
  PipedreamRow(const StateSpace& space, const RowOptions& options);

  // Solves for every state inside `last`, with the best number of the devices.
  // It does not look for rows that take longer than `most_seconds`, which saves
  // all states with too much compute before `last`.
  // O(devices^2 x chains x states that are left).
  void Solve(int last, const RowPlace& place, double most_seconds = HUGE_VAL);

  // Returns the seconds of (state, last], [states]: infinite where no stages
  // fit; above `most_seconds` where that does not suffice.  Valid for states
  // inside `last`, until the next Solve().
  const std::vector<double>& seconds() const { return seconds_; }

  // Returns the stages of (first, last], in order, none of which takes more
  // than `most_seconds`, which is at least the answer for `first`.  Each is as
  // large as possible, which keeps them few.  Spare devices become replicas
  // where they do no harm.
  std::vector<RowStage> StagesFrom(int first, double most_seconds) const;

 private:
  // A cut that may still be the best one.
  struct Kept {
    double behind_seconds;
    double compute_seconds;
    double parameter_bytes;
    double bytes;
  };
  // Sentinels.  The one before the kept cuts has an infinite stage.  The one
  // after them has infinite time behind it, and its stage always fits.
  static constexpr Kept kBeforeKept = {-HUGE_VAL, HUGE_VAL, 0, 0};
  static constexpr Kept kAfterKept = {HUGE_VAL, 0, 0, -HUGE_VAL};
  // With a number of replicas, a stage takes compute x share + parameters x
  // sync.
  struct Replicas {
    double share = 0;
    double sync = 0;
    double most_bytes = 0;
    int cross = 0;  // the first kept cut whose rest is not below its stage
    int fits = 0;   // the first kept cut whose stage fits
  };

  // One pass over two chains: stages on `least` to `most` devices, with
  // rest_devices behind them, as first stages, as later ones, or both.
  struct Pass {
    int rest_devices = 0;
    int least = 1;
    int most = 0;
    bool as_first = true;  // the row may begin with the stage
    bool as_rest = true;   // the stage may come later in the row
  };

  double* Rest(int devices) {
    return &rest_[static_cast<size_t>(devices) * space_.states];
  }
  const double* Rest(int devices) const {
    return &rest_[static_cast<size_t>(devices) * space_.states];
  }
  int MostReplicas(int devices) const {
    return options_.replicas ? devices : std::min(devices, 1);
  }
  double Seconds(const RowStage& stage, bool is_first) const;
  void LeaveOutFar();
  void TakeWhole(int replicas);
  void TakeSplits(int rest_devices);
  void TakeAll(const Pass& pass);
  void TakeSplitsOf(int first_chain, int cut_chain, const Pass& pass);
  void Keep(int cut, double behind_seconds, const Pass& pass);
  void TakeBestCuts(int first, const Pass& pass);
  bool Fits(const RowStage& stage, bool is_first, double most_seconds) const;
  RowStage Largest(int first, int devices, bool is_first,
                   double most_seconds) const;
  bool Grow(std::vector<RowStage>& stages, double most_seconds) const;

  const StateSpace& space_;
  const RowOptions options_;
  std::vector<double> transfer_;  // [states]: 2 x / B
  std::vector<double> bytes_;     // [states]: outputs and parameters
  int last_ = 0;
  RowPlace place_;
  double most_seconds_ = HUGE_VAL;
  std::vector<int> begin_;  // [chains]: the first state under consideration
  // [devices, states]: seconds of (state, last] on at most this many devices,
  // where the row does not begin at the state.
  std::vector<double> rest_;
  std::vector<double> seconds_;
  // Scratch of TakeSplits.
  std::vector<Replicas> replicas_;  // [devices + 1]
  std::vector<Kept> kept_;          // [states + 2]
  int end_ = 0;                     // end of the kept cuts
};

// --- A row on each of several machines ---

struct LevelOptions {
  RowOptions row;               // inside a machine
  int machines = 1;             // 1: there is only the inner level
  double bytes_per_second = 0;  // between machines
};

// The nodes of state `last` that are not in state `first`, on `machines`.
struct PipedreamRun {
  int first = 0;
  int last = 0;
  int machines = 1;
  std::vector<RowStage> stages;  // on each of the machines
};

// Return the seconds of a run, before division by machines: to synchronise its
// parameters between machines, and to send twice its boundary bytes over their
// links.
double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines);
double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state);

// Returns the devices behind a row on each of `machines` when `rest_machines`
// come after them, as devices for each machine, rounded up.  VersionsOf() needs
// no more digits, since replicas and devices of the row are whole numbers.
int LaterDevices(const LevelOptions& options, int rest_machines, int machines);

// Returns the most bytes, one version of each, that `devices` of `memory_bytes`
// hold in any stages when `later_devices` come after them.  A stage on m
// devices with n after it keeps at least 1 + n / m versions, so m devices hold
// no more than m stages of one device would.
double MostHeldBytes(double memory_bytes, int later_devices, int devices);

}  // namespace paceline
