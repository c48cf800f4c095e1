#include "client/study/study.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"
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

std::vector<Trial> CombinationsOf(const std::vector<Axis>& axes) {
  std::vector<Trial> trials(1);
  for (const Axis& axis : axes) {
    for (const Trial& shorter : std::exchange(trials, {})) {
      for (const std::string& value : axis.values) {
        trials.push_back(shorter);
        trials.back().settings.push_back({axis.key, value});
      }
    }
  }
  return trials;
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
  const auto times = [&](int64_t factor) {
    count = count > kMostJobs / factor ? kMostJobs + 1 : count * factor;
  };
  for (const Axis& axis : study.vary) times(std::ssize(axis.values));
  if (!study.trials.empty()) times(std::ssize(study.trials));
  return count;
}

absl::StatusOr<std::vector<Trial>> TrialsOf(const Study& study) {
  std::vector<Trial> trials =
      study.trials.empty() ? CombinationsOf(study.vary) : study.trials;
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
        jobs[i].state != v1::JOB_STATE_SUCCEEDED) {
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

std::vector<std::string> CompareJobs(bool paired, const CpuShares& shares,
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
    if (jobs[i].state != v1::JOB_STATE_SUCCEEDED || jobs[i].only_compares ||
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
  if (!idle || job.state != v1::JOB_STATE_QUEUED) {
    job.stuck_since.reset();
    return false;
  }
  if (!job.stuck_since.has_value()) job.stuck_since = now;
  return now - *job.stuck_since >= kStuckTime;
}

namespace {

constexpr int64_t kPlateauRungs = 8;

// The first job that its settings make; JobsOf() gives one.
const JobSpec& FirstOf(const std::vector<TrialJob>& jobs) {
  return absl::c_find_if(
             jobs, [](const TrialJob& job) { return !job.request_id.empty(); })
      ->spec;
}

// The steps of a job that takes as many samples as the first in `steps`.
int64_t StepsOf(const JobSpec& spec, const JobSpec& first, int64_t steps) {
  const double batches = static_cast<double>(first.train.batch) /
                         static_cast<double>(spec.train.batch);
  return std::max<int64_t>(1,
                           std::llround(static_cast<double>(steps) * batches));
}

// The same trial in this rung.
TrialJob InRung(const Study& study, const std::vector<Rung>& rungs, size_t rung,
                const TrialJob& from, const JobSpec& first) {
  TrialJob job = {.trial = from.trial,
                  .spec = from.spec,
                  .rung = rung,
                  .against = from.against};
  job.spec.train.steps = StepsOf(from.spec, first, rungs[rung].end);
  // One is made at the end.
  job.spec.train.checkpoint_every = job.spec.train.steps;
  job.request_id = RequestId(study, job.spec);
  return job;
}

// The value to compare by, less is better; infinity: it has none.
double LossOf(const Race& race, const TrialJob& job) {
  const std::optional<double> value = ValueIn(job.document, race.on);
  if (!value.has_value()) return std::numeric_limits<double>::infinity();
  return race.on.more_is_better ? -*value : *value;
}

std::string WhyNotInARace(const JobSpec& spec) {
  if (IsInference(spec)) {
    return "a race goes on from checkpoints, which only a job that trains has";
  }
  // The rate at a step must not depend on where a rung ends.
  return spec.train.learning_rate.schedule == "cosine"
             ? "train.learning_rate.schedule cosine falls towards the last "
               "step, which a race moves: take constant or step"
             : "";
}

}  // namespace

absl::StatusOr<std::vector<Rung>> RungsOf(const Race& race, size_t trials,
                                          int64_t budget) {
  if (trials < 2) return InvalidArgument("race: it takes at least two trials");
  std::vector<size_t> fields;
  int64_t all = 0;
  const auto halving = static_cast<size_t>(race.halving);
  for (size_t left = trials; left > 1; left = (left + halving - 1) / halving) {
    fields.push_back(left);
    all += static_cast<int64_t>(left);
  }
  const auto length = static_cast<int64_t>(race.share * budget / all);
  if (length < 1) {
    return InvalidArgument("race: a budget of ", budget,
                           " steps is too small for ", Counted(trials, "trial"),
                           ": it takes at least ", std::ceil(all / race.share));
  }
  std::vector<Rung> rungs;
  int64_t end = 0;
  for (const size_t field : fields) rungs.push_back({field, end += length});
  const int64_t left = budget - length * all;
  const int64_t parts = race.plateau > 0 ? std::min(kPlateauRungs, left) : 1;
  for (int64_t part = 1; part <= parts; ++part) {
    rungs.push_back({1, end + left * part / parts});
  }
  return rungs;
}

absl::StatusOr<std::vector<Rung>> BeginRace(const Study& study,
                                            std::vector<TrialJob>& jobs) {
  const JobSpec first = FirstOf(jobs);
  const int64_t budget =
      study.race->budget > 0 ? study.race->budget : first.train.steps;
  if (budget == 0) {
    return InvalidArgument(
        "race: budget is missing, and the first trial counts epochs: say in "
        "steps what all trials together may take");
  }
  PACELINE_ASSIGN_OR_RETURN(const std::vector<Rung> rungs,
                            RungsOf(*study.race, jobs.size(), budget));
  for (TrialJob& job : jobs) {
    if (job.why.empty()) job.why = WhyNotInARace(job.spec);
    if (job.why.empty()) job = InRung(study, rungs, 0, job, first);
  }
  return rungs;
}

std::optional<size_t> WinnerOf(const std::vector<TrialJob>& jobs) {
  const auto alone = absl::c_count_if(
      jobs, [&](const TrialJob& job) { return job.rung == jobs.back().rung; });
  const bool won = alone == 1 && jobs.back().state == v1::JOB_STATE_SUCCEEDED;
  return won ? std::optional(jobs.size() - 1) : std::nullopt;
}

bool AddRung(const Study& study, const std::vector<Rung>& rungs,
             std::vector<TrialJob>& jobs) {
  const size_t rung = jobs.back().rung;
  std::vector<size_t> field;  // of those that go on, the best first
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].rung != rung) continue;
    if (!HasEnded(jobs[i])) return true;
    if (jobs[i].state == v1::JOB_STATE_SUCCEEDED) field.push_back(i);
  }
  if (field.empty() || rung + 1 == rungs.size()) return false;
  absl::c_stable_sort(field, [&](size_t a, size_t b) {
    return LossOf(*study.race, jobs[a]) < LossOf(*study.race, jobs[b]);
  });
  if (rungs[rung].trials == 1) {
    const TrialJob& newest = jobs[field[0]];
    const double now = LossOf(*study.race, newest);
    const double before = LossOf(*study.race, jobs[*newest.goes_on_from]);
    if (before - now < study.race->plateau * std::abs(before)) return false;
  }
  field.resize(std::min(field.size(), rungs[rung + 1].trials));
  absl::c_sort(field);
  const JobSpec first = FirstOf(jobs);
  for (const size_t i : field) {
    jobs[i].has_gone_on = true;
    TrialJob job = InRung(study, rungs, rung + 1, jobs[i], first);
    job.goes_on_from = i;
    jobs.push_back(std::move(job));
  }
  return true;
}

}  // namespace paceline
