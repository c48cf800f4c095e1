// A user asks for this job.  The logic sees it as the struct behind the YAML
// job file and paceline.v1.JobSpec, with every default filled in.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace paceline {

struct Parameter {
  std::string
      name;  // as timm or torchvision write it: "blocks.0.attn.qkv.weight"
  Shape shape;
  bool trainable = true;      // false: a buffer, or frozen
  DType dtype = DType::kF32;  // buffers may have another
  bool frozen = false;        // a weight that this job leaves as it is

  friend bool operator==(const Parameter&, const Parameter&) = default;
};

// A worker found this layer in a TorchScript file; core/model/description.h
// explains the numbers.
struct ScriptLayer {
  std::string name;  // of the child, "0"
  std::vector<Parameter> parameters;
  Shape output;
  double forward_flops = 0;  // a guess, from the parameters
  int64_t activation_bytes = 0;
  bool writes_input = false;  // computes in place

  friend bool operator==(const ScriptLayer&, const ScriptLayer&) = default;
};

struct ScriptModel {
  std::string sha256;  // of the file, lower hex
  Shape input;         // of the samples that it was tried with
  std::vector<ScriptLayer> layers;
  // The samples were tokens, each below this number; 0: float32, pictures.
  int64_t vocabulary = 0;

  friend bool operator==(const ScriptModel&, const ScriptModel&) = default;
};

// The name of the model that is a TorchScript file.
inline constexpr char kScriptModel[] = "script";

// Low-rank adapters beside linear maps (Hu et al. 2021, "LoRA").
struct LoraSpec {
  int32_t rank = 0;  // 0: none
  double alpha = 16;
  // Maps, by the ends of their names; empty: those that give queries and
  // values, with keys where these are one map.
  std::vector<std::string> targets;
};

// Every step changes all parameters.
inline constexpr char kTrainsAll[] = "all";

// The defaults here are those of `vit`; DefaultModel() of core/model/catalog.h
// knows every model's own.
struct ModelSpec {
  std::string name;
  std::vector<int32_t> hidden = {256, 128};  // mlp
  int32_t depth = 4;                         // transformers: blocks
  int32_t width = 64;
  int32_t heads = 4;   // transformers
  int32_t patch = 7;   // vision transformers, pixels
  double dropout = 0;  // in [0, 1)
  // A safetensors file, at this path on every worker; empty: weights are drawn
  // from the seed.
  std::string weights;
  bool reset_head = false;    // draw the class head, whatever the file holds
  std::string init = "auto";  // how weights are drawn, core/model/initialize.h
  // script only: the TorchScript file, at this path on every worker, and what
  // is in it, filled in by whoever submits, from what a worker says.
  std::string file;
  ScriptModel script;
  int32_t positions = 0;   // models of tokens; 0: as many as a sample has
  int32_t vocabulary = 0;  // models of tokens; 0: the data's
  // The key train.only: which parameters steps change,
  // core/model/fine_tuning.h. It stands here because a description of the model
  // says of each parameter whether it trains.
  std::string only = kTrainsAll;
  LoraSpec lora;
  // The units of each group that pruning has left, core/weights/pruning.h;
  // empty: all.
  std::vector<int32_t> sizes;
};

// The defaults are those of most data sets; DefaultDataSpec() of
// core/data/data_sets.h knows each one's own.
struct DataSpec {
  std::string name;
  std::string path;  // empty: the data set's own place, if it has one
  int64_t train_samples = 4096;  // synthetic sets
  int64_t test_samples = 1024;   // synthetic sets
  Shape shape = {1, 28, 28};     // of a sample; tokens: [block]
  // How many different labels; where each token has one: different tokens.
  int32_t classes = 10;
  int32_t workers = 1;  // threads that load ahead

  // How samples are spread over a group's members, core/job/distribution.h.
  std::string distribution = "iid";
  bool rotate = false;  // in every epoch a member has the next one's samples

  // Images from files.  Evaluation always takes the centre.
  std::string crop = "center";    // center, random, random-resized; training
  int32_t resize = 0;             // imagefolder: pixels of the shorter side
  double flip = 0;                // probability of a mirror image; training
  std::vector<double> mean;       // of values in [0, 1], a channel; empty: the
  std::vector<double> deviation;  // data set's own

  // Tokens.
  int32_t block = 128;          // a sample
  std::string tokens = "byte";  // text: byte, character, uint16
  double test_fraction = 0.1;   // text: of the file's end, for evaluation; 1:
                                // all of it (inference)
  int32_t padding = 0;          // the token that fills a labelled sample up
  int32_t vocabulary = 256;     // synthetic-labels: different tokens
};

struct OptimizerSpec {
  std::string name = "sgd";  // sgd, adamw
  double momentum = 0;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

struct LearningRateSpec {
  double base = 0.01;
  std::string schedule = "constant";  // constant, cosine, step
  int64_t warmup_steps = 0;
  double minimum = 0;
  int64_t step_every = 1000;
  double gamma = 0.1;
};

// Training towards what a teacher says, the same model unpruned.
struct DistillSpec {
  std::string weights;  // the teacher's file; empty: no teacher
  double share = 0.5;   // of the loss; the labels have the rest
  double temperature = 2;
};

struct TrainSpec {
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: epochs decide
  int64_t batch = 64;
  int64_t micro_batch = 16;
  int64_t seed = 1;
  OptimizerSpec optimizer;
  LearningRateSpec learning_rate;
  double clip_norm = 0;        // 0: none
  int64_t evaluate_every = 1;  // epochs; 0: only at the end
  // none, stage, every-N: core/job/spec/checkpointing.h
  std::string activation_checkpointing = "none";
  // After so many steps the next snapshot of a pipeline becomes a checkpoint on
  // the coordinator's disk; 0: never.
  int64_t checkpoint_every = 0;
  // Probability that a micro-batch goes without a residual block,
  // core/model/stage_drop.h.
  double layer_drop = 0;
  DistillSpec distill;
};

struct PipelineSpec {
  int32_t stages = 0;  // 0: as many as are fastest
  // The policy that cuts and places, core/plan/search/policy.h; cuts, if given,
  // win.
  std::string policy = "optimal";
  // gpipe, 1f1b, interleaved-1f1b, zero-bubble, pipedream
  std::string schedule = "1f1b";
  std::vector<int32_t> cuts;  // first layers of stages 1, 2, ...
  // With cuts: who holds each stage, by name; empty: whoever is free.
  std::vector<std::string> workers;
  // Inference, with workers: how many of these hold each stage, neighbours in
  // the list; empty: one each.
  std::vector<int32_t> replicas;
  // With replicas: each worker's part of its stage's micro-batches, in any
  // unit; empty: equal parts.
  std::vector<double> shares;
  // Inference: whether the policy may place a stage on several workers: auto
  // (where it chooses the number of stages too), allowed, never.
  std::string replicate = "auto";
  // pipedream: all stages compute a micro-batch at the version of the weights
  // that the first stage had when it took it in.
  bool vertical_sync = false;
  // On the wire between workers, core/transfer/tensor_codec.h.
  std::string codec = "fp32";
  // Training: steps that a lost worker may cost, core/recover/run_state.h; 0:
  // its loss costs all of them.
  int64_t snapshot_every = 10;
};

// Says what pipeline.replicate comes to, of inference.  In training replicas
// round otherwise than one worker, so that the policy may use them only where
// that is allowed.
inline bool MayReplicate(const PipelineSpec& pipeline) {
  return pipeline.replicate == "allowed" ||
         (pipeline.replicate == "auto" && pipeline.stages == 0);
}

// kind infer: the test set, forward only.
struct InferSpec {
  int64_t micro_batch = 16;
  int64_t samples = 0;  // the first ones of the set; 0: all
  // The result has what the last layer gave, beside the classes.
  bool outputs = true;
  // skip: where a lost stage cannot be placed again, the rest is predicted
  // without its blocks; none: the job waits.
  std::string tolerate = "none";
};

// Data parallelism: every member holds the whole model.
struct AggregationSpec {
  std::string mode = "none";   // none, rolling, central, gossip
  int32_t members = 0;         // at most; 0: whoever can, and whoever joins
  std::string rule = "mean";   // core/round/rules/rule_traits.h: RuleNames()
  int64_t k = 0;               // liars to withstand
  int64_t selected = 1;        // krum
  double alpha = 1;            // suspicion
  double gamma = 0;            // zeno; 0: the learning rate
  double rho = 0.0005;         // zeno
  int64_t trusted = 64;        // zeno: samples of the trusted batch
  int32_t shards = 0;          // servers at a time; 0: ShardsOf() settles it
  int32_t min_parts = 1;       // usable ones; with fewer a round is void
  double deadline = 30;        // seconds after a round's first part, at most
  std::string codec = "fp32";  // of parts and results: fp32, bf16
  std::vector<std::string> workers;  // the members, and no others
  std::vector<double> shares;  // with workers: of a batch; empty: by speed
  bool conflict = false;       // measure how alike the members' gradients are
};

// The kind of fault that concerns the model: a block of it is left out.
inline constexpr char kSkipStage[] = "skip-stage";

// One worker misbehaves on purpose, or the whole job does.
struct FaultSpec {
  std::string worker;
  int64_t step = 0;  // the first one; optimizer updates done before
  // kill, hang, delay, bit-flip, sign-flip, label-flip, gaussian, nan,
  // duplicate, skip-stage
  std::string kind;
  int64_t steps = 1;   // so many; 0: to the end
  double seconds = 1;  // hang, delay
  double scale = 1;    // sign-flip, gaussian
  // kill: computing, gathering, spreading, committing; see types.proto
  std::string phase = "computing";
  int32_t block = -1;  // skip-stage: Layer::block
};

inline constexpr char kTrainKind[] = "train";
inline constexpr char kInferKind[] = "infer";

struct JobSpec {
  std::string name;
  std::string kind = kTrainKind;
  ModelSpec model;
  DataSpec data;
  // kind infer: seed only.  The rest is what makes the walk one of the test
  // set in batches of one micro-batch each: ForInference().
  TrainSpec train;
  InferSpec infer;
  PipelineSpec pipeline;
  int32_t threads = 1;
  // auto, default, avx2, avx512, avx512_bf16
  std::string cpu_capability = "auto";
  std::string precision = "fp32";  // fp32, bf16: core/job/spec/precision.h
  AggregationSpec aggregation;
  std::vector<FaultSpec> faults;
};

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
