// Decides where a data-parallel job may run now: every member holds the whole
// model.
//
// Assumes: an absent member can join later, so that a job begins with the free
// workers once they are enough for a round.
#pragma once

#include <map>
#include <vector>

#include "coordinator/place/placement.h"
#include "core/base/ids.h"
#include "core/model/description.h"

namespace paceline {

// Takes aggregation.workers, or else all that can run it: at most
// aggregation.members, with the lowest ids, without workers whose memory is too
// small for a member of a group of that size.  The plan has one entry a member,
// all layers, with its share of a batch: aggregation.shares, else by speed
// where all have a profile of this model, else equal.
//
// candidates: sorted by id; drained ones are left out.
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

// Checks the memory for one more member: of `joiner`, during and after the
// fetch of the state, and of the present `members`, each of which holds the
// parts of all others when it serves.
// Errors: ResourceExhausted  names the worker, its memory and the need
absl::Status CheckRoom(const JobSpec& spec, const ModelDescription& model,
                       const std::vector<const Member*>& members,
                       const Member& joiner);

// The share of a batch that each of `workers` shall do, as above.
std::map<WorkerId, double> SharesOf(const JobSpec& spec,
                                    const ModelDescription& model,
                                    const std::vector<const Member*>& workers,
                                    const Measurements& measurements);

// Seconds of a micro-batch, forward and backward, on the slowest of `workers`,
// measured or predicted; 0: not known.
double SlowestMicroBatch(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<const Member*>& workers,
                         const Measurements& measurements);

}  // namespace paceline
