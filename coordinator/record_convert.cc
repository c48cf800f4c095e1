#include "coordinator/record_convert.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert.h"
#include "core/rpc/group_convert.h"
#include "core/rpc/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {

Registration FromProto(const v1::Registration& proto) {
  Registration registration;
  registration.name = proto.name();
  registration.machine_id = proto.machine_id();
  registration.incarnation = {proto.incarnation()};
  registration.address = proto.address();
  registration.http_address = proto.http_address();
  registration.pid = proto.pid();
  registration.cpu_capability = proto.cpu_capability();
  registration.cpu_model = proto.cpu_model();
  registration.architecture = proto.architecture();
  registration.memory_bytes = proto.memory_bytes();
  registration.cores = proto.cores();
  registration.version = proto.version();
  return registration;
}

v1::Registration ToProto(const Registration& registration) {
  v1::Registration proto;
  proto.set_protocol_version(kProtocolVersion);
  proto.set_name(registration.name);
  proto.set_machine_id(registration.machine_id);
  proto.set_incarnation(registration.incarnation.value);
  proto.set_address(registration.address);
  proto.set_http_address(registration.http_address);
  proto.set_pid(registration.pid);
  proto.set_cpu_capability(registration.cpu_capability);
  proto.set_cpu_model(registration.cpu_model);
  proto.set_architecture(registration.architecture);
  proto.set_memory_bytes(registration.memory_bytes);
  proto.set_cores(registration.cores);
  proto.set_version(registration.version);
  return proto;
}

v1::RunEstimate ToProto(const RunEstimate& estimate) {
  v1::RunEstimate proto;
  proto.set_step_seconds(estimate.step_seconds);
  proto.set_samples_per_second(estimate.samples_per_second);
  proto.set_bubble_share(estimate.bubble_share);
  proto.set_source(estimate.source);
  proto.set_measured(estimate.measured);
  proto.mutable_stage_seconds()->Add(estimate.stage_seconds.begin(),
                                     estimate.stage_seconds.end());
  proto.mutable_layer_seconds()->Add(estimate.layer_seconds.begin(),
                                     estimate.layer_seconds.end());
  return proto;
}

v1::JobEvent ToProto(const EventRecord& event) {
  v1::JobEvent proto;
  proto.set_sequence(event.sequence);
  proto.set_unix_ms(event.unix_ms);
  proto.set_kind(event.kind);
  proto.set_text(ToUtf8(event.text, kMaxStatusMessageBytes));
  return proto;
}

EventRecord FromProto(const v1::JobEvent& proto) {
  return {proto.sequence(), proto.unix_ms(), proto.kind(), proto.text()};
}

v1::Job ToProto(const JobRecord& record) {
  v1::Job proto;
  proto.set_id(record.id.value);
  *proto.mutable_spec() = ToProto(record.spec);
  proto.set_state(static_cast<v1::JobState>(record.state));
  proto.set_why(ToUtf8(record.why, kMaxStatusMessageBytes));
  proto.set_step(record.step);
  proto.set_steps(record.steps);
  // A path may hold any bytes.
  proto.set_weights_path(ToUtf8(record.weights_path, kMaxStatusMessageBytes));
  proto.set_weights_sha256(record.weights_sha256);
  proto.set_threads(record.threads);
  proto.set_cpu_capability(record.cpu_capability);
  for (const JobWorker& worker : record.workers) {
    v1::JobWorker& part = *proto.add_workers();
    part.set_id(worker.id.value);
    part.set_name(worker.name);
    *part.mutable_seconds() = ToProto(worker.seconds);
    if (worker.flow.has_value()) *part.mutable_flow() = ToProto(*worker.flow);
    part.set_peak_memory_bytes(worker.peak_memory_bytes);
    part.set_predicted_memory_bytes(worker.predicted_memory_bytes);
  }
  proto.set_submitted_unix_ms(record.submitted_unix_ms);
  proto.set_started_unix_ms(record.started_unix_ms);
  proto.set_ended_unix_ms(record.ended_unix_ms);
  proto.set_attempt(record.attempt);
  proto.set_plan_version(record.plan_version);
  if (record.estimate.has_value()) {
    *proto.mutable_estimate() = ToProto(*record.estimate);
  }
  proto.set_skipped_steps(record.skipped_steps);
  return proto;
}

v1::Job ToStored(const JobRecord& record) {
  v1::Job proto = ToProto(record);
  proto.set_request_id(record.request_id);
  for (int i = 0; i < proto.workers_size(); ++i) {
    const JobWorker& worker = record.workers[i];
    v1::JobWorker& part = *proto.mutable_workers(i);
    part.set_phase(static_cast<v1::RunState::Phase>(worker.phase));
    part.set_let_go(worker.let_go);
  }
  for (const StageOfPlan& stage : record.stages) {
    v1::StagePlacement& into = *proto.add_stages();
    into.set_first_layer(stage.layers.first);
    into.set_last_layer(stage.layers.last);
    into.set_worker_id(stage.worker.value);
    into.set_share(stage.share);
  }
  for (const StageTime& time : record.stage_times) {
    *proto.add_stage_times() = ToProto(time);
  }
  proto.set_evaluated_step(record.evaluated_step);
  proto.set_recorded_step(record.recorded_step);
  proto.set_skipping_since(record.skipping_since);
  proto.set_timed_seconds(record.step_seconds);
  proto.set_timed_steps(record.timed_steps);
  return proto;
}

namespace {

absl::Status TakeWorkers(const v1::Job& proto, JobRecord& record) {
  for (const v1::JobWorker& part : proto.workers()) {
    if (part.phase() < 0 || part.phase() >= kRunPhases) {
      return absl::InvalidArgumentError(
          absl::StrCat("phase ", static_cast<int>(part.phase())));
    }
    JobWorker& worker = record.workers.emplace_back();
    worker.id = WorkerId{part.id()};
    worker.name = part.name();
    worker.phase = static_cast<RunPhase>(part.phase());
    worker.seconds = FromProto(part.seconds());
    if (part.has_flow()) worker.flow = FromProto(part.flow());
    worker.peak_memory_bytes = part.peak_memory_bytes();
    worker.predicted_memory_bytes = part.predicted_memory_bytes();
    worker.let_go = part.let_go();
  }
  return absl::OkStatus();
}

RunEstimate EstimateFromProto(const v1::RunEstimate& proto) {
  RunEstimate estimate;
  estimate.step_seconds = proto.step_seconds();
  estimate.samples_per_second = proto.samples_per_second();
  estimate.bubble_share = proto.bubble_share();
  estimate.source = proto.source();
  estimate.measured = proto.measured();
  estimate.stage_seconds = {proto.stage_seconds().begin(),
                            proto.stage_seconds().end()};
  estimate.layer_seconds = {proto.layer_seconds().begin(),
                            proto.layer_seconds().end()};
  return estimate;
}

}  // namespace

absl::StatusOr<JobRecord> FromStored(const v1::Job& proto) {
  if (proto.state() < 1 || proto.state() >= kJobStates) {
    return absl::InvalidArgumentError(
        absl::StrCat("state ", static_cast<int>(proto.state())));
  }
  JobRecord record;
  record.id = JobId{proto.id()};
  record.request_id = proto.request_id();
  record.spec = FromProto(proto.spec());
  record.state = static_cast<JobState>(proto.state());
  record.why = proto.why();
  record.step = proto.step();
  record.steps = proto.steps();
  record.evaluated_step = proto.evaluated_step();
  record.recorded_step = proto.recorded_step();
  record.skipped_steps = proto.skipped_steps();
  record.skipping_since = proto.skipping_since();
  record.attempt = proto.attempt();
  record.plan_version = proto.plan_version();
  record.threads = proto.threads();
  record.cpu_capability = proto.cpu_capability();
  record.weights_path = proto.weights_path();
  record.weights_sha256 = proto.weights_sha256();
  record.submitted_unix_ms = proto.submitted_unix_ms();
  record.started_unix_ms = proto.started_unix_ms();
  record.ended_unix_ms = proto.ended_unix_ms();
  for (const v1::StagePlacement& stage : proto.stages()) {
    record.stages.push_back({{stage.first_layer(), stage.last_layer()},
                             WorkerId{stage.worker_id()},
                             stage.share()});
  }
  PACELINE_RETURN_IF_ERROR(TakeWorkers(proto, record));
  if (proto.has_estimate()) {
    record.estimate = EstimateFromProto(proto.estimate());
  }
  for (const v1::StageTime& time : proto.stage_times()) {
    record.stage_times.push_back(FromProto(time));
  }
  record.step_seconds = proto.timed_seconds();
  record.timed_steps = proto.timed_steps();
  return record;
}

v1::StoredGroup ToStored(const KeptView& kept) {
  v1::StoredGroup proto;
  proto.set_attempt(kept.attempt);
  *proto.mutable_view() = ViewToProto(kept.view);
  for (const auto& [worker, incarnation] : kept.excluded) {
    *proto.add_excluded() = ToProto(MemberId{worker, incarnation});
  }
  proto.set_faults_are_spent(kept.faults_are_spent);
  return proto;
}

absl::StatusOr<KeptView> FromStored(const v1::StoredGroup& proto) {
  KeptView kept;
  kept.attempt = proto.attempt();
  PACELINE_ASSIGN_OR_RETURN(kept.view, ViewFromProto(proto.view()));
  for (const v1::GroupMember& member : proto.excluded()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId id, FromProto(member));
    kept.excluded[id.worker] = id.incarnation;
  }
  kept.faults_are_spent = proto.faults_are_spent();
  return kept;
}

}  // namespace paceline
