// One level of the pipedream cost model: the best stages between two states on
// devices that are all alike.  Thread-compatible; keeps its arrays between
// calls.
//
// A stage (a, b] of state b without state a, on m devices at B bytes a second:
//   t = (C + 4 (m - 1) / m W / B) / m, C its seconds and W its parameter bytes
// (the released optimizer's formula; that of Narayanan et al. 2019, section
// 3.1, has 2 for 4 and the larger of both for the sum).  With transfers
// counted, a stage costs no less than 2 x / (B m), x the bytes over the
// boundary before it and those over the one after it; the first stage of a row
// is not asked, nor is the end of the graph.  A row costs what its largest
// stage does.
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

// Where the row's devices stand in the whole pipeline: so many machines hold
// the same row, and so many devices come after it.
struct RowPlace {
  int machines = 1;
  int later_devices = 0;
};

// State `last` without state `first`.
struct RowStage {
  int first = 0;
  int last = 0;
  int replicas = 1;      // in one machine
  int rest_devices = 0;  // of the row, after this stage
};

// Copies of weights and outputs that a stage keeps.
int64_t VersionsOf(const RowPlace& place, int replicas, int rest_devices);

class PipedreamRow {
 public:
  // `space` outlives the row.
  PipedreamRow(const StateSpace& space, const RowOptions& options);

  // Answers for every state inside `last`: as many of the devices are used as
  // is best.  What takes longer than `most_seconds` is not looked for, which
  // saves all states that have too much to compute before `last`.
  // O(devices^2 x chains x states that are left).
  void Solve(int last, const RowPlace& place, double most_seconds = HUGE_VAL);

  // [states]: seconds of (state, last]; infinite where no stages fit, and more
  // than `most_seconds` where that is not enough.  Valid for states inside
  // `last`, until the next Solve().
  const std::vector<double>& seconds() const { return seconds_; }

  // Stages of (first, last], in order, none of which takes more than
  // `most_seconds`, which is no less than the answer for `first`.  Each is as
  // large as that allows, which keeps them few; devices that are left become
  // replicas where they do no harm.
  std::vector<RowStage> StagesFrom(int first, double most_seconds) const;

 private:
  // A cut that may still be the best one.
  struct Kept {
    double behind_seconds;
    double compute_seconds;
    double parameter_bytes;
    double bytes;
  };
  // Sentinels: no stage reaches the one before the kept cuts, and nothing lies
  // behind the one after them, which always fits.
  static constexpr Kept kBeforeKept = {-HUGE_VAL, HUGE_VAL, 0, 0};
  static constexpr Kept kAfterKept = {HUGE_VAL, 0, 0, -HUGE_VAL};
  // With one number of replicas a stage takes compute x share + parameters x
  // sync.
  struct Replicas {
    double share = 0;
    double sync = 0;
    double most_bytes = 0;
    int cross = 0;  // the first kept cut whose rest is not below its stage
    int fits = 0;   // the first kept cut whose stage fits
  };

  // One pass over two chains: stages on `least` to `most` devices, with so many
  // behind them; what they are counted for.
  struct Pass {
    int rest_devices = 0;
    int least = 1;
    int most = 0;
    bool as_first = true;  // the row begins with the stage
    bool as_rest = true;   // it does not
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
  std::vector<int> begin_;  // [chains]: the first state that is looked at
  // [devices, states]: of (state, last] on at most so many devices, where it
  // is not what the row begins with.
  std::vector<double> rest_;
  std::vector<double> seconds_;
  // Scratch of TakeSplits.
  std::vector<Replicas> replicas_;  // [devices + 1]
  std::vector<Kept> kept_;          // [states + 2]
  int end_ = 0;                     // of those that are kept
};

// --- A row on each of several machines ---

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

// The synchronisation of a run's parameters between its machines, and twice its
// boundary bytes over their links, in seconds before division by machines.
double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines);
double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state);

// Returns the devices behind a row on each of `machines` when `rest_machines`
// come after them, in devices a machine, rounded up: replicas and devices of
// the row are whole numbers, so that no more counts for VersionsOf().
int LaterDevices(const LevelOptions& options, int rest_machines, int machines);

// The most bytes, one version of each, that `devices` of `memory_bytes` hold
// in any stages when `later_devices` come after them: a stage on m devices with
// n after it keeps at least 1 + n / m versions, so that m devices hold no more
// than what m stages of one device would.
double MostHeldBytes(double memory_bytes, int later_devices, int devices);

}  // namespace paceline
