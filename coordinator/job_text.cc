#include "coordinator/job_text.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace paceline {

std::string StagesOf(const JobRecord& job, WorkerId worker) {
  const std::vector<int> numbers = StageNumbers(job.stages);
  std::vector<int> stages;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    if (job.stages[i].worker == worker) stages.push_back(numbers[i]);
  }
  return absl::StrCat(stages.size() == 1 ? "stage " : "stages ",
                      absl::StrJoin(stages, ", "));
}

std::string AtStep(const JobRecord& job) {
  const char* const unit = IsInference(job.spec) ? "micro-batch" : "step";
  const std::string at = absl::StrCat("at ", unit, " ", job.step);
  return job.steps == 0 ? at : absl::StrCat(at, " of ", job.steps);
}

std::string EvaluationText(const JobSpec& spec,
                           const EvaluationRecord& evaluation) {
  const std::string after =
      IsInference(spec) ? ""
                        : absl::StrCat("after step ", evaluation.step, " ");
  return absl::StrFormat("accuracy %.4f, loss %.4f %sover %d samples",
                         evaluation.accuracy, evaluation.loss, after,
                         evaluation.samples);
}

std::string ResultName(const JobSpec& spec) {
  return IsInference(spec) ? "predictions" : "weights";
}

std::string SkipReason(const StepRecord& step) {
  return step.samples == 0 ? "no samples" : "gradient not finite";
}

std::string PreparingText(const JobRecord& job,
                          const std::map<WorkerId, Instant>& since,
                          absl::Duration bound, Instant now) {
  // By how many bounds they have been at it, the longest first.
  std::map<int64_t, std::vector<std::string>, std::greater<>> names;
  for (const JobWorker& worker : job.workers) {
    const auto found = since.find(worker.id);
    if (found == since.end() || now - found->second < bound) continue;
    absl::Duration rest;
    names[absl::IDivDuration(now - found->second, bound, &rest)].push_back(
        worker.name);
  }
  std::vector<std::string> parts;
  for (const auto& [bounds, workers] : names) {
    parts.push_back(absl::StrCat(
        workers.size() == 1 ? "worker " : "workers ",
        absl::StrJoin(workers, ", "), workers.size() == 1 ? " has" : " have",
        " been preparing for ", absl::ToInt64Seconds(bounds * bound),
        " s (reading data?)"));
  }
  return Sentence(parts);
}

std::string JobsText(const std::set<JobId>& jobs) {
  return absl::StrCat(
      jobs.size() == 1 ? "job " : "jobs ",
      absl::StrJoin(jobs, ", ", [](std::string* out, const JobId& job) {
        absl::StrAppend(out, job.value);
      }));
}

std::string Sentence(const std::vector<std::string>& parts) {
  std::string sentence;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    absl::StrAppend(&sentence, sentence.empty() ? "" : "; ", part);
  }
  return sentence;
}

// Whether what `worker` holds cannot be made again from the order alone.
bool Began(const JobRecord& job, const JobWorker& worker) {
  return worker.phase >= RunPhase::kRunning || job.step > 0;
}

std::vector<const JobWorker*> LastStageOf(const JobRecord& job) {
  std::vector<const JobWorker*> workers;
  for (const StageOfPlan& stage : job.stages) {
    if (stage.layers != job.stages.back().layers) continue;
    for (const JobWorker& worker : job.workers) {
      if (worker.id == stage.worker) workers.push_back(&worker);
    }
  }
  return workers;
}

bool HasTurn(const JobRecord& job, WorkerId worker) {
  if (!IsInference(job.spec) || job.total_samples == 0) return true;
  const int64_t micro_batches =
      (job.total_samples + job.spec.infer.micro_batch - 1) /
      job.spec.infer.micro_batch;
  const std::vector<int> numbers = StageNumbers(job.stages);
  const std::vector<RouteTable> routes = RoutesOf(job.stages);
  int replica = 0;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    replica = i > 0 && numbers[i] == numbers[i - 1] ? replica + 1 : 0;
    if (job.stages[i].worker != worker) continue;
    if (routes[numbers[i]].NextOf(replica, 0) < micro_batches) return true;
  }
  return false;
}

JobWorker* FindWorker(JobRecord& job, WorkerId id) {
  for (JobWorker& worker : job.workers) {
    if (worker.id == id) return &worker;
  }
  return nullptr;
}

bool AllAtLeast(const JobRecord& job, RunPhase phase) {
  return std::all_of(
      job.workers.begin(), job.workers.end(), [&](const JobWorker& worker) {
        return worker.phase >= phase ||
               (phase == RunPhase::kDone && !HasTurn(job, worker.id));
      });
}

std::string PhaseOf(const JobRecord& job) {
  if (job.state != JobState::kRunning) return "";
  if (!AllAtLeast(job, RunPhase::kRunning)) return "preparing";
  const bool trained = job.steps > 0 && job.step >= job.steps;
  if (trained || AllAtLeast(job, RunPhase::kDone)) return "saving";
  return IsInference(job.spec) ? "predicting" : "training";
}

absl::Status NoSuchJob(JobId id) {
  return absl::NotFoundError(absl::StrCat("there is no job ", id.value,
                                          "; paceline job list shows all"));
}

absl::Status CheckSpec(const JobSpec& spec) {
  const std::vector<SpecProblem> problems = CheckJobSpec(spec);
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(
      problems, "; ", [](std::string* out, const SpecProblem& problem) {
        absl::StrAppend(out, problem.path, problem.path.empty() ? "" : ": ",
                        problem.why);
      }));
}

absl::StatusOr<ModelDescription> Describe(const JobSpec& spec) {
  return DescribeModel(spec.model, spec.data.shape, spec.data.classes);
}

}  // namespace paceline
