#include "client/unused_keys.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/job_keys.h"
#include "core/model/catalog.h"

namespace paceline {
namespace {

constexpr char kModelPrefix[] = "model.";

// Of a key that decides about others in JobKeys().
std::string ValueOf(const JobSpec& spec, const std::string& decider) {
  if (decider == "data.name") return spec.data.name;
  if (decider == "train.optimizer.name") return spec.train.optimizer.name;
  if (decider == "aggregation.rule") return spec.aggregation.rule;
  if (decider == "train.learning_rate.schedule") {
    return spec.train.learning_rate.schedule;
  }
  return "";
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
  const JobKey* const known = FindJobKey(key.path);
  if (known != nullptr && *known->decider != '\0') {
    const std::string value = ValueOf(spec, known->decider);
    if (!value.empty()) {
      return IsAmong(known->needs, value)
                 ? ""
                 : absl::StrCat(known->decider, " is ", value);
    }
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
      IsAmong(FindJobKey("data.test_samples")->needs, spec.data.name) &&
      spec.data.test_samples == 0) {
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
