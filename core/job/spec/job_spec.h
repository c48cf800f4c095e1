// A user asks for this job.  The logic sees it as the struct behind the YAML
// job file and paceline.v1.JobSpec, with every default filled in.
// proto/paceline/v1/job.proto declares its members.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// How many members the spec itself says there will be; 0: it does not.
inline int64_t KnownMembers(const AggregationSpec& aggregation) {
  return aggregation.workers.empty() ? aggregation.members
                                     : std::ssize(aggregation.workers);
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

// "; did you mean 'equal'?" of the one in `known` that is like `word`; empty
// where none is.
std::string MeantText(const std::string& word,
                      const std::vector<std::string>& known);

// Gathers what is wrong, in the order in which it is asked for.
// Thread-compatible.
class SpecProblems {
 public:
  // why: joined as absl::StrCat joins.
  template <typename... Parts>
  void Add(std::string path, const Parts&... why) {
    problems_.push_back({std::move(path), absl::StrCat(why...)});
  }
  void AddUnlessEmpty(std::string path, const std::string& why) {
    if (!why.empty()) Add(std::move(path), why);
  }

  // Adds nothing and returns true when low <= value <= high.
  bool Whole(const char* path, int64_t value, int64_t low, int64_t high);

  // Adds nothing and returns true when `value` is finite and `good`, which
  // `range` says in words.
  bool Number(const char* path, double value, bool good, const char* range);

  // Adds nothing and returns true when `word` is one of `known`; else names
  // them, and the one that was probably meant.  what: "data set".
  bool OneOf(const char* path, const char* what, const std::string& word,
             const std::vector<std::string>& known);

  // Adds nothing when `file`, which workers open, is an absolute path or empty.
  // readers: "every worker".
  bool AbsolutePath(const char* path, const std::string& file,
                    const char* readers);

  // Adds nothing when `shares` has a positive number for each of the workers.
  void Shares(const char* path, const std::vector<double>& shares,
              size_t workers);

  std::vector<SpecProblem> Take();

 private:
  std::vector<SpecProblem> problems_;
};

// --- what the words of some keys mean ---

// The precision in which the products of a job are computed.
// bf16: matrix products and convolutions take and give bfloat16.  Weights, sums
// of gradients, the optimizer, norms, softmax, losses and what crosses a
// layer's boundary are float32 in both.
enum class Precision : uint8_t { kF32 = 0, kBf16 = 1 };

// name: "fp32" or "bf16", as job files write it.  Another word counts as fp32:
// CheckJobSpec has refused it.
inline Precision PrecisionOf(absl::string_view name) {
  return name == "bf16" ? Precision::kBf16 : Precision::kF32;
}

// As profiles write it: ProfileKey::dtype.
inline const char* ProfileDType(absl::string_view precision) {
  return PrecisionOf(precision) == Precision::kBf16 ? "bf16" : "f32";
}

// A forward keeps some results for its backward, which computes the others once
// more (train.activation_checkpointing).

// Layers of a segment of a stage, in `Recompute::every`.
inline constexpr int kWholeStage = 0;

// How a stage recomputes.  Default: not at all.
struct Recompute {
  bool recomputes = false;
  int every = kWholeStage;  // layers a segment
};

// "none", "stage", or "every-N" with N from 1 to kMostLayersASegment.  Nothing
// for other words.
inline constexpr int kMostLayersASegment = 1'000'000;
std::optional<Recompute> FindRecompute(absl::string_view name);

// The layers of a stage in segments, counted from its first layer: of each only
// the input is kept, and the backward begins with its forward.  Without
// recomputing a stage is one segment, of which everything is kept.
//   layers  of the stage, at least 1
// Returns [first, last) of each, ascending.
std::vector<std::pair<int, int>> SegmentsOf(const Recompute& recompute,
                                            int layers);

// --- workers that misbehave on purpose (JobSpec.faults) ---
//
// Says what goes wrong at which step, as data.  Workers and the simulation of
// rounds read it alike.

// One worker does these things wrong in one step.
struct StepFaults {
  bool kill = false;                // the process ends as by SIGKILL
  absl::Duration hang;              // all of its threads stand still
  absl::Duration delay;             // its compute thread does
  bool label_flip = false;          // of n classes, c becomes n - 1 - c
  std::optional<double> sign_flip;  // its gradient times minus this
  std::optional<double> gaussian;   // noise of this deviation a sample instead
  bool nan = false;                 // NaN and infinity in its gradient
  bool bit_flip = false;   // a bit of the part after its hash was taken
  bool duplicate = false;  // every offer is made twice

  bool spoils_gradient() const {
    return sign_flip.has_value() || gaussian.has_value() || nan;
  }
  friend bool operator==(const StepFaults&, const StepFaults&) = default;
};

// Immutable.
class FaultPlan {
 public:
  FaultPlan() = default;
  // Those of `specs` that are `worker`'s.
  //   began_with_the_job  false: this process came later.  It is never killed
  //                       again: the step that killed the one before it may
  //                       come anew, and would kill every one after it.
  FaultPlan(const std::vector<FaultSpec>& specs, absl::string_view worker,
            bool began_with_the_job);

  // step: optimizer updates done before.
  StepFaults At(int64_t step) const;

  // Whether to be killed in this phase of serving `step`: "gathering",
  // "spreading" or "committing".
  bool KillsServer(int64_t step, absl::string_view phase) const;

 private:
  std::vector<FaultSpec> faults_;
};

}  // namespace paceline
