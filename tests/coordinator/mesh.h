// A brain with a clock in milliseconds and workers that say what a test wants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/brain.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"

namespace paceline {

inline Registration WorkerNamed(const std::string& name, uint64_t incarnation) {
  Registration registration;
  registration.name = name;
  registration.machine_id = "machine-of-" + name;
  registration.incarnation = {incarnation};
  registration.address = name + ":7401";
  registration.http_address = name + ":7481";
  registration.pid = 100;
  registration.cpu_capability = "avx512";
  registration.cpu_model = "cpu";
  registration.architecture = "x86_64";
  registration.cores = 4;
  return registration;
}

// A small job over `stages` stages.
inline JobSpec SpecOf(int stages) {
  JobSpec spec;
  spec.name = "test";
  spec.model.name = "mlp";
  spec.model.hidden = {16, 16, 16};
  spec.data.name = "synthetic";
  spec.train.steps = 60;
  spec.pipeline.stages = stages;
  spec.pipeline.policy = "equal";
  return spec;
}

// Thread-compatible.  Applies the brain's writes to a StoredState, so that a
// second brain can take over.
class Mesh {
 public:
  explicit Mesh(StoredState stored = {}, int64_t start_ms = 0)
      : ms_(start_ms),
        stored_(stored),
        brain_(BrainPolicy{}, std::move(stored), Now()) {
    Collect();
  }

  Moment Now() const { return {{absl::Milliseconds(ms_)}, 1'000'000 + ms_}; }

  // The stream it got.
  StreamId Attach(const Registration& registration) {
    const StreamId stream{++streams_};
    last_attach_ = brain_.OnAttach(registration, stream, Now()).status();
    Collect();
    return stream;
  }
  StreamId Attach(const std::string& name, uint64_t incarnation) {
    return Attach(WorkerNamed(name, incarnation));
  }

  void Break(StreamId stream) {
    brain_.OnStreamBroken(stream, Now());
    Collect();
  }

  // Time passes in ticks of 50 ms; `alive` send heartbeats without a run.
  void Pass(int64_t ms, const std::vector<StreamId>& alive = {}) {
    for (const int64_t end = ms_ + ms; ms_ < end;) {
      ms_ += 50;
      for (const StreamId stream : alive) {
        brain_.OnHeartbeat(stream, Heartbeat{}, Now()).IgnoreError();
      }
      brain_.OnTick(Now());
      Collect();
    }
  }

  // The id, or 0 with the error in submit_error().
  JobId Submit(const JobSpec& spec, const std::string& request_id = "") {
    auto submission = brain_.CheckSubmit({spec, request_id}, Now());
    submit_error_ = submission.status();
    if (!submission.ok()) return JobId{0};
    notes_ = submission->notes;
    if (!submission->repeated) {
      stored_.jobs[submission->job.id] = submission->job;
      stored_.next_job = JobId{submission->job.id.value + 1};
      brain_.OnSubmitted(submission->job, Now());
    }
    Collect();
    return submission->job.id;
  }

  absl::StatusOr<ProfileTicket> Profile(const ProfileRequest& request) {
    auto ticket = brain_.OnProfile(request, Now());
    Collect();
    return ticket;
  }
  absl::StatusOr<WorkerView> Drain(const std::string& worker, bool drain) {
    auto view = brain_.OnDrain(worker, drain, Now());
    Collect();
    return view;
  }
  absl::StatusOr<WorkerView> Forget(const std::string& worker) {
    auto view = brain_.OnForget(worker, Now());
    Collect();
    return view;
  }
  StoredMeasurements Measured(const std::string& model) const {
    return brain_.ViewMeasurements(model);
  }

  void Report(StreamId stream, JobId job, RunPhase phase, int64_t step = 0,
              const std::string& error = "") {
    Report(stream, job, phase, step, absl::InvalidArgumentError(error));
  }
  void Report(StreamId stream, JobId job, RunPhase phase, int64_t step,
              const absl::Status& error) {
    Heartbeat heartbeat;
    heartbeat.sequence = ++sequence_;
    const JobRecord record = Job(job).record;
    heartbeat.run = RunReport{
        .fence = record.fence(), .phase = phase, .step = step, .steps = 60};
    if (phase == RunPhase::kFailed) heartbeat.run->error = error;
    EXPECT_TRUE(Send(stream, heartbeat).ok());
  }

  absl::Status Send(StreamId stream, const Heartbeat& heartbeat) {
    const absl::Status status = brain_.OnHeartbeat(stream, heartbeat, Now());
    Collect();
    return status;
  }

  void Saved(JobId job, absl::StatusOr<SavedWeights> saved) {
    brain_.OnWeightsSaved(Job(job).record.fence(), std::move(saved), Now());
    Collect();
  }

  JobView Job(JobId job) const { return *brain_.ViewJob(job); }
  JobState State(JobId job) const { return Job(job).record.state; }
  std::string Why(JobId job) const { return Job(job).record.why; }

  // The newest order sent over `stream`, and how many there were.
  const StandingOrder& Order(StreamId stream) { return orders_[stream].back(); }
  size_t Orders(StreamId stream) { return orders_[stream].size(); }

  // A heartbeat of a run with records of steps `first` to `last`.
  void ReportSteps(StreamId stream, JobId job, RunPhase phase, int64_t first,
                   int64_t last, bool skipped) {
    Heartbeat heartbeat;
    heartbeat.sequence = ++sequence_;
    heartbeat.run = RunReport{.fence = Job(job).record.fence(),
                              .phase = phase,
                              .step = last,
                              .steps = 60};
    for (int64_t step = first; step <= last; ++step) {
      heartbeat.steps.push_back({step, 1.0, 64, 0, 0, skipped, 1000 * step});
    }
    EXPECT_TRUE(Send(stream, heartbeat).ok());
  }

  // "kind: text" of every event.
  std::vector<std::string> Story(JobId job) const {
    std::vector<std::string> story;
    const auto found = events_.find(job);
    if (found == events_.end()) return story;
    for (const EventRecord& event : found->second) {
      story.push_back(event.kind + ": " + event.text);
    }
    return story;
  }

  std::vector<std::string> Events(JobId job) const {
    std::vector<std::string> kinds;
    const auto found = events_.find(job);
    if (found == events_.end()) return kinds;
    for (const EventRecord& event : found->second) kinds.push_back(event.kind);
    return kinds;
  }

  // What is stored of its steps and evaluations.
  std::vector<StepRecord> Curve(JobId job) const {
    return *store_->Curve(job, 0, 1000);
  }
  std::vector<EvaluationRecord> Evaluations(JobId job) const {
    return *store_->Evaluations(job, 1000);
  }

  Brain& brain() { return brain_; }
  const StoredState& stored() const { return stored_; }
  const std::vector<Actions::Weights>& weights() const { return weights_; }
  const std::vector<Actions::End>& ends() const { return ends_; }
  const std::vector<Actions::Ack>& acks() const { return acks_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const absl::Status& submit_error() const { return submit_error_; }
  const absl::Status& last_attach() const { return last_attach_; }
  int64_t ms() const { return ms_; }

 private:
  void Collect() {
    Actions actions = brain_.TakeActions();
    EXPECT_TRUE(store_->Commit(actions.writes).ok());
    for (auto& [id, worker] : actions.writes.workers) {
      stored_.workers[id] = worker;
    }
    for (auto& [id, job] : actions.writes.jobs) stored_.jobs[id] = job;
    for (auto& [id, records] : actions.writes.records) {
      auto& events = events_[id];
      events.insert(events.end(), records.events.begin(), records.events.end());
    }
    stored_.term = actions.writes.term.value_or(stored_.term);
    for (auto& [id, view] : actions.writes.views) stored_.views[id] = view;
    for (auto& [id, drained] : actions.writes.drained) {
      drained ? (void)stored_.drained.insert(id)
              : (void)stored_.drained.erase(id);
    }
    if (!actions.writes.views.empty()) {
      EXPECT_TRUE(actions.writes.durable) << "a view that a power cut takes";
    }
    for (const JobId id : actions.writes.deleted) stored_.jobs.erase(id);
    for (auto& [key, profile] : actions.writes.measurements.profiles) {
      stored_.measurements.Put(profile);
    }
    for (auto& [ends, link] : actions.writes.measurements.links) {
      stored_.measurements.Put(link);
    }
    for (auto& order : actions.orders) {
      orders_[order.stream].push_back(order.order);
    }
    for (auto& one : actions.weights) weights_.push_back(std::move(one));
    for (auto& end : actions.ends) ends_.push_back(end);
    for (auto& ack : actions.acks) acks_.push_back(ack);
  }

  int64_t ms_;
  StoredState stored_;
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
  Brain brain_;
  int64_t streams_ = 0;
  int64_t sequence_ = 0;
  std::map<StreamId, std::vector<StandingOrder>> orders_;
  std::map<JobId, std::vector<EventRecord>> events_;
  std::vector<Actions::Weights> weights_;
  std::vector<Actions::End> ends_;
  std::vector<Actions::Ack> acks_;
  std::vector<std::string> notes_;
  absl::Status submit_error_;
  absl::Status last_attach_;
};

}  // namespace paceline
