// Decides whether a plan exists in which no stage or run takes longer than a
// given time, and finds the runs of states that could be part of it.  levels.h
// reduces planning over machines to this question.  Internal to core/plan.
// Thread-compatible; keeps its arrays between calls.
//
//   states    0 .......... first ........ cut ............. last ........ end
//             earlier runs | stage on m   | later stages of | later runs: the
//                          | devices      | the same run    | fewest machines
//                          |<-- one run; its end is a lane -->|
//
//   devices[first][last] = min over cut and m of m + devices[cut][last]
//
// For a given time each stage has a least number of replicas.  Of the stages
// behind a state only the fewest devices and the fewest machines count, since
// fewer are never worse, also for the memory of earlier stages.  So one pass
// over pairs of states, from the end, answers for all runs at once.  It
// computes all ends of a state side by side in whole numbers.
//
// When several machines hold a run, the run's synchronisation leaves its stages
// less time, and this differs from run to run.  The search only bounds such
// runs: their stages may use all the time, and the run takes at least its
// compute and synchronisation.  A run that is not found is in no plan.  A run
// that is found on several machines may still be impossible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/pipedream/row.h"
#include "core/plan/pipedream/state_space.h"

namespace paceline {

// A state's rank is its position among the states under consideration, in the
// order of StateSpace::in_order.
class PipedreamFits {
 public:
  // Considers every `step`-th state, and the first and the last.
  PipedreamFits(const StateSpace& space, const LevelOptions& options,
                int step = 1);

  // Returns whether there could be a plan within `most_seconds`.  For s states
  // it takes O(s^3 x machines) steps of a byte or two side by side, over the
  // pairs and ends that the time and Narrow() leave.
  bool Solve(double most_seconds);

  // Forgets the runs that were found but are in no plan.  After this call
  // most_seconds of Solve() must not be above its last value.
  void Narrow();

  int ranks() const { return static_cast<int>(states_.size()); }
  int StateOf(int rank) const { return states_[rank].number; }
  int words() const { return words_; }
  // most machines of one run
  int most_machines() const { return most_machines_; }
  // Returns a bit for each rank, [words], where a run that ends at `last` on
  // this many machines could begin, when the fewest possible machines come
  // after it.
  const uint64_t* Firsts(int last, int machines) const {
    return &found_[At(last, machines)];
  }

 private:
  // A number of devices in a machine.  It is small, so that the CPU handles
  // many side by side; no sum of two overflows.
  using Count = uint8_t;
  static constexpr Count kNone = 0x7F;

  struct State {
    int number = 0;  // the state's number in StateSpace
    double seconds = 0;
    double parameter_bytes = 0;
    double bytes = 0;         // parameters and outputs
    double near_seconds = 0;  // 2 x / B inside a machine
    double far_seconds = 0;   // between machines
  };
  // With a number of replicas, a stage takes compute x share + parameters x
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
  // Runs on one number of machines.  A lane is a state where such runs may end.
  struct Lanes {
    int machines = 1;
    double most_seconds = 0;  // of a stage in one machine
    double sync = 0;          // seconds a parameter byte
    std::vector<int> lasts;   // [lanes]: ranks, ascending
    // [ranks + 1]: the first lane whose end is not lower
    std::vector<int> from;
    std::vector<int> until;  // [ranks]: end of the lanes of use to the state
    // [lanes]: least compute and sync of any end from this lane on
    std::vector<double> cost;
    std::vector<int16_t> later;  // [lanes]: devices after the run; -1: dead
    std::vector<uint8_t> later_byte;  // the same, as far as it fits
    // [devices]: the first lane with at most this many devices after it, and
    // the last lane with more.
    std::vector<int> first_with;
    std::vector<int> last_over;
    std::vector<Row> rows;  // [ranks]
    // [ranks, devices]: end of the lanes that at most this many devices lead
    // to.
    std::vector<int> ends;
    // of all rows: devices that the stages from the state to the lane need
    std::vector<Count> devices;
  };
  // Two states, one inside the other, and the needs of a stage between them.
  struct Pair {
    int first = 0;
    int last = 0;
    double seconds = 0;
    double parameter_bytes = 0;
    double near_seconds = 0;
    int spare_versions = 0;  // that fit in memory, besides the one in use
  };

  size_t At(int last, int machines) const {
    return (static_cast<size_t>(machines - 1) * states_.size() + last) * words_;
  }
  // Returns the end of the lanes of row `rank` that are of use to a stage
  // before it.
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
  // Returns the fewest replicas; more than most_replicas_: no number suffices.
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
  // States that contain each state, ascending.
  std::vector<size_t> around_begin_;  // [ranks + 1]
  std::vector<int> around_;
  std::vector<Replicas> replicas_;  // [devices + 1]
  std::vector<Lanes> lanes_;        // [most machines]
  double most_seconds_ = 0;
  std::vector<int> least_;  // [ranks]: fewest machines from there to the end
  std::vector<uint64_t> found_;  // [most machines, ranks, words]
  std::vector<uint64_t> alive_;  // found_ of the last Narrow(); or empty
  // Scratch of TakeRow.
  std::vector<int> spare_versions_;
  std::vector<Count> as_first_;
};

}  // namespace paceline
