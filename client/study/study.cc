#include "client/study/study.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"
#include "core/job/job_check.h"
#include "core/job/spec/spec_problems.h"
#include "core/rpc/convert/job_convert.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

constexpr size_t kLongestJobName = 128;  // as CheckJobSpec() has it

// "batch" of "train.batch"; all of it where another key ends like this.
std::string ShortKey(const std::string& key,
                     const std::vector<std::string>& keys) {
  const auto last_part = [](const std::string& path) {
    return path.substr(path.rfind('.') + 1);
  };
  const bool alone = absl::c_count_if(keys, [&](const std::string& other) {
                       return last_part(other) == last_part(key);
                     }) < 2;
  return alone ? last_part(key) : key;
}

// with_keys: not for plans, which have few keys.
std::string LabelOf(const std::vector<Setting>& settings, bool with_keys) {
  if (settings.empty()) return "base";
  std::vector<std::string> keys, parts;
  for (const Setting& each : settings) keys.push_back(each.key);
  for (const Setting& each : settings) {
    const std::string key = ShortKey(each.key, keys);
    parts.push_back(absl::StrCat(with_keys ? key + "=" : "", each.value));
  }
  return absl::StrJoin(parts, " ");
}

void AddCombinations(const std::vector<Axis>& axes, size_t axis, Trial trial,
                     std::vector<Trial>& trials) {
  if (axis == axes.size()) {
    trials.push_back(std::move(trial));
    return;
  }
  for (const std::string& value : axes[axis].values) {
    Trial longer = trial;
    longer.settings.push_back({axes[axis].key, value});
    AddCombinations(axes, axis + 1, std::move(longer), trials);
  }
}

std::string JobName(const Study& study, const std::string& label, size_t trial,
                    int64_t repeat) {
  const std::string end = repeat > 0 ? absl::StrCat("#", repeat + 1) : "";
  std::string name = absl::StrCat(study.name, "/", label, end);
  if (name.size() <= kLongestJobName) return name;
  return absl::StrCat(study.name, "/trial-", trial + 1, end);
}

absl::StatusOr<ParsedJob> ParseTrial(const Study& study, const Trial& trial) {
  JobFile file = study.base;
  for (const Setting& each : trial.settings) {
    file.sets.push_back(absl::StrCat(each.key, "=", each.value));
  }
  return ParseJobFile(file);
}

}  // namespace

int64_t JobCount(const Study& study) {
  int64_t count = study.repeat;
  const auto times = [&](size_t factor) {
    if (count > kMostJobs / static_cast<int64_t>(factor)) {
      count = kMostJobs + 1;
    } else {
      count *= static_cast<int64_t>(factor);
    }
  };
  for (const Axis& axis : study.vary) times(axis.values.size());
  if (!study.trials.empty()) times(study.trials.size());
  return count;
}

absl::StatusOr<std::vector<Trial>> TrialsOf(const Study& study) {
  std::vector<Trial> trials = study.trials;
  if (trials.empty()) AddCombinations(study.vary, 0, {}, trials);
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < trials.size(); ++i) {
    std::string& label = trials[i].label;
    if (label.empty()) {
      label = LabelOf(trials[i].settings, !study.plan.has_value());
    }
    const auto [first, is_new] = seen.emplace(label, i);
    if (is_new) continue;
    return InvalidArgument("study ", Printable(study.name), ": trials ",
                           first->second + 1, " and ", i + 1, " are both '",
                           Printable(label),
                           "': take one out, or give it another label");
  }
  if (!study.against.empty() && !seen.contains(study.against)) {
    std::vector<std::string> labels;
    for (const auto& [label, trial] : seen) labels.push_back(label);
    return InvalidArgument("study ", Printable(study.name),
                           ": against: no trial is '", Printable(study.against),
                           "'", MeantText(study.against, labels));
  }
  for (const PublishedResult& published : study.published) {
    const auto is_of = [&](const Trial& each) { return IsOf(published, each); };
    if (absl::c_any_of(trials, is_of)) continue;
    return InvalidArgument("study ", Printable(study.name),
                           ": published: there is no trial with ",
                           Printable(LabelOf(published.where, true)));
  }
  return trials;
}

bool IsOf(const PublishedResult& published, const Trial& trial) {
  return absl::c_all_of(published.where, [&](const Setting& wanted) {
    return absl::c_any_of(trial.settings, [&](const Setting& each) {
      return each.key == wanted.key && each.value == wanted.value;
    });
  });
}

absl::StatusOr<std::vector<TrialJob>> JobsOf(
    const Study& study, const std::vector<Trial>& trials,
    std::vector<std::string>* warnings) {
  std::vector<TrialJob> jobs;
  absl::Status wrong;
  bool any = false;
  const auto against = absl::c_find_if(trials, [&](const Trial& each) {
    return !study.against.empty() && each.label == study.against;
  });
  for (size_t t = 0; t < trials.size(); ++t) {
    const absl::StatusOr<ParsedJob> parsed = ParseTrial(study, trials[t]);
    wrong.Update(parsed.status());
    any = any || parsed.ok();
    if (parsed.ok() && trials[t].label == study.against &&
        parsed->spec.pipeline.stages > 1) {
      return InvalidArgument("against: trial ", trials[t].label, " has ",
                             parsed->spec.pipeline.stages,
                             " stages; the others are compared with one that "
                             "has pipeline.stages: 1");
    }
    for (int64_t repeat = 0; repeat < study.repeat; ++repeat) {
      TrialJob& job = jobs.emplace_back();
      job.trial = t;
      job.repeat = repeat;
      if (against != trials.end()) job.against = against - trials.begin();
      if (!parsed.ok()) {
        job.why =
            absl::StrReplaceAll(parsed.status().message(), {{"\n", "; "}});
        continue;
      }
      job.spec = parsed->spec;
      job.spec.name = JobName(study, trials[t].label, t, repeat);
      int64_t& seed = job.spec.train.seed;
      seed = std::min(seed, std::numeric_limits<int64_t>::max() - repeat);
      seed += repeat;
      job.request_id = RequestId(study, job.spec);
    }
    if (!parsed.ok()) continue;
    for (const std::string& warning : parsed->warnings) {
      if (!absl::c_linear_search(*warnings, warning)) {
        warnings->push_back(warning);
      }
    }
  }
  if (!any) return wrong;
  // Each trial once, then each again: machines that slow down in the meantime
  // slow all trials.
  absl::c_stable_sort(jobs, [](const TrialJob& a, const TrialJob& b) {
    return a.repeat < b.repeat;
  });
  return jobs;
}

namespace {

// Nothing where there is no job to compare with yet.
absl::StatusOr<std::optional<BenchBaseline>> BaselineFor(
    const std::vector<TrialJob>& jobs, size_t job, bool paired) {
  std::optional<BenchBaseline> before, after;
  for (size_t i = 0; i < jobs.size() && !after.has_value(); ++i) {
    if (jobs[i].trial != jobs[job].against ||
        jobs[i].repeat != jobs[job].repeat ||
        jobs[i].state != JobState::kSucceeded) {
      continue;
    }
    std::optional<BenchBaseline>& beside = i <= job ? before : after;
    PACELINE_ASSIGN_OR_RETURN(beside, BaselineOf(jobs[i].result));
    if (i == job) return before;  // it is one itself
  }
  if (!paired) return before.has_value() ? before : after;
  if (!before.has_value() || !after.has_value()) return std::nullopt;
  return MeanOf(*before, *after);
}

}  // namespace

std::vector<std::string> CompareJobs(bool paired,
                                     const std::vector<CpuShare>& shares,
                                     std::vector<TrialJob>& jobs) {
  std::vector<std::string> reasons;
  const auto compare = [&](size_t job) -> absl::Status {
    PACELINE_ASSIGN_OR_RETURN(const std::optional<BenchBaseline> one,
                              BaselineFor(jobs, job, paired));
    if (!one.has_value()) return absl::OkStatus();
    PACELINE_ASSIGN_OR_RETURN(jobs[job].row,
                              RowOf(jobs[job].result, *one, shares));
    jobs[job].document["against"] = RowDocument(*jobs[job].row);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].state != JobState::kSucceeded || jobs[i].only_compares ||
        !jobs[i].against.has_value()) {
      continue;
    }
    const absl::Status compared = compare(i);
    if (!compared.ok() && !absl::c_linear_search(reasons, compared.message())) {
      reasons.emplace_back(compared.message());
    }
  }
  return reasons;
}

std::string RequestId(const Study& study, const JobSpec& spec) {
  const std::string bytes = ToProto(spec).SerializeAsString();
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  return absl::StrFormat("study/%s/%016x", study.name,
                         HashBytes(absl::MakeConstSpan(data, bytes.size())));
}

bool IsOpen(const TrialJob& job) { return job.id > 0 && !HasEnded(job); }

bool HasEnded(const TrialJob& job) {
  return !job.why.empty() || HasEnded(job.state);
}

std::optional<size_t> NextJob(const std::vector<TrialJob>& jobs, bool exclusive,
                              int live_workers) {
  const auto open =
      absl::c_count_if(jobs, [](const TrialJob& job) { return IsOpen(job); });
  if (open >= (exclusive ? 1 : std::max(1, live_workers))) return std::nullopt;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].id == 0 && !HasEnded(jobs[i])) return i;
  }
  return std::nullopt;
}

bool DecideStuck(TrialJob& job, bool idle, Instant now) {
  if (!idle || job.state != JobState::kQueued) {
    job.stuck_since.reset();
    return false;
  }
  if (!job.stuck_since.has_value()) job.stuck_since = now;
  return now - *job.stuck_since >= kStuckTime;
}

}  // namespace paceline
