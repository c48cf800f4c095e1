// A user asks for this job.  The logic sees it as the struct behind the YAML
// job file and paceline.v1.JobSpec, with every default filled in.
// proto/paceline/v1/job.proto declares its members.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/job/spec/job_spec.gen.h"

namespace paceline {

// Every step changes all parameters: ModelSpec::only.
inline constexpr char kTrainsAll[] = "all";
// The kind of fault that concerns the model: a block of it is left out.
inline constexpr char kSkipStage[] = "skip-stage";
inline constexpr char kTrainKind[] = "train";
inline constexpr char kInferKind[] = "infer";

// Says what pipeline.replicate comes to, of inference.  In training replicas
// round otherwise than one worker, so that the policy may use them only where
// that is allowed.
inline bool MayReplicate(const PipelineSpec& pipeline) {
  return pipeline.replicate == "allowed" ||
         (pipeline.replicate == "auto" && pipeline.stages == 0);
}

// Whether several workers hold the whole model.
inline bool IsDataParallel(const JobSpec& spec) {
  return spec.aggregation.mode != "none";
}

inline bool IsInference(const JobSpec& spec) { return spec.kind == kInferKind; }

// The spec without the replicas for which `is_there` says no, as long as their
// stage has another one; as it was where nobody is missing.
JobSpec WithoutAbsentReplicas(
    JobSpec spec, const std::function<bool(const std::string&)>& is_there);

// Counts those of a step, but of the last one of an epoch; 0: not known.
int64_t MicroBatchesOfAStep(const TrainSpec& train);

// Returns what such a job asks of a walk, an engine and a planner: no steps, no
// optimizer, batches of one micro-batch.
TrainSpec ForInference(const InferSpec& infer, int64_t seed);

// One thing wrong with a spec.
struct SpecProblem {
  std::string path;  // "train.learning_rate.base"; empty: the whole file
  std::string why;   // what is wrong and what would be right
};

// Returns the policy's present name: "optimal" was called "dp" up to 0.1.
std::string PresentPolicy(absl::string_view policy);

// The name among `known` that `word` was probably meant to be, or empty:
// Levenshtein distance at most a third of the longer word, at least 1.
std::string DidYouMean(const std::string& word,
                       const std::vector<std::string>& known);

}  // namespace paceline
