#include "coordinator/store/memory_store.h"

#include <algorithm>

namespace paceline {

absl::Status MemoryStore::Commit(const StoreBatch& batch) {
  {
    absl::MutexLock lock(&error_mutex_);
    if (!error_.ok()) return error_;
  }
  for (const auto& [id, worker] : batch.workers) state_.workers[id] = worker;
  for (const auto& [id, drained] : batch.drained) {
    if (drained) {
      state_.drained.insert(id);
    } else {
      state_.drained.erase(id);
    }
  }
  for (const WorkerId id : batch.forgotten) {
    state_.workers.erase(id);
    state_.drained.erase(id);
  }
  state_.term = batch.term.value_or(state_.term);
  for (const auto& [id, view] : batch.views) state_.views[id] = view;
  for (const auto& [id, job] : batch.jobs) {
    state_.jobs[id] = job;
    state_.next_job = std::max(state_.next_job, JobId{id.value + 1});
  }
  for (const JobId id : batch.restarted) {
    records_[id].steps.clear();
    records_[id].evaluations.clear();
  }
  for (const auto& [id, added] : batch.records) {
    Records& records = records_[id];
    for (const StepRecord& step : added.steps) records.steps[step.step] = step;
    for (const EvaluationRecord& evaluation : added.evaluations) {
      records.evaluations[evaluation.step] = evaluation;
    }
    for (EventRecord event : added.events) {
      event.sequence = ++sequence_;
      records.events.push_back(std::move(event));
    }
    for (LogRecord line : added.logs) {
      if (line.origin_sequence > 0 &&
          !seen_lines_.insert({line.incarnation, line.origin_sequence})
               .second) {
        continue;
      }
      line.sequence = ++sequence_;
      records.logs.push_back(std::move(line));
    }
    if (std::ssize(records.logs) > kLogLinesKept) {
      records.logs.erase(records.logs.begin(),
                         records.logs.end() - kLogLinesKept);
    }
  }
  for (const auto& [key, profile] : batch.measurements.profiles) {
    state_.measurements.Put(profile);
  }
  for (const auto& [ends, link] : batch.measurements.links) {
    state_.measurements.Put(link);
  }
  for (const JobId id : batch.deleted) {
    state_.jobs.erase(id);
    state_.views.erase(id);
    records_.erase(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepRecord>> MemoryStore::Curve(JobId job,
                                                           int64_t after_step,
                                                           int64_t points) {
  std::vector<StepRecord> all;
  for (const auto& [step, record] : records_[job].steps) {
    if (step > after_step) all.push_back(record);
  }
  std::vector<StepRecord> taken;
  for (const int64_t position : EvenlyTaken(std::ssize(all), points)) {
    taken.push_back(all[position]);
  }
  return taken;
}

absl::StatusOr<std::vector<EvaluationRecord>> MemoryStore::Evaluations(
    JobId job, int64_t newest) {
  const std::map<int64_t, EvaluationRecord>& all = records_[job].evaluations;
  std::vector<EvaluationRecord> evaluations;
  int64_t older = std::ssize(all) - newest;
  for (const auto& [step, record] : all) {
    if (older-- <= 0) evaluations.push_back(record);
  }
  return evaluations;
}

absl::StatusOr<std::vector<EventRecord>> MemoryStore::Events(JobId job,
                                                             int64_t after,
                                                             int64_t limit) {
  std::vector<EventRecord> events;
  for (const EventRecord& event : records_[job].events) {
    if (event.sequence <= after) continue;
    if (std::ssize(events) == limit) break;
    events.push_back(event);
  }
  return events;
}

absl::StatusOr<std::vector<LogRecord>> MemoryStore::Logs(JobId job,
                                                         int64_t after,
                                                         int64_t limit) {
  std::vector<LogRecord> logs;
  for (const LogRecord& line : records_[job].logs) {
    if (line.sequence <= after) continue;
    if (std::ssize(logs) == limit) break;
    logs.push_back(line);
  }
  return logs;
}

}  // namespace paceline
