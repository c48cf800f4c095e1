#include <filesystem>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/files/whole_file.h"
#include "client/files/yaml.h"
#include "client/study/study.h"
#include "client/values/plan_options.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {
namespace {

constexpr const char* kUsualMeasures[] = {"accuracy", "loss", "time"};
constexpr const char* kUsualPlanMeasures[] = {"configuration", "bottleneck",
                                              "speed_up", "simulated_speed_up"};
// They say how jobs run.
constexpr const char* kJobKeys[] = {"base", "repeat", "exclusive", "race",
                                    "against"};
constexpr int64_t kMostSimulated = 1 << 16;  // micro-batches of a step
constexpr size_t kLongestStudyName =
    64;  // leaves room for labels in jobs' names
constexpr int64_t kMostRepeats = 1000;
constexpr int64_t kMostBudget = 1'000'000'000;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestStudyName &&
         !absl::StrContains(name, '/') && !HoldsControl(name);
}

// Aliases can make a short file expand without end.  The text is cut at this
// length, and no key accepts a cut text.
constexpr size_t kMostSetText = 1 << 16;
constexpr int kDeepestSet = 100;

void AppendSetText(const YAML::Node& value, int depth, std::string& text) {
  if (text.size() > kMostSetText || depth > kDeepestSet) return;
  if (value.IsScalar()) return absl::StrAppend(&text, value.Scalar());
  const char* separator = value.IsMap() ? "{" : "[";
  for (const auto& each : value) {
    text += std::exchange(separator, ", ");
    if (value.IsMap()) absl::StrAppend(&text, each.first.Scalar(), ": ");
    AppendSetText(value.IsMap() ? each.second : YAML::Node(each), depth + 1,
                  text);
  }
  if (value.size() == 0) text += separator;
  text += value.IsMap() ? "}" : "]";
}

// A value as it stands behind `--set KEY=`, on one line.
std::string SetText(const YAML::Node& value) {
  std::string text;
  AppendSetText(value, 0, text);
  return text;
}

absl::StatusOr<Measure> MeasureNamed(const Study& study,
                                     const std::string& name) {
  return study.plan.has_value() ? FindPlanMeasure(name) : FindMeasure(name);
}

// Empty where the node is no scalar.
std::string TextOf(const YAML::Node& node) {
  return node.IsScalar() ? node.Scalar() : "";
}

// Fills a Study and gathers what is wrong.  Thread-compatible.
class StudyReader {
 public:
  StudyReader(std::string path, Study& study)
      : path_(std::move(path)), study_(study) {}

  void ReadRoot(const YAML::Node& root) {
    using Read = void (StudyReader::*)(const YAML::Node&);
    constexpr std::pair<const char*, Read> kKeys[] = {
        {"name", &StudyReader::ReadName},
        {"base", &StudyReader::ReadBase},
        {"plan", &StudyReader::ReadPlan},
        {"vary", &StudyReader::ReadVary},
        {"trials", &StudyReader::ReadTrials},
        {"repeat", &StudyReader::ReadRepeat},
        {"measure", &StudyReader::ReadMeasure},
        {"exclusive", &StudyReader::ReadExclusive},
        {"against", &StudyReader::ReadAgainst},
        {"race", &StudyReader::ReadRace},
        {"published", &StudyReader::ReadPublished}};
    std::vector<std::string> names;
    for (const auto& [key, read] : kKeys) names.emplace_back(key);
    if (!Expect(root.IsMap(), root, "expected keys (",
                absl::StrJoin(names, ", "), ")")) {
      return;
    }
    // It decides what the other keys may hold.
    if (root["plan"].IsDefined()) study_.plan.emplace();
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string name = TextOf(entry.first);
      if (std::string why = WhyNotAmong("key", name, names); !why.empty()) {
        AddProblem(entry.first, why);
        continue;
      }
      if (!seen.insert(name).second) {
        AddProblem(entry.first, name, ": is given twice");
      }
      for (const auto& [key, read] : kKeys) {
        if (name == key) (this->*read)(entry.second);
      }
    }
    for (const char* const key : kJobKeys) {
      if (study_.plan.has_value() && seen.contains(key)) {
        AddProblem(root[key], key, ": goes with jobs; this study has plans");
      }
    }
    if (seen.contains("race") && study_.repeat > 1) {
      AddProblem(root["race"],
                 "race: takes one job a trial: leave repeat out, "
                 "and vary train.seed");
    }
    if (!IsName(study_.name)) {
      AddProblem(root, "the file's name cannot be the study's: give it a name");
    }
    if (!seen.contains("base") && !seen.contains("plan")) {
      AddProblem(root,
                 "base is missing: name a job file, or give the keys of a "
                 "job; a study of plans has plan");
    }
    for (const Measure& measure : study_.measure) {
      const bool compares = absl::c_any_of(measure.paths, [](const auto& path) {
        return absl::StartsWith(path, "against.");
      });
      if (study_.against.empty() && compares) {
        AddProblem(
            root["measure"], "measure: ", measure.name,
            " compares with another trial: name that one, as in against: "
            "serial");
      }
    }
    if (seen.contains("vary") && seen.contains("trials")) {
      AddProblem(root["trials"],
                 "vary and trials exclude each other: leave one out");
    }
  }

  absl::Status status() const {
    if (problems_.empty()) return absl::OkStatus();
    return InvalidArgument(absl::StrJoin(problems_, "\n"));
  }

 private:
  template <typename... Parts>
  void AddProblem(const YAML::Node& node, const Parts&... why) {
    problems_.push_back(
        absl::StrCat(path_, ":", node.Mark().line + 1, ": ", why...));
  }
  // Whether `value` is what is expected; adds the problem that it is not.
  template <typename... What>
  bool Expect(bool is, const YAML::Node& value, const What&... what) {
    const bool none = value.IsSequence() && value.size() == 0;
    if (!is) {
      AddProblem(value, what..., ", got ", none ? "none" : NodeText(value));
    }
    return is;
  }
  // Calls take(key, value) with all that a map has.
  //   what  is expected, where it is no map
  void ForKeys(
      const YAML::Node& map, absl::string_view what,
      absl::FunctionRef<void(const YAML::Node&, const YAML::Node&)> take) {
    if (!Expect(map.IsMap(), map, what)) return;
    for (const auto& entry : map) take(entry.first, entry.second);
  }

  // `value`, which must be a list of at least `least` elements; else nothing.
  //   what  is expected, where it is none
  YAML::Node ListIn(const YAML::Node& value, absl::string_view what,
                    size_t least = 1) {
    const bool is_list = value.IsSequence() && value.size() >= least;
    return Expect(is_list, value, what) ? value : YAML::Node();
  }

  void ReadName(const YAML::Node& value) {
    if (Expect(IsName(TextOf(value)), value, "name: expected a text of 1 to ",
               kLongestStudyName,
               " bytes without a slash, which ends it in the names of jobs")) {
      study_.name = value.Scalar();
    }
  }

  void ReadBase(const YAML::Node& value) {
    if (value.IsMap()) {
      study_.base.below = "base";
    } else if (Expect(!TextOf(value).empty(), value,
                      "base: expected a job file or the keys of a job")) {
      study_.base.name =
          std::filesystem::path(path_).parent_path() / value.Scalar();
      study_.base.text.clear();
    }
  }

  void ReadVary(const YAML::Node& value) {
    ForKeys(value,
            "vary: expected keys of a job with lists of values, as in "
            "train.batch: [32, 64]",
            [this](const YAML::Node& node, const YAML::Node& values) {
              ReadAxis(node, values);
            });
  }
  void ReadAxis(const YAML::Node& node, const YAML::Node& values) {
    if (!values.IsSequence() || values.size() == 0) {
      return AddProblem(node, "vary: ", NodeText(node),
                        " needs a list of at least one value, got ",
                        values.IsSequence() ? "none" : NodeText(values));
    }
    const std::string key = TextOf(node);
    if (absl::c_any_of(study_.vary,
                       [&](const Axis& each) { return each.key == key; })) {
      return AddProblem(node, "vary: ", key, " is given twice");
    }
    Axis& axis = study_.vary.emplace_back();
    axis.key = key;
    for (const auto& each : values) {
      if (!CheckSetting("vary", node, each)) break;
      axis.values.push_back(SetText(each));
    }
  }

  void ReadTrials(const YAML::Node& value) {
    for (const auto& each :
         ListIn(value,
                "trials: expected a list of at least one trial, as in "
                "[{train.batch: 32}]")) {
      Trial& trial = study_.trials.emplace_back();
      ForKeys(each, "trials: expected keys of a job",
              [&](const YAML::Node& key, const YAML::Node& set) {
                if (TextOf(key) == "label") {
                  trial.label = Printable(SetText(set));
                } else if (CheckSetting("trials", key, set)) {
                  trial.settings.push_back({key.Scalar(), SetText(set)});
                }
              });
    }
  }

  void ReadRepeat(const YAML::Node& value) {
    ReadWhole("repeat", value, 1, kMostRepeats, study_.repeat);
  }
  void ReadWhole(const char* name, const YAML::Node& value, int64_t least,
                 int64_t most, int64_t& number) {
    const bool is_number = absl::SimpleAtoi(TextOf(value), &number);
    Expect(is_number && number >= least && number <= most, value, name,
           ": expected a whole number from ", least, " to ", most);
  }

  void ReadMeasure(const YAML::Node& value) {
    for (const auto& each :
         ListIn(value, "measure: expected a list, as in [accuracy, time]")) {
      auto measure = MeasureNamed(study_, TextOf(each));
      if (measure.ok()) {
        study_.measure.push_back(*std::move(measure));
      } else {
        AddProblem(each, "measure: ", measure.status().message());
      }
    }
  }

  void ReadExclusive(const YAML::Node& value) {
    study_.exclusive = TextOf(value) == "true";
    Expect(study_.exclusive || TextOf(value) == "false", value,
           "exclusive: expected true or false");
  }

  void ReadAgainst(const YAML::Node& value) {
    if (Expect(!TextOf(value).empty(), value,
               "against: expected the label of a trial")) {
      study_.against = Printable(value.Scalar());
    }
  }

  void ReadRace(const YAML::Node& value) {
    Race& race = study_.race.emplace();
    std::string on = "loss";
    ForKeys(
        value, "race: expected keys, as in {halving: 2, on: loss}",
        [&](const YAML::Node& name, const YAML::Node& what) {
          const std::string key = TextOf(name);
          const std::string text = TextOf(what);
          if (key == "halving") {
            ReadWhole("race.halving", what, 2, 100, race.halving);
          } else if (key == "budget") {
            ReadWhole("race.budget", what, 1, kMostBudget, race.budget);
          } else if (key == "plateau" || key == "share") {
            double& part = key == "share" ? race.share : race.plateau;
            if (!absl::SimpleAtod(text, &part) || !(part > 0 && part < 1)) {
              AddProblem(what, "race.", key, ": expected a number in (0, 1)");
            }
          } else if (key == "on") {
            on = text;
            const std::string why =
                WhyNotAmong("loss", on, {"loss", "test_loss", "accuracy"});
            if (!why.empty()) AddProblem(what, "race.on: ", why);
          } else {
            AddProblem(
                name, "race: ",
                WhyNotAmong("key", key,
                            {"halving", "on", "budget", "share", "plateau"}));
          }
        });
    if (auto measure = FindMeasure(on); measure.ok()) race.on = *measure;
    // The end of a short rung is a single batch, which says little.
    if (on == "loss") race.on.fold = Fold::kMean;
  }

  void ReadPlan(const YAML::Node& value) {
    PlanBase& plan = *study_.plan;
    plan.folder = std::filesystem::path(path_).parent_path();
    ForKeys(value, "plan: expected keys, as in {cost_model: pipedream}",
            [&](const YAML::Node& name, const YAML::Node& what) {
              const std::string key = TextOf(name);
              if (key == "micro_batches") {
                ReadWhole("plan.micro_batches", what, 1, kMostSimulated,
                          plan.micro_batches);
              } else if (key == "folder" && what.IsScalar()) {
                plan.folder =
                    std::filesystem::path(plan.folder) / what.Scalar();
              } else if (CheckSetting("plan", name, what)) {
                plan.settings.push_back({key, SetText(what)});
              }
            });
  }

  void ReadPublished(const YAML::Node& value) {
    for (const auto& each :
         ListIn(value,
                "published: expected a list, as in [{machines: 4x4, speed_up: "
                "2}]",
                0)) {
      PublishedResult& published = study_.published.emplace_back();
      ForKeys(each, "published: expected keys",
              [&](const YAML::Node& name, const YAML::Node& what) {
                const std::string key = TextOf(name);
                const std::string text = Printable(SetText(what));
                if (key == "note") {
                  published.note = text;
                } else if (MeasureNamed(study_, key).ok()) {
                  published.says.push_back({key, text});
                } else if (CheckSetting("published", name, what)) {
                  published.where.push_back({key, text});
                }
              });
    }
  }

  // Whether it names a key of a job and a value of its type.
  bool CheckSetting(const char* where, const YAML::Node& key,
                    const YAML::Node& value) {
    if (!key.IsScalar() || value.IsNull()) {
      AddProblem(key, where, ": expected a key of a job and a value, got ",
                 NodeText(key), " and ", NodeText(value));
      return false;
    }
    if (study_.plan.has_value()) {
      PlanOptions unused;
      const absl::Status set =
          SetPlanOption(key.Scalar(), SetText(value), unused);
      if (!set.ok()) AddProblem(value, where, ": ", set.message());
      return set.ok();
    }
    if (key.Scalar() == "name") {
      AddProblem(key, where, ": name: the study names its jobs");
      return false;
    }
    const absl::Status checked =
        CheckSet(absl::StrCat(key.Scalar(), "=", SetText(value)));
    if (!checked.ok()) AddProblem(value, where, ": ", checked.message());
    return checked.ok();
  }

  const std::string path_;
  Study& study_;
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<Study> ParseStudyFile(const std::string& path,
                                     const std::string& text) {
  Study study;
  study.name = std::filesystem::path(path).stem();
  study.base = {.name = path, .text = text, .sets = {}};
  StudyReader reader(path, study);
  PACELINE_RETURN_IF_ERROR(ReadYaml(path, text, "a study file",
                                    "names at least its base",
                                    [&](const YAML::Node& root) {
                                      reader.ReadRoot(root);
                                      return reader.status();
                                    }));
  if (!study.measure.empty()) return study;
  absl::Span<const char* const> usual = kUsualMeasures;
  if (study.plan.has_value()) usual = kUsualPlanMeasures;
  for (const char* const name : usual) {
    PACELINE_ASSIGN_OR_RETURN(study.measure.emplace_back(),
                              MeasureNamed(study, name));
  }
  return study;
}

absl::StatusOr<Study> ReadStudyFile(const std::string& path,
                                    const std::vector<std::string>& sets) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxJobFileBytes));
  PACELINE_ASSIGN_OR_RETURN(Study study, ParseStudyFile(path, text));
  study.base.sets = sets;
  if (study.plan.has_value()) {
    for (const std::string& set : sets) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(set, absl::MaxSplits('=', 1));
      study.plan->settings.push_back({parts.first, parts.second});
    }
  } else if (study.base.text.empty()) {
    PACELINE_ASSIGN_OR_RETURN(study.base.text, ReadJobFile(study.base.name));
    bool is_study = false;
    ReadYaml(study.base.name, study.base.text, "a job file", "",
             [&](const YAML::Node& root) {
               is_study = root.IsMap() && (root["base"] || root["plan"]);
               return absl::OkStatus();
             })
        .IgnoreError();  // ParseJobFile() says what is wrong
    if (is_study) {
      return InvalidArgument(path, ": base: ", study.base.name,
                             " is a study itself: name a job file");
    }
  }
  return study;
}

}  // namespace paceline
