// A job's standing order to one worker, and the worker's report: the same on
// both ends.  Plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/problem.h"
#include "core/recover/cut.h"

namespace paceline {

// Ordered: a later coordinator's term, then what it counts.  All jobs of a
// coordinator count together, so that one number stands for a whole standing
// order.
struct OrderNumber {
  int64_t term = 0;  // 0: no order yet
  int64_t n = 0;

  friend auto operator<=>(const OrderNumber&, const OrderNumber&) = default;
};

// A stage, or one replica of it: neighbours with the same layers are replicas.
struct RunPlace {
  LayerRange layers;
  MemberId process;

  friend bool operator==(const RunPlace&, const RunPlace&) = default;
};

struct RunPlan {
  int64_t attempt = 0;
  Cut base;
  std::vector<RunPlace> places;  // by stage
  // [layers]: processes that hold the base's piece, by id.  Empty where nobody
  // does: it comes from the checkpoint, or from the seed for Cut{}.
  std::vector<std::vector<MemberId>> sources;
  // Stage 0 ends with the batch that it is at, and names it to the others.
  bool stop_after_batch = false;

  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// Pull the pieces of these layers as they are deposited.
struct Follow {
  MemberId source;
  LayerRange layers;

  friend bool operator==(const Follow&, const Follow&) = default;
};

struct JobOrder {
  OrderNumber number;
  std::optional<RunPlan> run;  // nothing: leave what runs
  KeepRule keep;
  std::vector<Follow> follow;
  // Replicas that have left: apply the held result of this step if it is not
  // applied, and deposit the state after it.
  std::optional<int64_t> finish;
  // Take over the job's CPU environment; the process may execute itself anew.
  bool settle = false;

  // Whether it asks for the same, whatever its number.
  bool SameAs(const JobOrder& other) const {
    return run == other.run && keep == other.keep && follow == other.follow &&
           finish == other.finish && settle == other.settle;
  }
};

enum class WorkPhase : uint8_t {
  kIdle,
  kGathering,  // fetches pieces, builds its stages
  kRunning,
  kStopped,  // after the batch that an order asked to stop after
  kDone,     // has applied the job's last step
  kFailed,
};
constexpr int kWorkPhases = 6;

// The state that a replica keeps when it has left, until it is told to finish
// or another attempt begins.
struct KeptState {
  int64_t applied = 0;  // steps
  int64_t held = 0;     // the step whose result it holds; 0: none

  friend bool operator==(const KeptState&, const KeptState&) = default;
};

struct JobReport {
  OrderNumber echo;     // of the newest order that it has carried out
  int64_t attempt = 0;  // of what it runs, or has failed at; 0: nothing
  WorkPhase phase = WorkPhase::kIdle;
  int64_t step = 0;         // applied
  absl::Status error = {};  // kFailed
  std::optional<KeptState> kept = {};
  // The newest floor that it was told, of whichever coordinator.
  Cut floor = {};
  // All that it holds; nothing: as it said before.
  std::optional<std::set<Piece>> pieces = {};
  bool follows = false;  // it was told to
  bool settled = true;   // its CPU environment is the job's
  // It failed, and files that the job names have changed since.
  bool files_changed = false;
  // It takes no pieces of others: it has no memory, or cannot reach a source.
  // Counts only together with `pieces`.
  bool refuses_pieces = false;

  friend bool operator==(const JobReport&, const JobReport&) = default;
};

// Leaves out of a report all that cannot be.
//   newest   the newest order that anybody was given
//   attempt  the newest one that the worker may have heard of; nothing: it was
//            never told of the job, so that nothing which it says of it counts
JobReport Believed(JobReport report, OrderNumber newest,
                   std::optional<int64_t> attempt);

}  // namespace paceline
