#include "client/rpc/view_convert.h"

#include "core/rpc/convert.h"
#include "core/rpc/report_convert.h"

namespace paceline {
namespace {

JobState StateFromProto(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_QUEUED:
      return JobState::kQueued;
    case v1::JOB_STATE_RUNNING:
      return JobState::kRunning;
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_FAILED:
      return JobState::kFailed;
    case v1::JOB_STATE_STOPPED:
      return JobState::kStopped;
    default:
      return JobState::kUnknown;
  }
}

std::string StateFromProto(v1::WorkerState state) {
  switch (state) {
    case v1::WORKER_STATE_IDLE:
      return "idle";
    case v1::WORKER_STATE_BUSY:
      return "busy";
    case v1::WORKER_STATE_MEASURING:
      return "measuring";
    case v1::WORKER_STATE_SUSPECT:
      return "suspect";
    case v1::WORKER_STATE_LOST:
      return "lost";
    case v1::WORKER_STATE_STOPPED:
      return "stopped";
    default:
      return "unknown";
  }
}

}  // namespace

PlacementView ViewFromProto(const v1::StagePlacement& proto) {
  return {.stage = proto.stage(),
          .first_layer = proto.first_layer(),
          .last_layer = proto.last_layer(),
          .worker_id = proto.worker_id(),
          .worker_name = proto.worker_name(),
          .share = proto.share()};
}

EstimateView ViewFromProto(const v1::RunEstimate& proto) {
  return {.step_seconds = proto.step_seconds(),
          .samples_per_second = proto.samples_per_second(),
          .bubble_share = proto.bubble_share(),
          .stage_seconds = {proto.stage_seconds().begin(),
                            proto.stage_seconds().end()},
          .source = proto.source(),
          .measured = proto.measured()};
}

JobView ViewFromProto(const v1::Job& proto) {
  JobView job;
  job.id = proto.id();
  job.spec = FromProto(proto.spec());
  job.state = StateFromProto(proto.state());
  job.why = proto.why();
  job.phase = proto.phase();
  job.step = proto.step();
  job.steps = proto.steps();
  job.skipped_steps = proto.skipped_steps();
  for (const v1::StepRecord& record : proto.curve()) {
    job.curve.push_back({.step = record.step(),
                         .loss = record.loss(),
                         .skipped = record.skipped()});
  }
  for (const v1::EvaluationRecord& record : proto.evaluations()) {
    job.evaluations.push_back({.step = record.step(),
                               .loss = record.loss(),
                               .accuracy = record.accuracy(),
                               .samples = record.samples()});
  }
  job.weights_path = proto.weights_path();
  job.weights_sha256 = proto.weights_sha256();
  job.threads = proto.threads();
  job.cpu_capability = proto.cpu_capability();
  for (const v1::JobWorker& worker : proto.workers()) {
    JobWorkerView view;
    view.id = worker.id();
    view.name = worker.name();
    for (const v1::StagePlacement& stage : worker.stages()) {
      view.stages.push_back(ViewFromProto(stage));
    }
    view.seconds = FromProto(worker.seconds());
    if (worker.has_flow()) view.flow = FromProto(worker.flow());
    view.peak_memory_bytes = worker.peak_memory_bytes();
    view.predicted_memory_bytes = worker.predicted_memory_bytes();
    if (worker.has_member()) {
      const v1::JobMember& member = worker.member();
      view.member =
          JobMemberView{member.view(), member.next(), member.state_step(),
                        member.state_hash(), member.listens()};
    }
    job.workers.push_back(std::move(view));
  }
  job.submitted_unix_ms = proto.submitted_unix_ms();
  job.started_unix_ms = proto.started_unix_ms();
  job.ended_unix_ms = proto.ended_unix_ms();
  job.attempt = proto.attempt();
  job.plan_version = proto.plan_version();
  job.samples_per_second = proto.samples_per_second();
  if (proto.has_estimate()) job.estimate = ViewFromProto(proto.estimate());
  for (const v1::StageVersions& versions : proto.versions()) {
    const double updates =
        static_cast<double>(std::max<int64_t>(versions.updates(), 1));
    job.versions.push_back(
        {.stage = versions.stage(),
         .updates = versions.updates(),
         .skipped_updates = versions.skipped_updates(),
         .staleness = static_cast<double>(versions.staleness()) / updates,
         .versions = versions.versions(),
         .version_bytes = versions.version_bytes()});
  }
  for (const v1::StageDrift& drift : proto.drift()) {
    job.drift.push_back({.stage = drift.stage(),
                         .predicted_seconds = drift.predicted_seconds(),
                         .measured_seconds = drift.measured_seconds(),
                         .worker_id = drift.worker_id(),
                         .layer_seconds = drift.layer_seconds()});
  }
  job.step_seconds = proto.step_seconds();
  return job;
}

WorkerView ViewFromProto(const v1::Worker& proto) {
  const v1::Registration& registration = proto.registration();
  WorkerView worker;
  worker.id = proto.id();
  worker.name = registration.name();
  worker.machine_id = registration.machine_id();
  worker.drained = proto.drained();
  worker.state = StateFromProto(proto.state());
  if (worker.drained && (worker.state == "idle" || worker.state == "busy")) {
    worker.state = proto.job() > 0 ? "draining" : "drained";
  }
  worker.address = registration.address();
  worker.http_address = registration.http_address();
  worker.pid = registration.pid();
  worker.job = proto.job();
  worker.stages.assign(proto.stages().begin(), proto.stages().end());
  worker.last_heard_seconds = proto.last_heard_seconds();
  worker.cpu_capability = registration.cpu_capability();
  worker.cpu_model = registration.cpu_model();
  worker.architecture = registration.architecture();
  worker.memory_bytes = registration.memory_bytes();
  worker.cores = registration.cores();
  worker.version = registration.version();
  return worker;
}

EventView ViewFromProto(const v1::JobEvent& proto) {
  return {.sequence = proto.sequence(),
          .unix_ms = proto.unix_ms(),
          .kind = proto.kind(),
          .text = proto.text()};
}

LogLineView ViewFromProto(const v1::LogLine& proto) {
  return {.unix_ms = proto.unix_ms(),
          .level = proto.level(),
          .source = proto.source(),
          .text = proto.text()};
}

}  // namespace paceline
