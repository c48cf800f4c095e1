#include "client/job_keys.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// What is so when a key is absent.
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

constexpr JobKey kKeys[] = {
    {"name", "Shown in lists.", "the model's name"},
    {"model.name", "Which model: 'paceline model list' shows all.", kNone},
    {"model.hidden", "mlp: widths of the hidden layers.", kOwn},
    {"model.depth",
     "Transformers: blocks. gnmt: layers of the encoder, and of the decoder.",
     kOwn},
    {"model.width",
     "Transformers and gnmt: numbers a token. resnet and vgg: channels of the "
     "first convolution.",
     kOwn},
    {"model.heads", "Transformers: attention heads; they divide the width.",
     kOwn},
    {"model.patch", "vit, deit: edge of a patch; it divides the image.", kOwn},
    {"model.dropout", "Probability in [0, 1) that a number is dropped.", kOwn},
    {"model.weights",
     "Begins with the weights of this safetensors file, which every worker "
     "finds at this absolute path.",
     "weights are drawn from the seed"},
    {"model.reset_head",
     "With model.weights: draws the class head from the seed all the same."},
    {"model.file",
     "script: a TorchScript file, which every worker finds at this absolute "
     "path.",
     kNone},
    {"model.positions", "Models of tokens: the longest sample that they take.",
     "data.block"},
    {"model.vocabulary", "Models of tokens: how many different ones they know.",
     "as many as the data has"},
    {"data.name",
     "cifar10, cifar100, fashion-mnist, idx, imagefolder, synthetic, "
     "synthetic-labels, synthetic-pairs, synthetic-tokens, text, text-labels "
     "or text-pairs.",
     kNone},
    {"data.path",
     "The folder or file of the data, on the workers that read it: the first "
     "stage's, or all members.",
     "where the data set's package puts it, if there is one", kData, kFiles},
    {"data.train_samples", "How many samples training has.", "", kData,
     kSynthetic},
    {"data.test_samples", "How many samples evaluation has.", "", kData,
     kSynthetic},
    {"data.shape", "Shape of a sample.",
     "what the model is made for; imagefolder: [3, 224, 224]"},
    {"data.classes", "Different labels; of texts, different tokens.",
     "the data set's"},
    {"data.workers", "Threads that load samples ahead."},
    {"data.crop",
     "How training cuts an image: center, random or random-resized "
     "(imagefolder only). Evaluation takes the centre.",
     "", kData, kAugmented},
    {"data.resize", "Pixels of the shorter side before a crop.",
     "8/7 of the longer side of data.shape", kData, " imagefolder "},
    {"data.flip", "Training: probability of a mirror image.", "", kData,
     kAugmented},
    {"data.mean",
     "Mean of pixel values in [0, 1]: one number, or one a channel.",
     "the data set's", kData, kPixels},
    {"data.deviation",
     "Standard deviation of pixel values: one number, or one a channel.",
     "the data set's", kData, kPixels},
    {"data.block", "Tokens a sample; of pairs, of each sentence.",
     "128; of pairs 16", kData, kTokens},
    {"data.tokens", "What a token is: byte, character or uint16.", "", kData,
     " text "},
    {"data.test_fraction",
     "Share of the file, at its end, that evaluation gets. 1, for inference "
     "only: all of it.",
     "", kData, " text text-labels text-pairs "},
    {"data.padding", "The token that fills a sample up.",
     "0; 1 where the model is a roberta", kData,
     " synthetic-labels text-labels "},
    {"data.vocabulary", "How many different tokens there are.", "", kData,
     " synthetic-labels "},
    {"train.epochs", "Walks through the data. train.steps overrules it."},
    {"train.steps", "Optimizer updates in all. 0: train.epochs decides."},
    {"train.batch", "Samples a step."},
    {"train.micro_batch", "Samples that move through the pipeline at once."},
    {"train.seed",
     "Weights, order of samples, dropout and augmentation are drawn from it."},
    {"train.optimizer.name", "sgd or adamw."},
    {"train.optimizer.momentum",
     "How much of the last update the next one keeps.", "", kOptimizer,
     " sgd "},
    {"train.optimizer.weight_decay", "How much weights shrink by themselves."},
    {"train.optimizer.beta1", "Decay of the mean gradient.", "", kOptimizer,
     " adamw "},
    {"train.optimizer.beta2", "Decay of the mean squared gradient.", "",
     kOptimizer, " adamw "},
    {"train.optimizer.epsilon", "Added to the root before the division.", "",
     kOptimizer, " adamw "},
    {"train.learning_rate.base", "The rate before the schedule's factor."},
    {"train.learning_rate.schedule", "constant, cosine or step."},
    {"train.learning_rate.warmup_steps",
     "The rate grows from 0 to the base in so many steps."},
    {"train.learning_rate.minimum", "What the rate falls towards.", "", kRate,
     " cosine "},
    {"train.learning_rate.step_every", "Steps between two drops.", "", kRate,
     " step "},
    {"train.learning_rate.gamma", "Factor of one drop.", "", kRate, " step "},
    {"train.clip_norm",
     "The gradient's global L2 norm is cut down to it. 0: never."},
    {"train.evaluate_every",
     "Epochs between two evaluations. 0: only after the last step."},
    {"train.activation_checkpointing",
     "What a forward keeps for its backward: none recomputes nothing, stage "
     "keeps a stage's input, every-N the input of every Nth layer."},
    {"pipeline.stages",
     "How many stages the model is cut into. 0: as many as are fastest."},
    {"pipeline.schedule",
     "gpipe, 1f1b, interleaved-1f1b, zero-bubble or pipedream."},
    {"pipeline.cuts",
     "First layers of the stages but the first. Empty: the policy cuts."},
    {"pipeline.policy",
     "Who cuts and places: dp, equal, min-cut, brute, mcmc or soft."},
    {"pipeline.vertical_sync",
     "All stages compute a micro-batch at the first stage's version of the "
     "weights.",
     "", kSchedule, " pipedream "},
    {"pipeline.codec",
     "How activations and gradients cross between workers: fp32, bf16, fp16 or "
     "int8."},
    {"pipeline.workers",
     "With pipeline.cuts: names of the workers that hold the stages, one a "
     "stage. Empty: whoever is free and fastest."},
    {"pipeline.replicas",
     "With pipeline.workers: how many of them hold each stage. Empty: one "
     "each.",
     "", kKind, " infer "},
    {"pipeline.shares",
     "With pipeline.replicas: each worker's part of its stage's micro-batches, "
     "in any unit. Empty: equal parts.",
     "", kKind, " infer "},
    {"pipeline.replicate",
     "Whether the policy may give a stage to several workers: auto (where "
     "pipeline.stages is 0), allowed or never.",
     "", kKind, " infer "},
    {"threads", "Compute threads a worker."},
    {"cpu_capability",
     "Instructions that all workers use: auto (the best that all have), "
     "default, avx2, avx512 or avx512_bf16. Others round otherwise."},
    {"kind",
     "train, or infer: the test set passes through once, forward only, and the "
     "result is a file of predictions."},
    {"infer.micro_batch", "Samples that move through the pipeline at once.", "",
     kKind, " infer "},
    {"infer.samples", "The first ones of the test set. 0: all.", "", kKind,
     " infer "},
    {"infer.outputs",
     "Keeps what the last layer gave, and not the class alone.", "", kKind,
     " infer "},
    {"precision",
     "What matrix products and convolutions are computed in: fp32 or bf16."},
    {"aggregation.mode",
     "none: the job is a pipeline. Else every worker holds the whole model, "
     "and they agree on a gradient: rolling (the server changes every step), "
     "central (it stays), gossip (pairs average their parameters)."},
    {"aggregation.members",
     "At most so many. 0: all workers that can, and whoever joins."},
    {"aggregation.rule",
     "mean, median, trimmed-mean, krum, suspicion or zeno."},
    {"aggregation.k", "Liars that the rule withstands."},
    {"aggregation.selected", "Members that are averaged.", "", kRule, " krum "},
    {"aggregation.alpha", "How fast suspicion grows.", "", kRule,
     " suspicion "},
    {"aggregation.gamma",
     "The step along which a part is judged. 0: the learning rate.", "", kRule,
     " zeno "},
    {"aggregation.rho", "How much a part's length counts against it.", "",
     kRule, " zeno "},
    {"aggregation.trusted", "Samples of the trusted batch.", "", kRule,
     " zeno "},
    {"aggregation.shards",
     "Parts of the gradient, each with a server of its own. 0: as many as the "
     "job begins with members, where the rule allows it."},
    {"aggregation.min_parts",
     "A round with fewer usable parts leaves the weights alone."},
    {"aggregation.deadline",
     "Seconds that a round waits at most for parts after its first one."},
    {"aggregation.codec",
     "How parts and results cross the network: fp32 or bf16."},
    {"aggregation.workers",
     "Names of the workers that are members. Empty: all that can."},
    {"aggregation.shares",
     "With aggregation.workers: each one's part of a batch, in any unit. "
     "Empty: by speed."},
    {"faults.worker", "Name of the worker that misbehaves on purpose.", kNone},
    {"faults.step", "The first step that it concerns."},
    {"faults.kind",
     "kill, hang, delay, bit-flip, sign-flip, label-flip, gaussian, nan or "
     "duplicate.",
     kNone},
    {"faults.steps", "So many steps. 0: to the end."},
    {"faults.seconds", "How long it hangs, or how late its part comes.", "",
     kFault, " hang delay "},
    {"faults.scale", "Factor of the flip, deviation of the noise.", "", kFault,
     " sign-flip gaussian "},
    {"faults.phase",
     "computing; or of a round that the worker serves: gathering, spreading "
     "or committing.",
     "", kFault, " kill "},
};

}  // namespace

absl::Span<const JobKey> JobKeys() { return kKeys; }

const JobKey* FindJobKey(const std::string& path) {
  const auto found =
      std::find_if(std::begin(kKeys), std::end(kKeys),
                   [&](const JobKey& key) { return key.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

bool IsAmong(const char* words, const std::string& word) {
  return absl::StrContains(words, absl::StrCat(" ", word, " "));
}

}  // namespace paceline
