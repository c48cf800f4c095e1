#include "core/job/job_model.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/job/job_keys.h"
#include "core/model/description.h"

namespace paceline {
namespace {

constexpr size_t kMostShown = 80;  // bytes of a text that a file has

std::string Shown(const std::string& text) {
  return absl::Utf8SafeCEscape(text.substr(0, kMostShown));
}

std::string OperationsOf(const ModelDescription& model) {
  std::set<std::string> kinds;
  for (const Layer& layer : model.layers) {
    for (const Operation& operation : layer.operations) {
      if (operation.kind != "dropout") kinds.insert(operation.kind);
    }
  }
  return absl::StrJoin(kinds, " ");
}

// The bearing of a key of metadata; other keys say something else.
Bearing BearingOf(const std::string& key) {
  if (key == kOperationsKey) return Bearing::kRefused;
  if (key == kSkippedKey) return Bearing::kSaid;
  const JobKey* const known = FindJobKey(key);
  return known == nullptr ? Bearing::kNone : known->bearing;
}

// Metadata, all of it but kClassesKey: texts by key.
std::map<std::string, std::string> MadeWithOf(const JobSpec& given,
                                              const ModelDescription& model) {
  JobSpec spec = given;
  spec.data = WithPixelScale(spec.data);
  std::vector<GivenKey> keys;
  std::map<std::string, std::string> made = {
      {kOperationsKey, OperationsOf(model)}};
  for (const JobKey& key : JobKeys()) {
    if (key.bearing == Bearing::kNone) continue;
    keys.push_back({key.path});
    const KeyValue value = key.at(spec, 0);
    const auto* const text = std::get_if<std::string*>(&value);
    made[key.path] = text == nullptr ? ValueText(value) : **text;
  }
  for (const UnusedKey& unused : UnusedKeys(spec, keys)) {
    made.erase(unused.path);
  }
  // Its path may differ from worker to worker.
  if (made.contains("model.file")) made["model.file"] = model.file_sha256;
  std::set<int> skipped;
  for (const Layer& layer : model.layers) {
    if (layer.skipped) skipped.insert(layer.block);
  }
  if (!skipped.empty()) {
    made[kSkippedKey] = absl::StrCat("[", absl::StrJoin(skipped, ", "), "]");
  }
  return made;
}

}  // namespace

ModelSpec TeacherOf(const JobSpec& spec) {
  ModelSpec teacher = BareModel(spec.model);
  teacher.sizes.clear();
  teacher.weights = spec.train.distill.weights;
  return teacher;
}

absl::StatusOr<ModelDescription> DescribeModel(const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(
      ModelDescription described,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  PACELINE_RETURN_IF_ERROR(SkipBlocksOf(spec, described));
  described.made_with = MadeWithOf(spec, described);
  if (!spec.train.distill.weights.empty() && !IsInference(spec)) {
    JobSpec of_teacher = spec;
    of_teacher.model = TeacherOf(spec);
    of_teacher.train.distill = {};
    of_teacher.faults.clear();
    PACELINE_ASSIGN_OR_RETURN(ModelDescription teacher,
                              DescribeModel(of_teacher));
    described.teacher =
        std::make_shared<const ModelDescription>(std::move(teacher));
  }
  return described;
}

absl::Status CheckMadeWith(const std::map<std::string, std::string>& metadata,
                           const std::map<std::string, std::string>& job,
                           bool reset_head, std::vector<std::string>& notes) {
  std::vector<std::string> refused, said, silent;
  for (const auto& [key, value] : job) {
    Bearing bearing = BearingOf(key);
    const auto theirs = metadata.find(key);
    if (theirs == metadata.end()) {
      // Files without adapters have no alpha.
      if (bearing == Bearing::kRefused && key != kOperationsKey &&
          !absl::StartsWith(key, "model.lora.")) {
        silent.push_back(absl::StrCat(key, " ", value));
      }
      continue;
    }
    if (theirs->second == value) continue;
    if (reset_head && absl::StartsWith(key, "data.")) bearing = Bearing::kSaid;
    (bearing == Bearing::kRefused ? refused : said)
        .push_back(absl::StrCat(key, " ", Shown(theirs->second),
                                ", and the job has ", Shown(value)));
  }
  const auto skipped = metadata.find(kSkippedKey);
  if (skipped != metadata.end() && !job.contains(kSkippedKey)) {
    said.push_back(absl::StrCat(kSkippedKey, " ", Shown(skipped->second),
                                ", and the job leaves no block out"));
  }
  if (!refused.empty()) {
    return InvalidArgument("made with ", absl::StrJoin(refused, "; with "),
                           ": it would give other results; set the job's as "
                           "they were");
  }
  if (!said.empty()) {
    notes.push_back(absl::StrCat("made with ", absl::StrJoin(said, "; with ")));
  }
  if (!silent.empty()) {
    notes.push_back(
        absl::StrCat("does not say with what it was made; the job takes ",
                     absl::StrJoin(silent, ", "),
                     ", and if it was something else the results are wrong"));
  }
  return absl::OkStatus();
}

void SetClasses(const std::string& classes, ModelDescription& model) {
  if (!classes.empty()) model.made_with[kClassesKey] = classes;
}

absl::Status CheckClasses(const WeightsOrigin& origin,
                          const std::string& classes, const ModelSpec& spec) {
  const auto found = origin.metadata.find(kClassesKey);
  if (found == origin.metadata.end() || classes.empty() ||
      found->second == classes || spec.reset_head) {
    return absl::OkStatus();
  }
  const std::vector<std::string> theirs = absl::StrSplit(found->second, '\n');
  const std::vector<std::string> ours = absl::StrSplit(classes, '\n');
  const auto [a, b] = std::ranges::mismatch(theirs, ours);
  const auto name = [](auto at, const std::vector<std::string>& all) {
    return at == all.end() || at->empty() ? "nothing"
                                          : absl::StrCat("'", Shown(*at), "'");
  };
  return InvalidArgument(
      spec.weights, ": made for other classes than the data has: number ",
      a - theirs.begin(), " is ", name(a, theirs), " there, and ",
      name(b, ours),
      " here: name the same classes, or draw a new head with "
      "model.reset_head: true");
}

}  // namespace paceline
