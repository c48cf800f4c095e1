#include "client/study/race.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/counted.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"

namespace paceline {
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
  TrialJob job;
  job.trial = from.trial;
  job.rung = rung;
  job.against = from.against;
  job.spec = from.spec;
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
  const bool won = alone == 1 && jobs.back().state == JobState::kSucceeded;
  return won ? std::optional(jobs.size() - 1) : std::nullopt;
}

bool AddRung(const Study& study, const std::vector<Rung>& rungs,
             std::vector<TrialJob>& jobs) {
  const size_t rung = jobs.back().rung;
  std::vector<size_t> field;  // of those that go on, the best first
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].rung != rung) continue;
    if (!HasEnded(jobs[i])) return true;
    if (jobs[i].state == JobState::kSucceeded) field.push_back(i);
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
