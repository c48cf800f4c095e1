// Decides where a data-parallel job may run now: every member holds the whole
// model.
//
// Assumes: a member that is not there yet can join later, so that a job begins
// with as many as are free, once they are enough for a round.
#pragma once

#include <map>
#include <vector>

#include "coordinator/placement.h"
#include "core/base/ids.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"

namespace paceline {

// aggregation.workers, else all that can run it, at most aggregation.members:
// those with the lowest ids, but for those whose memory does not hold what a
// member of so many needs.  The plan has one entry a member, all layers, with
// its share of a batch: aggregation.shares, else by speed where all have a
// profile of this model, else equal.
//
// candidates: sorted by id; drained ones get no part.
PlacementVerdict DecideGroupPlacement(const JobSpec& spec,
                                      const ModelDescription& model,
                                      const std::vector<Candidate>& candidates,
                                      const Measurements& measurements);

// Why `worker` cannot become a member of a job that runs with
// `cpu_capability`; OK: it can.
absl::Status CheckJoiner(const JobSpec& spec, const ModelDescription& model,
                         const std::string& cpu_capability,
                         const Member& worker,
                         const Measurements& measurements);

// Whether there is the memory for one more: of `joiner`, while it fetches the
// state and then, and of the `members` that there are, each of which holds the
// parts of all others when it serves.
// Errors: ResourceExhausted  names who has how much and would need how much
absl::Status CheckRoom(const JobSpec& spec, const ModelDescription& model,
                       const std::vector<const Member*>& members,
                       const Member& joiner);

// The share of a batch that each of `workers` shall do, as above.
std::map<WorkerId, double> SharesOf(const JobSpec& spec,
                                    const ModelDescription& model,
                                    const std::vector<const Member*>& workers,
                                    const Measurements& measurements);

// Seconds of a micro-batch, forward and backward, on the slowest of `workers`,
// as measured or predicted; 0: it cannot be said.
double SlowestMicroBatch(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<const Member*>& workers,
                         const Measurements& measurements);

}  // namespace paceline
