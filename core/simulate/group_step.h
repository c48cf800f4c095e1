// Predicts a step of a round group, and chooses its shards.  Pure.
//
// Assumes: phases follow each other (compute and parts; results; commit;
// apply), and the slowest resource decides how long each of them takes: a
// member's share of a core, the cores of a host that its members share, a
// member's port out or in.  A part leaves while the last backward runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"
#include "core/simulate/estimate.h"

namespace paceline {

struct MemberCost {
  int host = 0;          // index into GroupProblem::host_cores
  double cpu_share = 1;  // CPU seconds a second, as a quota allows
  // CPU seconds at full speed, a step: forwards and backwards of its
  // micro-batches, and coding its part; of that the last backward, with the
  // coding; the update.
  double compute_seconds = 0;
  double last_backward_seconds = 0;
  double apply_seconds = 0;
  // CPU seconds of a message and of a byte over a network, at each end.
  double message_seconds = 0;
  double byte_seconds = 0;

  friend bool operator==(const MemberCost&, const MemberCost&) = default;
};

struct GroupProblem {
  std::vector<MemberCost> members;  // by id
  std::vector<double> host_cores;   // 0: not known, no bound
  // [from][to] between members of different hosts; those of one host lend each
  // other their memory.
  std::vector<std::vector<LinkCost>> links;
  double gradient_bytes = 0;  // as they travel
  bool central = false;
};

// Seconds.
struct GroupStep {
  double compute = 0;  // and all parts at their servers
  double results = 0;
  double commit = 0;
  double apply = 0;

  double seconds() const { return compute + results + commit + apply; }
};

// The mean over all places that servers can have.  O(shards x members).
// problem: at least one member; shards: at least 1
GroupStep PredictGroupStep(const GroupProblem& problem, int shards);

// A worker that is, or could be, a member.
struct MemberInput {
  InputWorker worker;
  double share = 1;  // of a batch, in any unit
  std::string host;  // workers of one host share its cores
  int cores = 0;     // of the host; 0: not known
};

// Where the job leaves aggregation.shards open: as many as the predicted step
// is fastest with (of equals the fewest), and no more than members, blocks of
// the gradient and the members' memory allow.  `shards` and `shards_why` say
// what was chosen; where the job gives a number, `shards_why` is empty.
// members: at least one, by id.
absl::StatusOr<RunEstimate> EstimateGroup(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<MemberInput>& members, const Measurements& measurements);

}  // namespace paceline
