#include "client/unused_keys.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/model/catalog.h"

namespace paceline {
namespace {

// `key` has an effect only while `decider` has the value `needs`.
struct Rule {
  const char* key;
  const char* decider;
  const char* needs;
  std::string (*value)(const JobSpec&);  // of the decider
};

std::string Optimizer(const JobSpec& spec) { return spec.train.optimizer.name; }
std::string RateSchedule(const JobSpec& spec) {
  return spec.train.learning_rate.schedule;
}

std::string AggregationRule(const JobSpec& spec) {
  return spec.aggregation.rule;
}

constexpr char kModelPrefix[] = "model.";
constexpr char kOptimizer[] = "train.optimizer.name";
constexpr char kRule[] = "aggregation.rule";
constexpr char kSchedule[] = "train.learning_rate.schedule";

constexpr Rule kRules[] = {
    {"train.optimizer.momentum", kOptimizer, "sgd", Optimizer},
    {"train.optimizer.beta1", kOptimizer, "adamw", Optimizer},
    {"train.optimizer.beta2", kOptimizer, "adamw", Optimizer},
    {"train.optimizer.epsilon", kOptimizer, "adamw", Optimizer},
    {"train.learning_rate.minimum", kSchedule, "cosine", RateSchedule},
    {"train.learning_rate.step_every", kSchedule, "step", RateSchedule},
    {"train.learning_rate.gamma", kSchedule, "step", RateSchedule},
    {"aggregation.selected", kRule, "krum", AggregationRule},
    {"aggregation.alpha", kRule, "suspicion", AggregationRule},
    {"aggregation.gamma", kRule, "zeno", AggregationRule},
    {"aggregation.rho", kRule, "zeno", AggregationRule},
    {"aggregation.trusted", kRule, "zeno", AggregationRule},
};

constexpr char kSynthetic[] =
    " synthetic synthetic-labels synthetic-pairs synthetic-tokens ";

// The data sets that look at a key of theirs, between blanks.
struct DataRule {
  const char* key;
  const char* sets;
};

constexpr DataRule kDataRules[] = {
    {"data.path",
     " cifar10 cifar100 fashion-mnist idx imagefolder text text-labels "
     "text-pairs "},
    {"data.train_samples", kSynthetic},
    {"data.test_samples", kSynthetic},
    {"data.crop", " cifar10 cifar100 imagefolder "},
    {"data.resize", " imagefolder "},
    {"data.flip", " cifar10 cifar100 imagefolder "},
    {"data.mean", " cifar10 cifar100 fashion-mnist idx imagefolder "},
    {"data.deviation", " cifar10 cifar100 fashion-mnist idx imagefolder "},
    {"data.block",
     " synthetic-labels synthetic-pairs synthetic-tokens text text-labels "
     "text-pairs "},
    {"data.tokens", " text "},
    {"data.test_fraction", " text text-labels text-pairs "},
    {"data.padding", " synthetic-labels text-labels "},
    {"data.vocabulary", " synthetic-labels "},
};

bool IsAmong(const char* sets, const std::string& data_set) {
  return absl::StrContains(sets, absl::StrCat(" ", data_set, " "));
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

// What belongs to the other kind of job; empty: nothing of `key`.
std::string WhyOtherKind(const JobSpec& spec, const std::string& key) {
  const bool inference = IsInference(spec);
  const bool other =
      inference ? (absl::StartsWith(key, "train.") && key != "train.seed") ||
                      key == "pipeline.schedule"
                : absl::StartsWith(key, "infer.");
  return other ? absl::StrCat("kind is ", spec.kind) : "";
}

// What belongs to a pipeline, or to data parallelism; empty: nothing of `key`.
std::string WhyOtherShape(const JobSpec& spec, const std::string& key) {
  if (!IsDataParallel(spec)) {
    return absl::StartsWith(key, "aggregation.") && key != "aggregation.mode"
               ? "aggregation.mode is none"
               : "";
  }
  return absl::StartsWith(key, "pipeline.") && key != "pipeline.stages"
             ? "every member holds the whole model"
             : "";
}

// Of "faults[2].scale"; empty: it has an effect, or is no key of a fault.
std::string WhyNoFault(const JobSpec& spec, absl::string_view key) {
  size_t index = 0;
  const size_t dot = key.find("].");
  if (!absl::ConsumePrefix(&key, "faults[") || dot == key.npos) return "";
  const size_t digits = dot - std::string("faults[").size();
  if (!absl::SimpleAtoi(key.substr(0, digits), &index) ||
      index >= spec.faults.size()) {
    return "";
  }
  const FaultSpec& fault = spec.faults[index];
  const absl::string_view name = key.substr(digits + 2);
  const auto is = [&fault](const char* kind) { return fault.kind == kind; };
  if (name == "step" && spec.train.steps > 0 &&
      fault.step >= spec.train.steps) {
    return absl::StrCat("the last step of ", spec.train.steps, " is ",
                        spec.train.steps - 1);
  }
  const bool idle =
      (name == "seconds" && !is("hang") && !is("delay")) ||
      (name == "scale" && !is("sign-flip") && !is("gaussian")) ||
      (name == "steps" && is("kill") && fault.phase != "computing");
  return idle ? absl::StrCat("the fault's kind is ", fault.kind) : "";
}

// What makes `key` idle; empty when it has an effect.
std::string WhyUnused(const JobSpec& spec, const GivenKey& key,
                      const std::vector<GivenKey>& given) {
  if (std::string why = WhyOtherKind(spec, key.path); !why.empty()) return why;
  if (std::string why = WhyOtherShape(spec, key.path); !why.empty()) return why;
  if (std::string why = WhyNoFault(spec, key.path); !why.empty()) return why;
  for (const Rule& rule : kRules) {
    if (key.path != rule.key) continue;
    const std::string value = rule.value(spec);
    return value == rule.needs ? "" : absl::StrCat(rule.decider, " is ", value);
  }
  for (const DataRule& rule : kDataRules) {
    if (key.path != rule.key) continue;
    return IsAmong(rule.sets, spec.data.name)
               ? ""
               : absl::StrCat("data.name is ", spec.data.name);
  }
  if (absl::StartsWith(key.path, kModelPrefix)) {
    const std::string size(absl::StripPrefix(key.path, kModelPrefix));
    if (size == "reset_head" && spec.model.weights.empty()) {
      return "there is no model.weights";
    }
    const bool is_size =
        size != "name" && size != "weights" && size != "reset_head";
    return !is_size || ModelReads(spec.model.name, size)
               ? ""
               : absl::StrCat("model.name is ", spec.model.name);
  }
  if (key.path == "train.epochs" && spec.train.steps > 0 &&
      !EpochsAreMeant(key, given)) {
    return absl::StrCat("train.steps is ", spec.train.steps,
                        ", and that decides");
  }
  if (key.path == "train.evaluate_every" &&
      IsAmong(kSynthetic, spec.data.name) && spec.data.test_samples == 0) {
    return "data.test_samples is 0";
  }
  return "";
}

}  // namespace

std::vector<UnusedKey> UnusedKeys(const JobSpec& spec,
                                  const std::vector<GivenKey>& given) {
  std::vector<UnusedKey> unused;
  for (const GivenKey& key : given) {
    std::string why = WhyUnused(spec, key, given);
    if (!why.empty()) unused.push_back({key.path, std::move(why)});
  }
  return unused;
}

}  // namespace paceline
