// A brain with a clock in milliseconds and workers that say what a test wants.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/brain.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/rpc/coordinator_service.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"
#include "tests/support/job_changes.h"

namespace paceline {

inline constexpr auto kPreparing = v1::RunState::PHASE_PREPARING;
inline constexpr auto kRunning = v1::RunState::PHASE_RUNNING;
inline constexpr auto kStopped = v1::RunState::PHASE_STOPPED;
inline constexpr auto kDone = v1::RunState::PHASE_DONE;
inline constexpr auto kFailed = v1::RunState::PHASE_FAILED;

inline v1::Registration WorkerNamed(const std::string& name,
                                    uint64_t incarnation) {
  v1::Registration registration;
  registration.set_protocol_version(kProtocolVersion);
  registration.set_name(name);
  registration.set_machine_id("machine-of-" + name);
  registration.set_incarnation(incarnation);
  registration.set_address(name + ":7401");
  registration.set_http_address(name + ":7481");
  registration.set_pid(100);
  registration.set_cpu_capability("avx512");
  registration.set_cpu_model("cpu");
  registration.set_architecture("x86_64");
  registration.set_cores(4);
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

// A small data-parallel job.
inline JobSpec GroupSpec() {
  JobSpec spec = SpecOf(1);
  spec.aggregation.mode = "rolling";
  return spec;
}

// "2 train.steps=9; threads=2": a job of two stages, changed; "group" in place
// of a number: a data-parallel one; "infer 2": one that infers.
inline JobSpec SpecOfText(absl::string_view text) {
  const bool infers = absl::ConsumePrefix(&text, "infer ");
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  JobSpec spec =
      parts.first == "group" ? GroupSpec() : SpecOf(std::stoi(parts.first));
  if (infers) ChangeJob(spec, "kind=infer; infer.micro_batch=4");
  ChangeJob(spec, parts.second);
  if (infers) spec.train = ForInference(spec.infer, 1);
  return spec;
}

// All layers of the job's model measured on that worker, `seconds` each way.
inline DeviceProfile ProfileOf(const JobSpec& spec, const std::string& worker,
                               double seconds) {
  DeviceProfile profile;
  const ModelDescription model = *Describe(spec);
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, "f32", spec.threads, worker};
  for (const Layer& layer : model.layers) {
    LayerMeasurement measured;
    measured.name = layer.name;
    measured.forward.wall = measured.forward.cpu = seconds;
    measured.backward.wall = measured.backward.cpu = seconds;
    profile.layers.push_back(measured);
  }
  profile.cpu_capability = "avx512";
  profile.runs = 3;
  profile.cpu_share = 1;
  return profile;
}

inline v1::SubmitJobRequest SubmissionOf(const JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(spec);
  return request;
}

inline const SavedWeights kSaved = {"/state/jobs/1/weights.safetensors", "abc",
                                    10};

// Returns the report that the coordinator reads from a worker's heartbeat.
inline WorkerReport ReportOf(const v1::Heartbeat& heartbeat) {
  absl::StatusOr<WorkerReport> report = FromProto(heartbeat);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : WorkerReport();
}

// The record of a step with 64 samples.
inline v1::StepRecord StepOf(int64_t step, double loss, int64_t unix_ms = 5) {
  v1::StepRecord record;
  record.set_step(step);
  record.set_loss(loss);
  record.set_samples(64);
  record.set_unix_ms(unix_ms);
  return record;
}

inline v1::EvaluationRecord PartOf(int64_t step, double loss = 0,
                                   double accuracy = 0, int64_t samples = 0) {
  v1::EvaluationRecord record;
  record.set_step(step);
  record.set_loss(loss);
  record.set_accuracy(accuracy);
  record.set_samples(samples);
  return record;
}

inline v1::LogLine LineOf(const std::string& text) {
  v1::LogLine line;
  line.set_unix_ms(1);
  line.set_level("info");
  line.set_text(text);
  return line;
}

// Thread-compatible.  Applies the brain's writes to a StoredState, so that a
// second brain can take over.  A job that a test does not name is the first one
// that the brain took.
class Mesh {
 public:
  explicit Mesh(StoredState stored = {}, int64_t start_ms = 0)
      : ms_(start_ms), brain_(BrainPolicy{}, Kept(stored), Now()) {
    Collect();
  }

  Moment Now() const { return {{absl::Milliseconds(ms_)}, wall_ms_ + ms_}; }
  void SetWallClockBack(int64_t ms) { wall_ms_ -= ms; }

  // The stream it got.
  StreamId Attach(const v1::Registration& registration) {
    const StreamId stream{++streams_};
    last_attach_ = brain_.OnAttach(registration, stream, Now()).status();
    Collect();
    return stream;
  }
  StreamId Attach(
      const std::string& name, uint64_t incarnation,
      const std::function<void(v1::Registration&)>& change = nullptr) {
    v1::Registration registration = WorkerNamed(name, incarnation);
    if (change) change(registration);
    return Attach(registration);
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
        brain_.OnReport(stream, ReportOf(Echoing(stream, {})), Now())
            .IgnoreError();
      }
      brain_.OnTick(Now());
      Collect();
    }
  }

  // The id, or 0 with the error in submit_error().
  JobId Submit(const JobSpec& spec, const std::string& request_id = "") {
    v1::SubmitJobRequest request = SubmissionOf(spec);
    request.set_request_id(request_id);
    return Submit(request);
  }
  JobId Submit(const v1::SubmitJobRequest& request) {
    absl::StatusOr<Submission> submission;
    brain_.CheckSubmit(request, Now(), [&](absl::StatusOr<Submission> checked) {
      submission = std::move(checked);
    });
    submit_error_ = submission.status();
    if (!submission.ok()) return JobId{0};
    notes_ = {submission->answer.notes().begin(),
              submission->answer.notes().end()};
    if (!first_job_.assigned()) first_job_ = submission->job.id();
    if (!submission->repeated) {
      StoreBatch batch;
      batch.jobs[submission->job.id()] = submission->job;
      EXPECT_TRUE(store_->Commit(batch).ok());
      brain_.OnSubmitted(submission->job, Now());
    }
    Collect();
    return submission->job.id();
  }

  absl::StatusOr<v1::StartProfileResponse> Profile(
      const JobSpec& spec, const std::vector<std::string>& workers,
      bool links) {
    v1::StartProfileRequest request;
    *request.mutable_spec() = ToProto(spec);
    request.mutable_workers()->Add(workers.begin(), workers.end());
    request.set_links(links);
    return Profile(request);
  }
  absl::StatusOr<v1::StartProfileResponse> Profile(
      const v1::StartProfileRequest& request) {
    auto ticket = brain_.OnProfile(request, Now());
    Collect();
    return ticket;
  }
  absl::StatusOr<v1::Worker> Drain(const std::string& worker, bool drain) {
    auto view = brain_.OnDrain(worker, drain, Now());
    Collect();
    return view;
  }
  absl::StatusOr<v1::Worker> Forget(const std::string& worker) {
    auto view = brain_.OnForget(worker, Now());
    Collect();
    return view;
  }
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) {
    v1::RevokeRequest request;
    request.set_role(role);
    request.set_name(name);
    auto revoked = brain_.OnRevoke(request, Now());
    Collect();
    return revoked;
  }
  absl::Status UseToken(const TokenUse& use) {
    const absl::Status used = brain_.OnUseToken(use, Now());
    Collect();
    return used;
  }
  v1::ListMeasurementsResponse Measured(const std::string& model) const {
    v1::ListMeasurementsRequest request;
    request.set_model(model);
    return *brain_.ViewMeasurements(request);
  }

  absl::Status Stop(JobId job = {}) {
    const absl::Status status = brain_.OnStop(Named(job), Now());
    Collect();
    return status;
  }

  // The last that a process says before it stops, or executes itself anew.
  void Leave(StreamId stream, bool restarting) {
    v1::Heartbeat last;
    last.set_sequence(9);
    last.set_restarting(restarting);
    last.set_stopping(!restarting);
    EXPECT_TRUE(Send(stream, last).ok());
  }
  // Returns the next heartbeat of a worker of the job.
  v1::Heartbeat Beat(v1::RunState::Phase phase, int64_t step, JobId job = {}) {
    v1::Heartbeat heartbeat;
    heartbeat.set_sequence(++sequence_);
    v1::RunState& run = *heartbeat.mutable_run();
    const Fence fence = Record(job).fence();
    run.set_job(fence.job.value);
    run.set_attempt(fence.attempt);
    run.set_plan_version(fence.plan_version);
    run.set_phase(phase);
    run.set_step(step);
    run.set_steps(60);
    return heartbeat;
  }
  void Report(StreamId stream, JobId job, v1::RunState::Phase phase,
              int64_t step = 0,
              const absl::Status& error = absl::InternalError("")) {
    v1::Heartbeat heartbeat = Beat(phase, step, job);
    if (phase == kFailed) {
      SetError(error, *heartbeat.mutable_run());
    }
    EXPECT_TRUE(Send(stream, heartbeat).ok());
  }

  // The worker has carried out the newest order, unless the heartbeat says
  // which one.
  absl::Status Send(StreamId stream, const v1::Heartbeat& heartbeat) {
    const absl::Status status =
        brain_.OnReport(stream, ReportOf(Echoing(stream, heartbeat)), Now());
    Collect();
    return status;
  }

  // These have no run, and have carried out their newest order.
  void SayIdle(const std::vector<StreamId>& streams) {
    for (const StreamId stream : streams) {
      EXPECT_TRUE(Send(stream, v1::Heartbeat()).ok());
    }
  }

  void Saved(absl::StatusOr<SavedWeights> saved, JobId job = {}) {
    brain_.OnWeightsSaved(Record(job).fence(), std::move(saved), Now());
    Collect();
  }

  void CheckpointFetched(absl::StatusOr<v1::Checkpoint> fetched) {
    brain_.OnCheckpointFetched(std::move(fetched), Now());
    Collect();
  }
  void CheckpointKept(const absl::Status& kept) {
    brain_.OnCheckpointKept(kept, Now());
    Collect();
  }
  void CheckpointDamaged(JobId job, CheckpointId checkpoint,
                         const absl::Status& why) {
    brain_.OnCheckpointDamaged(job, checkpoint, why, Now());
    Collect();
  }
  absl::StatusOr<std::optional<CheckpointId>> Export(JobId job) {
    auto checkpoint = brain_.OnExport(job, Now());
    Collect();
    return checkpoint;
  }

  void OnCommit(std::function<void()> call) { on_commit_ = std::move(call); }
  void OnWrites(std::function<void(const StoreBatch&)> call) {
    on_writes_ = std::move(call);
  }

  JobId job() const { return first_job_; }
  v1::Job Job(JobId job = {}) const { return *brain_.ViewJob(Named(job)); }
  JobRecord Record(JobId job = {}) const {
    return **brain_.FindRecord(Named(job));
  }
  // Returns the worker that holds the stage at that place of the plan.
  std::string StageWorker(JobId job, size_t place) const {
    const WorkerId worker = Record(job).stages.at(place).worker;
    const v1::Job view = Job(job);
    for (const v1::JobWorker& part : view.workers()) {
      if (WorkerId{part.id()} == worker) return part.name();
    }
    return "";
  }
  v1::JobState State(JobId job = {}) const { return Record(job).state(); }
  std::string Why(JobId job = {}) const { return Job(job).why(); }
  std::vector<v1::Worker> ViewWorkers() const {
    return brain_.ViewWorkers(Now().now);
  }

  // The newest order sent over `stream`, and how many there were.
  const StandingOrder& Order(StreamId stream) { return orders_[stream].back(); }
  size_t Orders(StreamId stream) const {
    const auto found = orders_.find(stream);
    return found == orders_.end() ? 0 : found->second.size();
  }

  // A heartbeat of a run with records of steps `first` to `last`.
  void ReportSteps(StreamId stream, v1::RunState::Phase phase, int64_t first,
                   int64_t last, bool skipped) {
    v1::Heartbeat heartbeat = Beat(phase, last);
    for (int64_t step = first; step <= last; ++step) {
      *heartbeat.add_steps() = StepOf(step, 1.0, 1000 * step);
      heartbeat.mutable_steps()->rbegin()->set_skipped(skipped);
    }
    EXPECT_TRUE(Send(stream, heartbeat).ok());
  }

  // "kind: text" of every event.
  std::vector<std::string> Story(JobId job = {}) const {
    std::vector<std::string> story;
    for (const v1::JobEvent& event : EventsOf(job)) {
      story.push_back(event.kind() + ": " + event.text());
    }
    return story;
  }
  // The kinds alone.
  std::vector<std::string> Events(JobId job = {}) const {
    std::vector<std::string> kinds;
    for (const v1::JobEvent& event : EventsOf(job)) {
      kinds.push_back(event.kind());
    }
    return kinds;
  }

  // These return the steps and the evaluations that are stored.
  std::vector<v1::StepRecord> Curve() const {
    return store_->Curve(job(), 0, 1000)->points;
  }
  std::vector<v1::EvaluationRecord> Evaluations() const {
    return *store_->Evaluations(job(), 1000);
  }

  Brain& brain() { return brain_; }
  StoredState stored() const { return *store_->Load(); }
  const std::vector<Actions::Weights>& weights() const { return weights_; }
  const std::vector<Actions::Checkpoint>& checkpoints() const {
    return checkpoints_;
  }
  // Holds the answers to clients that waited for an export.
  const std::vector<absl::StatusOr<CheckpointId>>& exports() const {
    return exports_;
  }
  const std::vector<Actions::End>& ends() const { return ends_; }
  const std::vector<Actions::Ack>& acks() const { return acks_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const absl::Status& submit_error() const { return submit_error_; }
  const absl::Status& last_attach() const { return last_attach_; }
  int64_t ms() const { return ms_; }

 private:
  JobId Named(JobId job) const { return job.assigned() ? job : first_job_; }

  std::vector<v1::JobEvent> EventsOf(JobId job) const {
    return *store_->Events(Named(job), 0, 1'000'000);
  }

  v1::Heartbeat Echoing(StreamId stream, v1::Heartbeat heartbeat) const {
    const auto orders = orders_.find(stream);
    if (heartbeat.has_echo() || orders == orders_.end()) return heartbeat;
    *heartbeat.mutable_echo() = orders->second.back().rest.number();
    return heartbeat;
  }

  // `stored`, which is in the store from now on.
  const StoredState& Kept(const StoredState& stored) {
    StoreBatch batch;
    batch.workers = stored.workers;
    for (const WorkerId id : stored.drained) batch.drained[id] = true;
    batch.term = stored.term;
    batch.views = stored.views;
    batch.revoked = stored.revoked;
    batch.keys = stored.keys;
    batch.jobs = stored.jobs;
    batch.measurements = stored.measurements;
    EXPECT_TRUE(store_->Commit(batch).ok());
    for (const auto& [id, job] : stored.jobs) {
      if (!first_job_.assigned()) first_job_ = id;
      attempts_[id] = job.job.attempt();
    }
    return stored;
  }

  void Collect() {
    Actions actions = brain_.TakeActions();
    for (const auto& [id, job] : actions.writes.jobs) {
      int64_t& attempt = attempts_[id];
      EXPECT_TRUE(actions.writes.durable || job.job.attempt() == attempt)
          << "an attempt that a power cut takes";
      attempt = job.job.attempt();
    }
    EXPECT_TRUE(actions.writes.durable || actions.writes.views.empty())
        << "a view that a power cut takes";
    EXPECT_TRUE(store_->Commit(actions.writes).ok());
    if (on_writes_) on_writes_(actions.writes);
    if (on_commit_) on_commit_();  // nobody has been told of it
    for (auto& order : actions.orders) {
      orders_[order.stream].push_back(order.order);
    }
    for (auto& one : actions.weights) weights_.push_back(std::move(one));
    for (auto& one : actions.checkpoints) {
      checkpoints_.push_back(std::move(one));
    }
    for (auto& [job, answer] : actions.exports) exports_.push_back(answer);
    for (auto& end : actions.ends) ends_.push_back(end);
    for (auto& ack : actions.acks) acks_.push_back(ack);
  }

  int64_t wall_ms_ = 1'000'000'000;  // when `ms_` was 0
  int64_t ms_;
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
  std::function<void()> on_commit_;
  std::function<void(const StoreBatch&)> on_writes_;
  JobId first_job_;
  std::map<JobId, int64_t> attempts_;  // the newest that is stored
  Brain brain_;
  int64_t streams_ = 0;
  int64_t sequence_ = 0;
  std::map<StreamId, std::vector<StandingOrder>> orders_;
  std::vector<Actions::Weights> weights_;
  std::vector<Actions::Checkpoint> checkpoints_;
  std::vector<absl::StatusOr<CheckpointId>> exports_;
  std::vector<Actions::End> ends_;
  std::vector<Actions::Ack> acks_;
  std::vector<std::string> notes_;
  absl::Status submit_error_;
  absl::Status last_attach_;
};

// A mesh whose one worker, "a", has the job.
class MeshWithAJob : public testing::Test, public Mesh {
 protected:
  using Mesh::Report;
  void Report(v1::RunState::Phase phase, int64_t step = 0,
              const absl::Status& error = absl::InternalError("")) {
    Report(a_, job_, phase, step, error);
  }
  void ReportSteps(v1::RunState::Phase phase, int64_t first, int64_t last,
                   bool skipped) {
    Mesh::ReportSteps(a_, phase, first, last, skipped);
  }

  const StreamId a_ = Attach("a", 1);
  const JobId job_ = Submit(SpecOf(1));
};

}  // namespace paceline
