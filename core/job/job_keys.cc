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
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/round/rules/rule.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr int64_t kMostWhole = std::numeric_limits<int64_t>::max();

constexpr JobKey kKeys[] = {
#include "core/job/job_keys.gen.inc"
};

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

// --set train.steps=60 on a file with epochs is how one shortens a run.
bool EpochsAreMeant(const GivenKey& epochs,
                    const std::vector<GivenKey>& given) {
  return !epochs.by_set && std::ranges::any_of(given, [](const GivenKey& key) {
    return key.by_set && key.path == "train.steps";
  });
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
  return FindNamed(kKeys, path, &JobKey::path);
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

void CheckKey(const JobKey& key, const JobSpec& spec, size_t fault,
              SpecProblems& problems) {
  const KeyRange& range = key.range;
  if (RangeText(key).empty()) return;
  absl::string_view in_fault = key.path;
  const std::string named = absl::ConsumePrefix(&in_fault, "faults.")
                                ? absl::StrCat("faults[", fault, "].", in_fault)
                                : key.path;
  std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          problems.OneOf(named.c_str(), range.what, *value, WordsOf(range));
        } else if constexpr (std::is_same_v<T, double>) {
          problems.Number(named.c_str(), *value, range.good(*value),
                          range.text);
        } else if constexpr (std::is_integral_v<T>) {
          problems.Whole(named.c_str(), *value, range.least, range.most);
        }
      },
      ValueIn(key, spec, fault));
}

bool IsInRange(const std::string& path, const JobSpec& spec) {
  const JobKey* const key = FindJobKey(path);
  PACELINE_CHECK(key != nullptr, path);
  SpecProblems problems;
  CheckKey(*key, spec, 0, problems);
  return problems.Take().empty();
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
