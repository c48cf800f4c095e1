// Study files: YAML, checked strictly.
//
//   name: batch-size          # of the study; the file's name unless given
//   base: job.yaml            # beside this file; or the keys of a job
//   vary:                     # a trial for each combination
//     train.batch: [32, 64]
//   trials:                   # or, in place of `vary`, these
//     - {label: small, train.batch: 32}
//   repeat: 3                 # seeds a trial, from the base's on
//   measure: [accuracy, time] # FindMeasure()
//   exclusive: true           # one job at a time
//   race:                     # Race of client/study/study.h
//     {halving: 2, on: loss, budget: 1000, plateau: 0.01}
//
// or, with plans in place of jobs, without `base`, `repeat`, `exclusive`, race:
//
//   plan:                     # SetPlanOption(), and besides
//     cost_model: pipedream
//     folder: profiles        # of the profiles, beside this file
//     micro_batches: 16       # of a simulated step; 32 unless given
//   vary: {profile: [vgg16.txt], machines: [4x4, 8x2]}
//   measure: [configuration]  # FindPlanMeasure()
//   published:                # of either kind of study: trials, measures, note
//     - {machines: 4x4, configuration: 15-1, note: A sentence.}
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/study/study.h"

namespace paceline {

// The study of `text`.  A base that is a file is not read: `base` has its name,
// and no text.
//   path  of the study file
// Errors: InvalidArgument  as below
absl::StatusOr<Study> ParseStudyFile(const std::string& path,
                                     const std::string& text);

// Reads the file and its base.
//   sets  KEY=VALUE, for all trials
// Errors: InvalidArgument  a file cannot be read, or one line for each thing
//         that is wrong, as
//     study.yaml:4: vary: --set train.bacth=32: train.bacth: unknown key; ...
absl::StatusOr<Study> ReadStudyFile(const std::string& path,
                                    const std::vector<std::string>& sets);

}  // namespace paceline
