// Which runs of states could be part of a plan of which nothing takes longer
// than a given time: the question to which planning over machines is reduced.
// Internal to core/plan.  Thread-compatible; keeps its arrays between calls.
//
// For a given time each stage has a least number of replicas, and of what comes
// behind a state only the fewest devices and the fewest machines count: fewer
// are never worse, also for the memory of what comes before.  So one pass over
// pairs of states, from the end, answers for all runs at once, all ends of a
// state side by side in whole numbers.
//
// Where several machines hold a run, its stages have the time that is left by
// the synchronisation of the whole run, which differs from run to run.  These
// runs are only bounded: their stages are given all the time, and the run no
// less than its compute and synchronisation.  A run that is not found is in no
// plan; one that is found on several machines may be none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/pipedream/row.h"
#include "core/plan/pipedream/state_space.h"

namespace paceline {

// States go by rank: their place among those that are looked at, in the order
// of StateSpace::in_order.
class PipedreamFits {
 public:
  // It looks at each `step`-th state, and at the first and the last.
  PipedreamFits(const StateSpace& space, const LevelOptions& options,
                int step = 1);

  // Whether there could be a plan within `most_seconds`.  s states: O(s^3 x
  // machines) steps of a byte or two side by side, for the pairs and ends that
  // the time and Narrow() leave.
  bool Solve(double most_seconds);

  // Forgets the runs that were found and are in no plan.  From now on Solve()
  // is asked for no more seconds than the last time.
  void Narrow();

  int ranks() const { return static_cast<int>(states_.size()); }
  int StateOf(int rank) const { return states_[rank].number; }
  int words() const { return words_; }
  int most_machines() const { return most_machines_; }  // of one run
  // [words], a bit a rank: where runs that end at `last` on as many machines
  // could begin, when as few machines as can be come after them.
  const uint64_t* Firsts(int last, int machines) const {
    return &found_[At(last, machines)];
  }

 private:
  // Devices in a machine, small numbers to have many side by side: no sum of
  // two overflows.
  using Count = uint8_t;
  static constexpr Count kNone = 0x7F;

  struct State {
    int number = 0;  // in the space
    double seconds = 0;
    double parameter_bytes = 0;
    double bytes = 0;         // parameters and outputs
    double near_seconds = 0;  // 2 x / B inside a machine
    double far_seconds = 0;   // between machines
  };
  // A stage with a number of replicas takes compute x share + parameters x
  // sync.
  struct Replicas {
    double share = 0;
    double sync = 0;
  };
  // A state's numbers, one for each lane in [begin, end).
  struct Row {
    int begin = 0;
    int end = 0;
    size_t at = 0;
  };
  // Runs on one number of machines.  A lane is a state where they may end.
  struct Lanes {
    int machines = 1;
    double most_seconds = 0;   // of a stage in one machine
    double sync = 0;           // seconds a parameter byte
    std::vector<int> lasts;    // [lanes]: ranks, ascending
    std::vector<int> from;     // [ranks + 1]: the first lane not below
    std::vector<int> until;    // [ranks]: behind the last lane of use to it
    std::vector<double> cost;  // [lanes]: least compute and sync before any end
                               // from this lane on
    std::vector<int16_t> later;  // [lanes]: devices after the run; -1: dead
    std::vector<uint8_t> later_byte;  // the same, as far as it fits
    // [devices]: the first lane that has no more after it, and the last one
    // that has more.
    std::vector<int> first_with;
    std::vector<int> last_over;
    std::vector<Row> rows;  // [ranks]
    // [ranks, devices]: behind the last lane that no more devices lead to.
    std::vector<int> ends;
    std::vector<Count> devices;  // of all rows: what the stages from the state
                                 // to the lane need
  };
  // Two states, one around the other, and what a stage between them needs.
  struct Pair {
    int first = 0;
    int last = 0;
    double seconds = 0;
    double parameter_bytes = 0;
    double near_seconds = 0;
    int spare_versions = 0;  // that fit, without the one in use
  };

  size_t At(int last, int machines) const {
    return (static_cast<size_t>(machines - 1) * states_.size() + last) * words_;
  }
  // Returns the end of the lanes of row `rank` that are of use behind a stage.
  int EndBehind(const Lanes& lanes, int rank, int replicas) const {
    const int devices = options_.row.devices;
    return lanes.ends[rank * devices + devices - replicas];
  }
  bool IsBounded() const { return options_.row.memory_bytes > 0; }
  void PutStates(const StateSpace& space, int step);
  void PutPairs(const StateSpace& space);
  void PutLanes(Lanes& lanes) const;
  void PutCosts(Lanes& lanes) const;
  void Start(Lanes& lanes) const;
  int SpareVersions(double bytes) const;
  void PutSpareVersions(int first);
  bool IsInTime(const Pair& pair, int replicas, double most_seconds) const;
  // Replicas; more than there can be: none do.
  int Fewest(const Pair& pair, double most_seconds) const;
  int FewestFromTwo(const Pair& pair, double most_seconds) const;
  void TakeRow(int first, Lanes& lanes);
  void TakeStage(const Pair& pair, const Lanes& lanes, const Row& to_row,
                 Count* to) const;
  void TakeWithSpare(const Pair& pair, const Lanes& lanes, const Row& from,
                     int replicas, Count* to) const;
  void TakeRuns(int first, Lanes& lanes, const Row& row);
  bool CouldRun(int first, int last, const Lanes& lanes) const;
  void PutEnd(int rank, Lanes& lanes);

  const LevelOptions options_;
  const int most_machines_;
  const int most_replicas_;
  int words_ = 0;
  std::vector<State> states_;  // by rank
  // States around each, ascending.
  std::vector<size_t> around_begin_;  // [ranks + 1]
  std::vector<int> around_;
  std::vector<Replicas> replicas_;  // [devices + 1]
  std::vector<Lanes> lanes_;        // [most machines]
  double most_seconds_ = 0;
  std::vector<int> least_;       // [ranks]: machines from there to the end
  std::vector<uint64_t> found_;  // [most machines, ranks, words]
  std::vector<uint64_t> alive_;  // the same, of the last Narrow(); or empty
  // Scratch of TakeRow.
  std::vector<int> spare_versions_;
  std::vector<Count> as_first_;
};

}  // namespace paceline
