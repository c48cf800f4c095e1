// A job's standing order to one worker, and the worker's report.  Both ends use
// these types.  Plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/problem.h"
#include "core/recover/cut.h"

namespace paceline {

// Ordered by the coordinator's term, then by its count.  All jobs of a
// coordinator share the count, so that one number names a whole standing order.
struct OrderNumber {
  int64_t term = 0;  // 0: no order yet
  int64_t n = 0;

  friend auto operator<=>(const OrderNumber&, const OrderNumber&) = default;
};

// A stage, or a replica of it: adjacent places with equal layers are replicas.
struct RunPlace {
  LayerRange layers;
  MemberId process;

  friend bool operator==(const RunPlace&, const RunPlace&) = default;
};

struct RunPlan {
  int64_t attempt = 0;
  Cut base;
  std::vector<RunPlace> places;  // by stage
  // [layers]: processes that hold the base's piece, by id.  Empty if no process
  // does: the piece then comes from the checkpoint, or for Cut{} from the seed.
  std::vector<std::vector<MemberId>> sources;
  // Stage 0 ends after its present batch, and tells the others its number.
  bool stop_after_batch = false;

  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// Pull the pieces of these layers from `source` as it deposits them.
struct Follow {
  MemberId source;
  LayerRange layers;

  friend bool operator==(const Follow&, const Follow&) = default;
};

struct JobOrder {
  OrderNumber number;
  std::optional<RunPlan> run;  // nothing: leave the present run
  KeepRule keep;
  std::vector<Follow> follow;
  // Replicas that have left apply the held result of this step, unless they
  // have applied it, and deposit the state after it.
  std::optional<int64_t> finish;
  // Take over the job's CPU environment; the process may execute itself anew.
  bool settle = false;

  // Whether both orders ask for the same; their numbers do not count.
  bool SameAs(const JobOrder& other) const {
    return run == other.run && keep == other.keep && follow == other.follow &&
           finish == other.finish && settle == other.settle;
  }
};

enum class WorkPhase : uint8_t {
  kIdle,
  kGathering,  // fetches pieces, builds its stages
  kRunning,
  kStopped,  // after an ordered stop
  kDone,     // has applied the job's last step and stored its result
  kFailed,
};

// The state that a replica keeps when it has left, until it is told to finish
// or another attempt begins.
struct KeptState {
  int64_t applied = 0;  // steps
  int64_t held = 0;     // the step whose result it holds; 0: none

  friend bool operator==(const KeptState&, const KeptState&) = default;
};

struct JobReport {
  OrderNumber echo;     // of the newest order that it has carried out
  int64_t attempt = 0;  // that it runs, or that failed; 0: none
  WorkPhase phase = WorkPhase::kIdle;
  int64_t step = 0;         // applied
  bool joins = false;       // its group, in which it has not taken part yet
  absl::Status error = {};  // kFailed
  std::optional<KeptState> kept = {};
  // The newest floor that any coordinator has told it.
  Cut floor = {};
  // All pieces that it holds; nothing: the same as it reported before.
  std::optional<std::set<Piece>> pieces = {};
  bool follows = false;  // an order tells it to
  bool settled = true;   // its CPU environment is the job's
  // It failed, and files that the job names have changed since.
  bool files_changed = false;
  // It takes no pieces of others: it has no memory, or cannot reach a source.
  // Counts only together with `pieces`.
  bool refuses_pieces = false;

  friend bool operator==(const JobReport&, const JobReport&) = default;
};

// The newest step that a survivor has applied, if the surviving replicas can
// bring all layers to it.  Nothing: they cannot, or such a cut exists already.
//   kept    by survivors, of the places of their attempt
//   newest  the newest cut's step
std::optional<int64_t> StepToFinish(const std::vector<RunPlace>& places,
                                    const std::map<MemberId, KeptState>& kept,
                                    int64_t newest);

struct FollowRequest {
  // One process a machine: those with stages first, in the order of stages,
  // then idle ones by id.
  std::vector<std::pair<MachineId, MemberId>> ring;
  std::map<MemberId, MachineId> machines;  // of live owners
  int wanted = 0;              // machines besides the owner's, for each piece
  bool states_differ = false;  // of the owners of the same layers
};
// The next machines after a stage's own pull its pieces.
std::map<MemberId, std::vector<Follow>> FollowersOf(
    const std::vector<RunPlace>& places, const FollowRequest& request);

// Another attempt may succeed, on other workers if need be.
bool IsTransient(absl::StatusCode code);
// The worker lacks something that another one may have.
bool MakesUnfit(absl::StatusCode code);

// Returns the report without the claims that cannot be true.
//   newest   the newest order that any process was given
//   attempt  the newest one that the worker may have heard of; nothing: it
//            was never told of the job, so that none of its claims counts
JobReport Believed(JobReport report, OrderNumber newest,
                   std::optional<int64_t> attempt);

}  // namespace paceline
