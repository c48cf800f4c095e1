// Whom interleaved-1f1b leaves without a stage, in words.  Pure.
#pragma once

#include <string>
#include <vector>

#include "coordinator/placement.h"

namespace paceline {

// "workers c, d get no stage: interleaved-1f1b gives each worker as many ..."
// when workers stay idle because the stages could not be dealt out to all of
// them; else empty.  Workers that the job does not name, that lack the CPU or
// the cores, or that have something else to do are not meant.
//
//   plan  made of spec and candidates
std::string DealingNote(const JobSpec& spec, const Plan& plan,
                        const std::vector<Candidate>& candidates);

}  // namespace paceline
