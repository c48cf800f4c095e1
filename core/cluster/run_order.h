// The order to run a job, which a standing order carries: the same on both ends
// of the control stream.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/ids.h"
#include "core/job/spec/job_spec.h"
#include "core/optim/step_gate.h"
#include "core/plan/plan.h"
#include "core/recover/order.h"
#include "core/round/view.h"
#include "core/schedule/route.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// A stage, or one replica of it, as an order names it.
struct StagePlacement {
  int32_t stage = 0;
  LayerRange layers;
  WorkerId worker;
  std::string worker_name;
  std::string address;
  double share = 1;  // of the stage's micro-batches

  friend bool operator==(const StagePlacement&,
                         const StagePlacement&) = default;
};

// A process that may send to a round group and hear from it.
struct GroupWorker {
  MemberId id;
  std::string name;
  std::string address;

  friend bool operator==(const GroupWorker&, const GroupWorker&) = default;
};

// The round group that a worker belongs or shall belong to.
struct GroupOrder {
  View view;
  // The members and the processes that shall become members.  A process that is
  // not in the view listens, and asks the first member for its state.
  std::vector<GroupWorker> workers;  // by id
  MemberId uploader;                 // hands the weights over at the end
  // The coordinator's lease: a member that owes an answer for as long is
  // reported.
  absl::Duration lease = absl::Seconds(3);
  // Members deposit the state at multiples of so many steps, beside those of
  // train.checkpoint_every; 0: only there.
  int64_t deposit_every = 0;
  int64_t deposit_from = 0;  // and once, at this step or later; 0: do not

  friend bool operator==(const GroupOrder&, const GroupOrder&) = default;
};

// This stands for the coordinator where processes that hold pieces are named:
// it sends those of a checkpoint.
inline constexpr MemberId kCoordinatorProcess{WorkerId{0}, {1}};

// A process that holds the pieces of some layers of a cut.
struct PieceSource {
  LayerRange layers;
  MemberId holder = kCoordinatorProcess;
  std::string address;  // empty: the coordinator's

  friend bool operator==(const PieceSource&, const PieceSource&) = default;
};

// Copy what `source` deposits of these layers in its runs of `attempt`.
struct FollowOrder {
  JobId job;
  int64_t attempt = 0;
  MemberId source;
  std::string address;
  LayerRange layers;

  friend auto operator<=>(const FollowOrder&, const FollowOrder&) = default;
};

// Whoever holds the sum of `step` applies it by this verdict (v1::FinishOrder).
struct FinishOrder {
  int64_t attempt = 0;
  int64_t step = 0;
  StepVerdict verdict;

  friend bool operator==(const FinishOrder&, const FinishOrder&) = default;
};

// A standing order says this of pieces.
struct KeepOrder {
  OrderNumber number;  // of the standing order
  std::map<JobId, KeepRule> keep;
  std::vector<FollowOrder> follow;
  std::map<JobId, FinishOrder> finish;

  friend bool operator==(const KeepOrder&, const KeepOrder&) = default;
};

// Compares what a worker has read with what the job began with.
// Errors, which name the file and both fingerprints:
//   FailedPrecondition  another weights file
//   NotFound            other data: the job's is not there
absl::Status CheckInputs(const v1::Inputs& read, const v1::Inputs& began,
                         const JobSpec& spec);

// The job that a worker works on, and its part in it.  The order lists all
// stages, so that a worker finds its own and its neighbours.
struct RunOrder {
  Fence fence;
  Cut base = {};  // the run begins with this state
  // Processes that hold pieces of it, by holder.
  std::vector<PieceSource> sources = {};
  // The first stage ends the walk with the batch that it is at.  Changes within
  // a fence.
  bool stop_after_batch = false;
  // The evaluation that is due at the base is stored: the walk begins after it.
  bool evaluated = false;
  // The base is the state after the last step, and nothing is to be evaluated.
  bool trained = false;
  JobSpec spec;
  std::vector<StagePlacement> stages;  // ascending; replicas side by side
  // [stages]: which of its replicas, in the order above, computes what.
  std::vector<RouteTable> routes;
  std::string cpu_capability;
  int32_t threads = 1;
  std::optional<GroupOrder> group;  // data parallelism; changes within a fence
  v1::Inputs inputs = {};           // the job began with these
  int64_t skipped_in_row = 0;       // steps, up to the base

  // The spec, the base and what was settled with it never change within a
  // fence.
  friend bool operator==(const RunOrder& a, const RunOrder& b) {
    return a.fence == b.fence && a.stages == b.stages && a.group == b.group &&
           a.stop_after_batch == b.stop_after_batch &&
           a.evaluated == b.evaluated && a.trained == b.trained &&
           a.sources == b.sources;
  }
};

// How many stages the order has.
int StageCount(const RunOrder& order);

// Those that hold `stage`, which exists, in the order of its route's replicas.
absl::Span<const StagePlacement> ReplicasOf(const RunOrder& order, int stage);

}  // namespace paceline
