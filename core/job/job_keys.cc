#include "core/job/job_keys.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "core/model/catalog.h"
#include "core/model/fine_tuning.h"
#include "core/round/rules/rule_traits.h"
#include "core/schedule/traits.h"

namespace paceline {
namespace {

// Far above what anyone trains on small machines, and low enough that no
// product of two of them overflows.
constexpr int64_t kMostEpochs = 1'000'000;
constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kMostBatch = 1 << 20;
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostStages = 1024;
constexpr int64_t kMostTrusted = 1 << 20;
constexpr int64_t kMostWhole = std::numeric_limits<int64_t>::max();

constexpr KeyRange Whole(int64_t least, int64_t most) {
  return {.least = least, .most = most};
}
constexpr KeyRange Number(bool (*good)(double), const char* text) {
  return {.good = good, .text = text};
}
constexpr KeyRange OneOf(const char* what, const char* words) {
  return {.words = words, .what = what};
}
constexpr KeyRange OneOfNames(const char* what,
                              std::vector<std::string> (*names)()) {
  return {.names = names, .what = what};
}

constexpr KeyRange kAny = {};
bool IsNotNegative(double value) { return value >= 0; }
constexpr KeyRange kFraction =
    Number([](double v) { return v >= 0 && v < 1; }, "in [0, 1)");
constexpr KeyRange kNotNegative = Number(IsNotNegative, "0 or more");
constexpr KeyRange kPositive =
    Number([](double v) { return v > 0; }, "greater than 0");

// These words say what is so when a key is absent.
constexpr char kNone[] = "none";
constexpr char kOwn[] = "the model's own";
// Keys that decide about others.
constexpr char kData[] = "data.name";
constexpr char kFault[] = "faults.kind";
constexpr char kKind[] = "kind";
constexpr char kOptimizer[] = "train.optimizer.name";
constexpr char kRate[] = "train.learning_rate.schedule";
constexpr char kRule[] = "aggregation.rule";
constexpr char kSchedule[] = "pipeline.schedule";

constexpr char kFiles[] =
    " cifar10 cifar100 fashion-mnist idx imagefolder text text-labels "
    "text-pairs ";
constexpr char kSynthetic[] =
    " synthetic synthetic-labels synthetic-pairs synthetic-tokens ";
constexpr char kAugmented[] = " cifar10 cifar100 imagefolder ";
constexpr char kPixels[] = " cifar10 cifar100 fashion-mnist idx imagefolder ";
constexpr char kTokens[] =
    " synthetic-labels synthetic-pairs synthetic-tokens text text-labels "
    "text-pairs ";

#define KEY(field) \
#field, [](JobSpec & s, size_t) -> KeyValue { return &s.field; }
#define FAULT(field) \
  "faults." #field,  \
      [](JobSpec& s, size_t i) -> KeyValue { return &s.faults[i].field; }

constexpr JobKey kKeys[] = {
    {KEY(name), "Shown in lists.", kAny, "the model's name"},
    {KEY(model.name), "Which model: 'paceline model list' shows all.", kAny,
     kNone},
    {KEY(model.hidden), "mlp: widths of the hidden layers.", kAny, kOwn},
    {KEY(model.depth),
     "Transformers: blocks. gnmt: layers of the encoder, and of the decoder.",
     kAny, kOwn},
    {KEY(model.width),
     "Transformers and gnmt: numbers a token. resnet and vgg: channels of the "
     "first convolution.",
     kAny, kOwn},
    {KEY(model.heads), "Transformers: attention heads; they divide the width.",
     kAny, kOwn, "", "", Bearing::kRefused},
    {KEY(model.patch), "vit, deit: edge of a patch; it divides the image.",
     kAny, kOwn},
    {KEY(model.dropout), "Probability in [0, 1) that a number is dropped.",
     kFraction, kOwn, "", "", Bearing::kSaid},
    {KEY(model.weights),
     "Begins with the weights of this safetensors file, which every worker "
     "finds at this absolute path.",
     kAny, "weights are drawn from the seed"},
    {KEY(model.init),
     "How first weights are drawn: auto (by the kind of layer), uniform (as "
     "PyTorch's layers), xavier, kaiming, orthogonal, or latin-hypercube. The "
     "last one is auto with a factor from 0.5 to 2 for each layer; 16 seeds in "
     "a row cover that range evenly.",
     OneOf("kind of initialisation",
           " auto kaiming latin-hypercube orthogonal uniform xavier ")},
    {KEY(model.reset_head),
     "With model.weights: draws the class head from the seed all the same."},
    {KEY(model.file),
     "script: a TorchScript file, which every worker finds at this absolute "
     "path.",
     kAny, kNone, "", "", Bearing::kSaid},
    {KEY(model.sizes),
     "vit, deit, resnet and vgg: what 'paceline model prune' has left of the "
     "width, heads, hidden units and channels; it prints them.",
     kAny, "nothing is pruned"},
    {KEY(model.positions),
     "Models of tokens: the longest sample that they take.", kAny,
     "data.block"},
    {KEY(model.vocabulary),
     "Models of tokens: how many different ones they know.", kAny,
     "as many as the data has"},
    {KEY(model.lora.rank),
     "Transformers: adapters of this rank (LoRA) stand beside linear maps. "
     "They train, and so does the class head; all else stays as it is. 0: "
     "none.",
     Whole(0, kMostRank)},
    {KEY(model.lora.alpha), "What an adapter gives counts alpha / rank times.",
     kPositive, "", "", "", Bearing::kRefused},
    {KEY(model.lora.targets),
     "Linear maps that have adapters, by the ends of their names, as in "
     "[query, value]. Empty: the maps to queries and values (query and value, "
     "c_attn of a gpt, qkv of a vit)."},
    {KEY(data.name),
     "cifar10, cifar100, fashion-mnist, idx, imagefolder, synthetic, "
     "synthetic-labels, synthetic-pairs, synthetic-tokens, text, text-labels "
     "or text-pairs.",
     kAny, kNone},
    {KEY(data.path),
     "The folder or file of the data, on the workers that read it: the first "
     "stage's, or all members.",
     kAny, "where the data set's package puts it, if there is one", kData,
     kFiles},
    {KEY(data.train_samples), "How many samples training has.", kAny, "", kData,
     kSynthetic},
    {KEY(data.test_samples), "How many samples evaluation has.", kAny, "",
     kData, kSynthetic},
    {KEY(data.shape), "Shape of a sample.", kAny,
     "what the model is made for; imagefolder: [3, 224, 224]", "", "",
     Bearing::kSaid},
    {KEY(data.classes), "Different labels; of texts, different tokens.", kAny,
     "the data set's", "", "", Bearing::kSaid},
    {KEY(data.workers),
     "Threads that load samples ahead, at most 64. 0: none, a micro-batch is "
     "loaded when it is wanted."},
    {KEY(data.distribution),
     "A group's members see samples that are alike (iid), or not: by-label, "
     "dirichlet(ALPHA) with ALPHA up to a million, clustered, balanced."},
    {KEY(data.rotate),
     "In every epoch a member has the samples that the next one had before."},
    {KEY(data.crop),
     "How training cuts an image: center, random or random-resized "
     "(imagefolder only). Evaluation takes the centre.",
     kAny, "", kData, kAugmented},
    {KEY(data.resize), "Pixels of the shorter side before a crop.", kAny,
     "8/7 of the longer side of data.shape", kData, " imagefolder ",
     Bearing::kSaid},
    {KEY(data.flip), "Training: probability of a mirror image.", kAny, "",
     kData, kAugmented},
    {KEY(data.mean),
     "Mean of pixel values in [0, 1]: one number, or one a channel.", kAny,
     "the data set's", kData, kPixels, Bearing::kRefused},
    {KEY(data.deviation),
     "Standard deviation of pixel values: one number, or one a channel.", kAny,
     "the data set's", kData, kPixels, Bearing::kRefused},
    {KEY(data.block), "Tokens a sample; of pairs, of each sentence.", kAny,
     "128; of pairs 16", kData, kTokens, Bearing::kSaid},
    {KEY(data.tokens), "What a token is: byte, character or uint16.", kAny, "",
     kData, " text ", Bearing::kRefused},
    {KEY(data.test_fraction),
     "Share of the file, at its end, that evaluation gets. 1, for inference "
     "only: all of it.",
     kAny, "", kData, " text text-labels text-pairs "},
    {KEY(data.padding), "The token that fills a sample up.", kAny,
     "0; 1 where the model is a roberta", kData,
     " synthetic-labels text-labels ", Bearing::kRefused},
    {KEY(data.vocabulary), "How many different tokens there are.", kAny, "",
     kData, " synthetic-labels ", Bearing::kSaid},
    {KEY(train.epochs), "Walks through the data. train.steps overrules it.",
     Whole(1, kMostEpochs)},
    {KEY(train.steps), "Optimizer updates in all. 0: train.epochs decides.",
     Whole(0, kMostSteps)},
    {KEY(train.batch), "Samples a step.", Whole(1, kMostBatch)},
    {KEY(train.micro_batch), "Samples that move through the pipeline at once."},
    {KEY(train.seed),
     "Weights, order of samples, dropout and augmentation are drawn from it.",
     Whole(0, kMostWhole)},
    {KEY(train.optimizer.name), "How a gradient changes the weights.",
     OneOf("optimizer", " adamw sgd ")},
    {KEY(train.optimizer.momentum),
     "How much of the last update the next one keeps.", kFraction, "",
     kOptimizer, " sgd "},
    {KEY(train.optimizer.weight_decay),
     "How much weights shrink by themselves.", kNotNegative},
    {KEY(train.optimizer.beta1), "Decay of the mean gradient.", kFraction, "",
     kOptimizer, " adamw "},
    {KEY(train.optimizer.beta2), "Decay of the mean squared gradient.",
     kFraction, "", kOptimizer, " adamw "},
    {KEY(train.optimizer.epsilon), "Added to the root before the division.",
     kPositive, "", kOptimizer, " adamw "},
    {KEY(train.learning_rate.base), "The rate before the schedule's factor.",
     kPositive},
    {KEY(train.learning_rate.schedule), "How the rate changes over the steps.",
     OneOf("learning-rate schedule", " constant cosine step ")},
    {KEY(train.learning_rate.warmup_steps),
     "The rate grows from 0 to the base in so many steps.",
     Whole(0, kMostSteps)},
    {KEY(train.learning_rate.minimum), "What the rate falls towards.", kAny, "",
     kRate, " cosine "},
    {KEY(train.learning_rate.step_every), "Steps between two drops.",
     Whole(1, kMostSteps), "", kRate, " step "},
    {KEY(train.learning_rate.gamma), "Factor of one drop.",
     Number([](double v) { return v > 0 && v <= 1; }, "in (0, 1]"), "", kRate,
     " step "},
    {KEY(train.clip_norm),
     "The gradient's global L2 norm is cut down to it. 0: never.",
     Number(IsNotNegative, "0 (no clipping) or more")},
    {KEY(train.evaluate_every),
     "Epochs between two evaluations. 0: only after the last step.",
     Whole(0, kMostEpochs)},
    {KEY(train.activation_checkpointing),
     "What a forward keeps for its backward: none recomputes nothing, stage "
     "keeps a stage's input, every-N the input of every Nth layer."},
    {KEY(train.checkpoint_every),
     "After so many steps the state is kept on the coordinator's disk, and "
     "'job "
     "resume' can go on from there. 0: never.",
     Whole(0, kMostSteps)},
    {"train.only", [](JobSpec& s, size_t) -> KeyValue { return &s.model.only; },
     "Which parameters train: all, head (those of the last layer that has "
     "any), norm (those of the normalisations) or last-N (those of the last N "
     "layers). The others stay as they are."},
    {KEY(train.layer_drop),
     "Probability in [0, 1) that training leaves a residual block out of a "
     "micro-batch (stochastic depth), so that the model loses less accuracy "
     "when a block is missing. Blocks that change the shape are always there.",
     kFraction, "", "", "", Bearing::kSaid},
    {KEY(train.distill.weights),
     "The weights of a teacher: the same model without model.sizes. Training "
     "comes near to its scores too. Every worker finds the file at this "
     "absolute path, and holds the whole model.",
     kAny, "the labels alone teach"},
    {KEY(train.distill.share),
     "Part of the loss that is the distance to the teacher.",
     Number([](double v) { return v > 0 && v <= 1; }, "in (0, 1]")},
    {KEY(train.distill.temperature),
     "Scores of both are divided by it: above 1 the teacher's scores of wrong "
     "classes count more.",
     kPositive},
    {KEY(pipeline.stages),
     "How many stages the model is cut into. 0: as many as are fastest.",
     Whole(0, kMostStages)},
    {KEY(pipeline.schedule),
     "In which order a stage computes its micro-batches.",
     OneOfNames("schedule", [] { return ScheduleNames(); })},
    {KEY(pipeline.cuts),
     "First layers of the stages but the first. Empty: the policy cuts."},
    {KEY(pipeline.policy), "Who cuts the model and places its stages.",
     OneOf("policy", " brute equal mcmc min-cut optimal soft ")},
    {KEY(pipeline.vertical_sync),
     "All stages compute a micro-batch at the first stage's version of the "
     "weights.",
     kAny, "", kSchedule, " pipedream "},
    {KEY(pipeline.codec),
     "How activations and gradients cross between workers.",
     OneOf("codec", " bf16 fp16 fp32 int8 ")},
    {KEY(pipeline.snapshot_every),
     "Steps that are run again at most when a worker is lost; the others keep "
     "copies of its state. 0: no copies, all steps.",
     Whole(0, kMostSteps), "", kKind, " train "},
    {KEY(pipeline.workers),
     "With pipeline.cuts: names of the workers that hold the stages, in their "
     "order, one a stage unless pipeline.replicas says more. Empty: whoever is "
     "free and fastest."},
    {KEY(pipeline.replicas),
     "With pipeline.workers: how many of them hold each stage. Empty: one "
     "each."},
    {KEY(pipeline.shares),
     "With pipeline.replicas: each worker's part of its stage's micro-batches, "
     "in any unit. Empty: by speed where they infer, anew when that changes; "
     "else equal parts."},
    {KEY(pipeline.replicate),
     "Whether the policy may give a stage to several workers: auto (of kind "
     "infer where pipeline.stages is 0; else not, since sums then round "
     "otherwise), allowed or never. A job that names replicas has them "
     "anyway.",
     OneOf("word", " allowed auto never ")},
    {KEY(threads), "Compute threads a worker.", Whole(1, kMostThreads)},
    {KEY(cpu_capability),
     "Instructions that all workers use: auto (the best that all have), "
     "default, avx2, avx512 or avx512_bf16. Others round otherwise.",
     OneOf("CPU capability", " auto avx2 avx512 avx512_bf16 default ")},
    {KEY(kind),
     "train, or infer: the test set passes through once, forward only, and the "
     "result is a file of predictions.",
     OneOf("kind", " infer train ")},
    {KEY(infer.micro_batch), "Samples that move through the pipeline at once.",
     Whole(1, kMostBatch), "", kKind, " infer "},
    {KEY(infer.samples), "The first ones of the test set. 0: all.",
     Whole(0, kMostWhole), "", kKind, " infer "},
    {KEY(infer.outputs),
     "Keeps what the last layer gave, and not the class alone.", kAny, "",
     kKind, " infer "},
    {KEY(infer.tolerate),
     "skip: where a lost stage cannot be placed again and holds whole residual "
     "blocks alone, the job goes on without these; the result says so of each "
     "row. none: the job waits for a worker.",
     OneOf("word", " none skip "), "", kKind, " infer "},
    {KEY(precision), "What matrix products and convolutions are computed in.",
     OneOf("precision", " bf16 fp32 ")},
    {KEY(aggregation.mode),
     "none: the job is a pipeline. Else every worker holds the whole model, "
     "and they agree on a gradient: rolling (the server changes every step), "
     "central (it stays), gossip (pairs average their parameters).",
     OneOf("mode", " central gossip none rolling ")},
    {KEY(aggregation.members),
     "At most so many. 0: all workers that can, and whoever joins.",
     Whole(0, kMostMembers)},
    {KEY(aggregation.rule), "How the parts of a round become one.",
     OneOfNames("rule", [] { return RuleNames(); })},
    {KEY(aggregation.k), "Liars that the rule withstands.",
     Whole(0, kMostMembers)},
    {KEY(aggregation.selected), "Members that are averaged.",
     Whole(1, kMostMembers), "", kRule, " krum "},
    {KEY(aggregation.alpha), "How fast suspicion grows.", kPositive, "", kRule,
     " suspicion "},
    {KEY(aggregation.gamma),
     "The step along which a part is judged. 0: the learning rate.",
     Number(IsNotNegative, "greater than 0, or 0 for the learning rate"), "",
     kRule, " zeno "},
    {KEY(aggregation.rho), "How much a part's length counts against it.",
     kNotNegative, "", kRule, " zeno "},
    {KEY(aggregation.trusted), "Samples of the trusted batch.",
     Whole(1, kMostTrusted), "", kRule, " zeno "},
    {KEY(aggregation.shards),
     "Parts of the gradient, each with a server of its own, at most one a "
     "member. 0: as many as the predicted round is fastest with.",
     Whole(0, kMostShards)},
    {KEY(aggregation.min_parts),
     "A round with fewer usable parts leaves the weights alone.",
     Whole(1, kMostMembers)},
    {KEY(aggregation.deadline),
     "Seconds that a round waits at most for parts after its first one.",
     Number([](double v) { return v > 0 && v <= 86'400; },
            "greater than 0 and at most 86400 seconds")},
    {KEY(aggregation.conflict),
     "Measures the cosine between members' gradients in every round: 1 where "
     "they agree, below 0 where they pull apart. Not with gossip, whose "
     "members "
     "exchange parameters."},
    {KEY(aggregation.codec), "How parts and results cross the network.",
     OneOf("codec", " bf16 fp32 ")},
    {KEY(aggregation.workers),
     "Names of the workers that are members. Empty: all that can."},
    {KEY(aggregation.shares),
     "With aggregation.workers: each one's part of a batch, in any unit. "
     "Empty: by speed."},
    {FAULT(worker), "Name of the worker that misbehaves on purpose.", kAny,
     kNone},
    {FAULT(step), "The first step that it concerns.", Whole(0, kMostSteps)},
    {FAULT(kind),
     "What the worker does. skip-stage names no worker: all workers leave a "
     "block of the model out, in the whole job.",
     OneOf("kind of fault",
           " bit-flip delay duplicate gaussian hang kill label-flip nan "
           "sign-flip skip-stage "),
     kNone},
    {FAULT(steps), "So many steps. 0: to the end.", Whole(0, kMostSteps)},
    {FAULT(seconds), "How long it hangs, or how late its part comes.",
     Number([](double v) { return v > 0 && v <= 3'600; },
            "greater than 0 and at most 3600"),
     "", kFault, " hang delay "},
    {FAULT(scale), "Factor of the flip, deviation of the noise.",
     Number([](double v) { return v > 0 && v <= 1e30; },
            "greater than 0 and at most 1e30"),
     "", kFault, " sign-flip gaussian "},
    {FAULT(phase),
     "computing; or of a round that the worker serves: gathering, spreading or "
     "committing.",
     OneOf("phase of a round", " committing computing gathering spreading "),
     "", kFault, " kill "},
    {FAULT(block), "Which residual block is left out; the first one is 0.",
     kAny, kNone, kFault, " skip-stage "},
};

#undef KEY
#undef FAULT

std::vector<std::string> WordsOf(const KeyRange& range) {
  if (range.names != nullptr) return range.names();
  return absl::StrSplit(range.words, ' ', absl::SkipEmpty());
}

// CheckKey() and the warnings only read.
KeyValue ValueIn(const JobKey& key, const JobSpec& spec, size_t fault) {
  return key.at(const_cast<JobSpec&>(spec), fault);
}

// "faults[2].scale" as "faults.scale", and 2; any other path as it is.  False:
// there is no such fault.
bool SplitFault(const JobSpec& spec, std::string& path, size_t& fault) {
  const size_t open = path.find('['), close = path.find(']');
  if (open == std::string::npos || close == std::string::npos) {
    return !absl::StartsWith(path, "faults.");
  }
  if (!absl::SimpleAtoi(path.substr(open + 1, close - open - 1), &fault) ||
      fault >= spec.faults.size()) {
    return false;
  }
  path.erase(open, close - open + 1);
  return true;
}

const GivenKey* Find(const std::vector<GivenKey>& given, const char* path) {
  const auto found =
      std::find_if(given.begin(), given.end(),
                   [path](const GivenKey& key) { return key.path == path; });
  return found == given.end() ? nullptr : &*found;
}

// --set train.steps=60 on a file with epochs is how one shortens a run.
bool EpochsAreMeant(const GivenKey& epochs,
                    const std::vector<GivenKey>& given) {
  const GivenKey* const steps = Find(given, "train.steps");
  return !epochs.by_set && steps != nullptr && steps->by_set;
}

// Says why `key` belongs to the other kind of job; empty: it does not.
std::string WhyOtherKind(const JobSpec& spec, const std::string& key) {
  const bool inference = IsInference(spec);
  const bool other =
      inference ? (absl::StartsWith(key, "train.") && key != "train.seed") ||
                      key == "pipeline.schedule"
                : absl::StartsWith(key, "infer.");
  return other ? absl::StrCat("kind is ", spec.kind) : "";
}

// Says why `key` belongs to a pipeline, or to data parallelism, which the job
// is not; empty: it does not.
std::string WhyOtherShape(const JobSpec& spec, const std::string& key) {
  if (!IsDataParallel(spec)) {
    return absl::StartsWith(key, "aggregation.") && key != "aggregation.mode"
               ? "aggregation.mode is none"
               : "";
  }
  const bool of_pipeline = absl::StartsWith(key, "pipeline.") &&
                           key != "pipeline.stages" &&
                           key != "pipeline.snapshot_every";
  return of_pipeline ? "every member holds the whole model" : "";
}

// Says what makes a key of a fault idle besides the table; empty: nothing.
std::string WhyNoFault(const JobSpec& spec, const std::string& path,
                       const FaultSpec& fault) {
  if (fault.kind == kSkipStage) {
    return path == "faults.kind" ? "" : "the fault's kind is skip-stage";
  }
  if (path == "faults.step" && spec.train.steps > 0 &&
      fault.step >= spec.train.steps) {
    return absl::StrCat("the last step of ", spec.train.steps, " is ",
                        spec.train.steps - 1);
  }
  const bool idle = path == "faults.steps" && fault.kind == "kill" &&
                    fault.phase != "computing";
  return idle ? "the fault's kind is kill" : "";
}

// Says what makes a size of the model idle; empty: it has an effect.
std::string WhyNoSize(const JobSpec& spec, absl::string_view size) {
  if (size == "reset_head") {
    return spec.model.weights.empty() ? "there is no model.weights" : "";
  }
  if (absl::ConsumePrefix(&size, "lora.")) {
    if (size != "rank" && spec.model.lora.rank == 0) {
      return "model.lora.rank is 0";
    }
    size = "heads";  // transformers have some
  }
  if (size == "init" && spec.model.name != kScriptModel) return "";
  if (size == "name" || size == "weights" ||
      ModelReads(spec.model.name, std::string(size))) {
    return "";
  }
  return absl::StrCat("model.name is ", spec.model.name);
}

// Says what makes `given` idle; empty when it has an effect.
std::string WhyUnused(const JobSpec& spec, const GivenKey& given,
                      const std::vector<GivenKey>& all) {
  std::string path = given.path;
  size_t fault = 0;
  if (!SplitFault(spec, path, fault)) return "";
  if (std::string why = WhyOtherKind(spec, path); !why.empty()) return why;
  if (std::string why = WhyOtherShape(spec, path); !why.empty()) return why;
  const JobKey* const key = FindJobKey(path);
  if (key == nullptr) return "";
  if (*key->decider != '\0') {
    const std::string& value = *std::get<std::string*>(
        ValueIn(*FindJobKey(key->decider), spec, fault));
    if (path == "infer.tolerate" && spec.pipeline.workers.empty()) {
      return "without pipeline.workers a lost stage goes to another worker";
    }
    if (IsAmong(key->needs, value)) return "";
    return absl::StartsWith(path, "faults.")
               ? absl::StrCat("the fault's kind is ", value)
               : absl::StrCat(key->decider, " is ", value);
  }
  absl::string_view rest = path;
  if (absl::ConsumePrefix(&rest, "model.")) return WhyNoSize(spec, rest);
  if (absl::ConsumePrefix(&rest, "faults.")) {
    return WhyNoFault(spec, path, spec.faults[fault]);
  }
  if (absl::StartsWith(path, "train.distill.")) {
    return spec.train.distill.weights.empty() ? "there is no teacher" : "";
  }
  if (path == "train.epochs" && spec.train.steps > 0 &&
      !EpochsAreMeant(given, all)) {
    return absl::StrCat("train.steps is ", spec.train.steps,
                        ", and that decides");
  }
  if (path == "data.rotate" && spec.data.distribution == "iid") {
    return "data.distribution is iid";
  }
  if (path == "train.evaluate_every" &&
      IsAmong(FindJobKey("data.test_samples")->needs, spec.data.name) &&
      spec.data.test_samples == 0) {
    return "data.test_samples is 0";
  }
  return "";
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
const char* ScalarName() {
  if constexpr (std::is_same_v<T, bool>) return "flag (true or false)";
  if constexpr (std::is_integral_v<T>) return "whole number";
  if constexpr (std::is_same_v<T, double>) return "number";
  return "text";
}

}  // namespace

absl::Span<const JobKey> JobKeys() { return kKeys; }

const JobKey* FindJobKey(const std::string& path) {
  const auto found =
      std::find_if(std::begin(kKeys), std::end(kKeys),
                   [&](const JobKey& key) { return key.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

std::string RangeText(const JobKey& key) {
  const KeyRange& range = key.range;
  if (range.good != nullptr) return range.text;
  if (*range.what != '\0') {
    const std::vector<std::string> words = WordsOf(range);
    return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "),
                        " or ", words.back());
  }
  if (range.most < range.least) return "";
  return range.most == kMostWhole
             ? absl::StrCat(range.least, " or more")
             : absl::StrCat(range.least, " to ", range.most);
}

std::string TypeText(const JobKey& key) {
  JobSpec spec;
  spec.faults.emplace_back();
  return std::visit(
      [](auto* value) -> std::string {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (IsVector<T>::value) {
          return absl::StrCat(
              "a list of ", ScalarName<typename T::value_type>(), "s, as in ",
              std::is_same_v<typename T::value_type, std::string> ? "[a, b]"
                                                                  : "[1, 2]");
        } else if constexpr (std::is_same_v<T, std::string>) {
          return ScalarName<T>();
        } else {
          return absl::StrCat("a ", ScalarName<T>());
        }
      },
      key.at(spec, 0));
}

std::string ValueText(const KeyValue& value) {
  return std::visit(
      [](auto* at) -> std::string {
        using T = std::remove_pointer_t<decltype(at)>;
        if constexpr (IsVector<T>::value) {
          return absl::StrCat("[", absl::StrJoin(*at, ", "), "]");
        } else if constexpr (std::is_same_v<T, std::string>) {
          return absl::StrCat("\"", *at, "\"");
        } else if constexpr (std::is_same_v<T, bool>) {
          return *at ? "true" : "false";
        } else {
          return absl::StrCat(*at);
        }
      },
      value);
}

bool IsAmong(const char* words, const std::string& word) {
  return absl::StrContains(words, absl::StrCat(" ", word, " "));
}

bool CheckKey(const std::string& path, const JobSpec& spec,
              SpecProblems& problems, size_t fault) {
  const JobKey* const key = FindJobKey(path);
  PACELINE_CHECK(key != nullptr, path);
  const KeyRange& range = key->range;
  const std::string named =
      absl::StartsWith(path, "faults.")
          ? absl::StrCat("faults[", fault, "]", path.substr(6))
          : path;
  return std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return problems.OneOf(named.c_str(), range.what, *value,
                                WordsOf(range));
        } else if constexpr (std::is_same_v<T, double>) {
          return problems.Number(named.c_str(), *value, range.good(*value),
                                 range.text);
        } else if constexpr (std::is_integral_v<T>) {
          return problems.Whole(named.c_str(), *value, range.least, range.most);
        } else {
          return true;
        }
      },
      ValueIn(*key, spec, fault));
}

std::vector<UnusedKey> UnusedKeys(const JobSpec& spec,
                                  const std::vector<GivenKey>& given) {
  std::vector<UnusedKey> unused;
  for (const GivenKey& key : given) {
    std::string why = WhyUnused(spec, key, given);
    if (!why.empty()) unused.push_back({key.path, std::move(why)});
  }
  return unused;
}

std::string RemediesFor(const JobSpec& spec,
                        std::vector<std::string> remedies) {
  std::erase_if(remedies, [&spec](const std::string& remedy) {
    for (const absl::string_view word : absl::StrSplit(remedy, ' ')) {
      const std::string path(word);
      if (FindJobKey(path) == nullptr) continue;
      // There pipeline.stages may be 1 only.
      if (IsDataParallel(spec) && absl::StartsWith(path, "pipeline.")) {
        return true;
      }
      if (!UnusedKeys(spec, {{.path = path}}).empty()) return true;
    }
    return false;
  });
  if (remedies.size() < 2) return absl::StrJoin(remedies, "");
  return absl::StrCat(absl::StrJoin(remedies.begin(), remedies.end() - 1, ", "),
                      " or ", remedies.back());
}

}  // namespace paceline
