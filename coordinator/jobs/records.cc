#include "coordinator/jobs/records.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/errors.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

// Older runs may go: a new attempt begins with a newer step.
constexpr size_t kMostSkipRuns = 64;

int64_t EndOf(const v1::SkipRun& run) { return run.first() + run.steps(); }

}  // namespace

void AddSkip(int64_t step, v1::Job& job) {
  std::map<int64_t, int64_t> runs;  // first step -> one past the last
  for (const v1::SkipRun& run : job.skip_runs()) runs[run.first()] = EndOf(run);
  runs.emplace(step, step + 1);
  job.clear_skip_runs();
  if (runs.size() > kMostSkipRuns) runs.erase(runs.begin());
  for (const auto& [first, end] : runs) {
    // Records come in any order, so a step may join two runs.
    v1::SkipRun* run =
        job.skip_runs().empty() ? nullptr : &*job.mutable_skip_runs()->rbegin();
    if (run == nullptr || EndOf(*run) < first) {
      run = job.add_skip_runs();
      run->set_first(first);
    }
    run->set_steps(std::max(run->steps(), end - run->first()));
  }
}

int64_t TakeSkipsBack(int64_t step, v1::Job& job) {
  auto& runs = *job.mutable_skip_runs();
  int64_t taken = 0;
  while (!runs.empty() && EndOf(*runs.rbegin()) > step + 1) {
    v1::SkipRun& run = *runs.rbegin();
    const int64_t kept = std::max<int64_t>(0, step + 1 - run.first());
    taken += run.steps() - kept;
    run.set_steps(kept);
    if (kept == 0) runs.RemoveLast();
  }
  const v1::SkipRun* const open = SkipRunAt(job, step);
  job.set_skipping_since(open == nullptr ? 0 : open->first());
  return taken;
}

const v1::SkipRun* SkipRunAt(const v1::Job& job, int64_t step) {
  for (const v1::SkipRun& run : job.skip_runs()) {
    if (run.first() <= step && step < EndOf(run)) return &run;
  }
  return nullptr;
}

int64_t LongestSkipRun(const v1::Job& job) {
  int64_t longest = 0;
  for (const v1::SkipRun& run : job.skip_runs()) {
    longest = std::max(longest, run.steps());
  }
  return longest;
}

void SetBroken(const v1::EvaluationRecord& newest, v1::Job& job) {
  job.set_broken_step(std::isfinite(newest.loss()) ? 0 : newest.step());
}

bool IsBroken(const v1::Job& job, int64_t step) {
  const v1::SkipRun* const open = SkipRunAt(job, job.recorded_step());
  return (open != nullptr && step >= open->first() - 1) ||
         (job.broken_step() > 0 && step == job.broken_step());
}

v1::Job ToStored(const JobRecord& record) {
  v1::Job job = record.job;
  *job.mutable_spec() = ToProto(record.spec);
  WriteAll(record.stages, *job.mutable_stages());
  return job;
}

absl::StatusOr<JobRecord> FromStored(v1::Job job) {
  if (job.state() == 0 || !v1::JobState_IsValid(job.state())) {
    return InvalidArgument("state ", static_cast<int>(job.state()));
  }
  for (const v1::JobWorker& worker : job.workers()) {
    const v1::RunState::Phase phase = worker.run().phase();
    if (v1::RunState::Phase_IsValid(phase)) continue;
    return InvalidArgument("phase ", static_cast<int>(phase));
  }
  JobRecord record;
  record.spec = FromProto(job.spec());
  ReadAll(job.stages(), record.stages);
  job.clear_spec();
  job.clear_stages();
  record.job = std::move(job);
  return record;
}

JobSpec SpecOfAttempt(const JobRecord& record) {
  JobSpec spec = record.spec;
  if (record.job.shards() > 0) spec.aggregation.shards = record.job.shards();
  for (const int32_t block : record.job.skipped_blocks()) {
    spec.faults.push_back({.worker = "", .kind = kSkipStage, .block = block});
  }
  return spec;
}

}  // namespace paceline
