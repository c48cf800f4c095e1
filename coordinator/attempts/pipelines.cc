#include "coordinator/attempts/pipelines.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "coordinator/attempts/checkpoints.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/mesh/job_progress.h"
#include "coordinator/mesh/mesh_measurements.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/aggregation.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// The bound of an instruction before the first one is measured.
constexpr absl::Duration kLongestInstruction = absl::Minutes(1);
// A worker with a cut link gets no stage for this long; where the job pauses
// without it, the link is tried sooner.
constexpr absl::Duration kCutOffTime = absl::Minutes(1);
constexpr absl::Duration kCutOffPause = absl::Seconds(10);

WorkPhase WorkPhaseOf(v1::RunState::Phase phase) {
  constexpr WorkPhase kByNumber[] = {WorkPhase::kIdle,    WorkPhase::kGathering,
                                     WorkPhase::kRunning, WorkPhase::kDone,
                                     WorkPhase::kFailed,  WorkPhase::kStopped};
  const auto number = static_cast<size_t>(phase);
  return number < std::size(kByNumber) ? kByNumber[number] : WorkPhase::kIdle;
}

// The layers of the model whose stages the record holds.
int LayersOf(const JobRecord& record) {
  return record.stages.empty() ? 0 : record.stages.back().layers.last;
}

// Converts a heartbeat, without steps and layers that the job does not have.
JobReport ReportOf(const v1::Heartbeat& heartbeat, const JobRecord& record) {
  const JobId job = record.id();
  const int64_t most = MostSteps(record);
  const int layers = LayersOf(record);
  JobReport report;
  report.echo = {heartbeat.echo().term(), heartbeat.echo().n()};
  const v1::RunState& run = heartbeat.run();
  if (JobId{run.job()} == job &&
      run.phase() != v1::RunState::PHASE_UNSPECIFIED) {
    report.attempt = run.attempt();
    report.phase = WorkPhaseOf(run.phase());
    report.step =
        std::min(most, run.stopped_at() > 0 ? run.stopped_at() : run.step());
    report.joins = !run.member().has_taken_part();
    report.error = ErrorOf(run);
  }
  if (JobId{heartbeat.kept().job()} == job &&
      heartbeat.kept().applied() <= most && heartbeat.kept().held() <= most) {
    report.kept =
        KeptState{heartbeat.kept().applied(), heartbeat.kept().held()};
  }
  report.files_changed =
      absl::c_linear_search(heartbeat.repaired_jobs(), job.value);
  if (!heartbeat.has_pieces()) return report;
  report.refuses_pieces = heartbeat.pieces().refused() > 0;
  report.pieces.emplace();
  for (const v1::PiecesHeld::OfJob& held : heartbeat.pieces().jobs()) {
    if (JobId{held.job()} != job) continue;
    if (held.floor().step() <= most) {
      report.floor = {held.floor().attempt(), held.floor().step()};
    }
    for (const v1::PiecesHeld::HeldCut& each : held.cuts()) {
      const Cut cut = {each.cut().attempt(), each.cut().step()};
      if (cut.step > most) continue;
      for (const v1::LayerRange& range : each.layers()) {
        const int last = std::min(range.last(), layers);
        for (int layer = std::max(range.first(), 0); layer < last; ++layer) {
          report.pieces->insert({cut, layer});
        }
      }
    }
  }
  return report;
}

// An inference job goes on after its durable predictions.
Cut PredictedCut(const JobRecord& record) {
  const int64_t through = record.job.predicted().through();
  if (through == record.job.predicted_base().through() &&
      record.job.attempts_size() > 0) {
    const v1::Cut& base = record.job.attempts().rbegin()->base();
    return {base.attempt(), base.step()};
  }
  return {record.job.attempt(), through};
}

// Once the job trains, a stage goes on without a lost replica.
JobSpec WithThoseThere(const JobSpec& spec,
                       const std::vector<Candidate>& candidates) {
  return WithoutAbsentReplicas(spec, [&](const std::string& name) {
    return absl::c_any_of(candidates, [&name](const Candidate& candidate) {
      return !candidate.drained && !candidate.unfit &&
             candidate.member->registration.name() == name;
    });
  });
}

}  // namespace

// --- Jobs that recover -------------------------------------------------------

MachineId Pipelines::MachineOf(const Member& member) {
  const MachineId next{static_cast<int64_t>(machines_.size())};
  return machines_.try_emplace(member.registration.machine_id(), next)
      .first->second;
}

void Pipelines::MakeRecovery(JobEntry& job) {
  const JobId id = job.record.id();
  RecoveryPolicy policy;
  if (const auto model = Describe(job.record.spec); model.ok()) {
    policy.layers = static_cast<int>(model->layers.size());
  }
  policy.stateless = IsInference(job.record.spec);
  policy.views = IsDataParallel(job.record.spec);
  policy.states_differ = IsGossip(job.record.spec);
  policy.leave_bound = mesh_.policy.membership.lease;
  policy.return_period = mesh_.policy.return_period;
  job.recovery = std::make_unique<JobRecovery>(
      policy, mesh_.orders, [this, id](const std::vector<RunCandidate>& there) {
        return PlanFor(*mesh_.FindJob(id), there);
      });
  job.recovery->OnCheckpoints(CheckpointCuts(job.record));
  if (policy.stateless) job.attempt.watch = PlanWatch(kStatelessPolicy);
}

void Pipelines::Introduce(const Member& member, JobRecovery& recovery,
                          RecoveryTurn& turn) {
  recovery.OnAttached(member.process(), MachineOf(member),
                      member.registration.name(), turn);
  JobReport nothing;
  nothing.pieces.emplace();
  recovery.OnReport(member.process(), nothing, turn);
  recovery.SetDraining(member.id, mesh_.IsDrained(member.id), turn);
}

void Pipelines::Begin(JobEntry& job, Moment moment) {
  job.record.job.set_state(v1::JOB_STATE_RUNNING);
  mesh_.running.insert(job.record.id());
  job.record.job.clear_why();
  MakeRecovery(job);
  RecoveryTurn turn{moment.now};
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (member.state != MemberState::kLive) continue;
    Introduce(member, *job.recovery, turn);
  }
  job.recovery->Begin(turn);
  Carry(job, turn.actions, moment);
}

void Pipelines::Restore(JobEntry& job, Moment moment) {
  MakeRecovery(job);
  for (const auto& [id, member] : mesh_.membership.members()) {
    job.recovery->OnKnown(id, MachineOf(member), member.registration.name());
  }
  std::vector<AttemptRow> rows = LineageOf(job.record).rows();
  // An older program, which kept no rows, stored the job.
  const bool is_older = rows.empty();
  if (is_older) rows.push_back({job.record.job.attempt(), {}});
  std::vector<RunPlace> places;
  for (const StageOfPlan& stage : job.record.stages) {
    const v1::JobWorker& worker = *FindWorker(job.record, stage.worker);
    places.push_back({stage.layers, {stage.worker, {worker.incarnation()}}});
  }
  job.recovery->Restore(std::move(rows), std::move(places));
  for (const auto& [worker, incarnation] : job.groups.kept.distrusted) {
    job.recovery->Distrust({worker, incarnation});
  }
  if (IsDataParallel(job.record.spec)) {
    if (is_older || !job.group.has_value()) {
      Roster none;
      none.state = Roster::State::kLost;
      none.why = "no view of its members is kept";
      RecoveryTurn turn{moment.now};
      job.recovery->OnRoster(none, turn);
      return Carry(job, turn.actions, moment);
    }
    OnRoster(job, moment);
  }
  if (IsInference(job.record.spec)) {
    job.recovery->OnCheckpoints({PredictedCut(job.record)});
  }
}

void Pipelines::OnRoster(JobEntry& job, Moment moment) {
  if (job.recovery == nullptr || !job.group.has_value()) return;
  job.recovery->SetLeaveBound(job.group->instruction_bound());
  RecoveryTurn turn{moment.now};
  const Roster roster = job.group->MakeRoster(LayersOf(job.record));
  job.recovery->OnRoster(roster, turn);
  if (roster.state == Roster::State::kTorn) {
    job.record.job.clear_attempts();
    WriteAll(job.recovery->lineage().rows(),
             *job.record.job.mutable_attempts());
    mesh_.Put(job);
    mesh_.actions.writes.durable = true;
  }
  Carry(job, turn.actions, moment);
}

std::optional<JobSpec> Pipelines::WithoutLost(const JobEntry& job,
                                              const JobSpec& spec) const {
  // A worker with another job is not lost.
  const auto is_there = [&](const std::string& name) {
    const auto& members = mesh_.membership.members();
    return absl::c_any_of(members, [&](const auto& each) {
      const Member& member = each.second;
      return member.registration.name() == name && !IsGone(member.state) &&
             member.stream.assigned() &&
             !job.recovery->Excludes(member.process());
    });
  };
  const auto model = Describe(spec);
  if (spec.infer.tolerate != "skip" || !model.ok()) return std::nullopt;
  return WithoutLostStages(spec, *model, is_there);
}

const PlacementVerdict* Pipelines::Place(
    const JobSpec& spec, const std::vector<Candidate>& candidates,
    PlacementMemo& memo) const {
  const std::string bytes = ToProto(spec).SerializeAsString();
  std::vector<int64_t> numbers = {
      static_cast<int64_t>(mesh_.PlacementKey()),
      static_cast<int64_t>(HashBytes(
          {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}))};
  std::vector<double> slowness;
  for (const Candidate& each : candidates) {
    numbers.push_back(each.member->id.value);
    numbers.push_back(each.no_data + 2 * each.unfit);
    slowness.push_back(each.slowness);
  }
  return mesh_.PlacementOf(memo, PlacementKey(numbers), std::move(slowness),
                           spec, [&] {
                             return std::make_shared<const PlacementInputs>(
                                 candidates, mesh_.measured);
                           });
}

// Workers of other jobs count as absent: to go on with fewer workers is better
// than to wait.
PlacedStages Pipelines::PlanFor(JobEntry& job,
                                const std::vector<RunCandidate>& there) const {
  JobSpec spec = job.record.spec;
  PlacementVerdict& verdict = job.attempt.verdict;
  if (!job.record.job.cpu_capability().empty()) {
    spec.cpu_capability = job.record.job.cpu_capability();
  }
  const bool leaves_idle = LeavesIdle(job);
  std::vector<Candidate> candidates;
  std::vector<std::string> unfit;
  std::map<WorkerId, MemberId> processes;
  for (const RunCandidate& each : there) {
    const WorkerId id = each.process.worker;
    const Member* const member = mesh_.membership.Find(id);
    const JobEntry* const has = mesh_.JobOf(id);
    if (member == nullptr || (has == nullptr && leaves_idle)) continue;
    // No order reaches it.  When many are lost at once, the job would otherwise
    // plan with workers whose loss it has not heard of yet.
    if (IsGone(member->state) || !member->stream.assigned()) continue;
    const bool taken = has != nullptr && has != &job;
    const std::string why =
        taken ? absl::StrCat("it has job ", has->record.id().value)
        : each.unfit.empty() ? each.no_data
                             : each.unfit;
    if (!why.empty()) {
      unfit.push_back(
          absl::StrCat(member->registration.name(), " (", why, ")"));
    }
    processes[id] = each.process;
    candidates.push_back({member, JobId{},
                          mesh_.measures.Holds(member->registration.name()),
                          mesh_.IsDrained(id), !each.no_data.empty(),
                          taken || !each.unfit.empty(),
                          job.attempt.watch.SlownessOf(each.process)});
  }
  // A process that did not leave in time gets no stage; it starts anew.
  for (const Candidate& each : mesh_.Candidates()) {
    if (!job.recovery->Excludes(each.member->process())) continue;
    candidates.push_back(each);
    candidates.back().unfit = true;
  }
  const JobSpec present = IsInference(spec) || job.record.job.attempt() == 0
                              ? spec
                              : WithThoseThere(spec, candidates);
  const PlacementVerdict* placed =
      job.queued.begins != nullptr
          ? job.queued.begins
          : Place(present, candidates, job.attempt.placed);
  if (placed == nullptr) return std::nullopt;
  verdict = *placed;
  if (!verdict.plan.has_value() && job.record.job.attempt() > 0) {
    if (const std::optional<JobSpec> rest = WithoutLost(job, spec)) {
      placed = Place(*rest, candidates, job.attempt.without_lost);
      if (placed == nullptr) return std::nullopt;
      verdict = *placed;
      for (size_t i = spec.faults.size(); i < rest->faults.size(); ++i) {
        verdict.skipped_blocks.push_back(rest->faults[i].block);
      }
    }
  }
  if (!verdict.undescribed.ok()) return verdict.undescribed;
  if (!verdict.plan.has_value()) {
    const std::string cannot =
        unfit.empty() ? ""
                      : absl::StrCat("cannot use ", absl::StrJoin(unfit, ", "));
    return Unavailable(Sentence(
        {verdict.impossible.ok() ? verdict.why
                                 : std::string(verdict.impossible.message()),
         cannot}));
  }
  std::vector<RunPlace> places;
  for (const StageOfPlan& stage : verdict.plan->stages) {
    places.push_back({stage.layers, processes.at(stage.worker)});
  }
  return places;
}

bool Pipelines::LeavesIdle(const JobEntry& job) const {
  return job.recovery->phase() == JobPhase::kRunning &&
         absl::c_any_of(mesh_.open, [this](JobId id) {
           const JobEntry& other = mesh_.jobs.at(id);
           return other.record.state() == v1::JOB_STATE_QUEUED &&
                  !other.queued.may_be_passed;
         });
}

std::optional<MoveEstimate> Pipelines::EstimateMove(
    const JobEntry& job, const std::vector<RunPlace>& places) const {
  const JobRecord& record = job.record;
  const auto model = Describe(record.spec);
  if (!model.ok()) return std::nullopt;
  const std::vector<StageOfPlan>& better = job.attempt.verdict.plan->stages;
  std::map<WorkerId, double> slowness;
  for (const auto& all : {job.recovery->places(), places}) {
    for (const RunPlace& place : all) {
      slowness[place.process.worker] =
          job.attempt.watch.SlownessOf(place.process);
    }
  }
  const auto now =
      EstimateOf(mesh_, record.spec, *model, record.stages, slowness);
  const auto then = EstimateOf(mesh_, record.spec, *model, better, slowness);
  if (!now.has_value() || !then.has_value() ||
      !(then->samples_per_second() > 0)) {
    return std::nullopt;
  }
  MoveEstimate estimate;
  estimate.step_seconds = job.attempt.watch.step_seconds();
  // The ratio cancels costs that both estimates lack.  A rate does not need the
  // number of inference's micro-batches.
  estimate.better_step_seconds = estimate.step_seconds *
                                 now->samples_per_second() /
                                 then->samples_per_second();
  estimate.steps_left = record.job.steps() - record.job.step();
  if (IsInference(record.spec)) {
    estimate.steps_again = record.job.step() - record.job.predicted().through();
  } else {
    const StateTransfer transfer =
        TransferOf(record.spec, *model, record.stages, better, mesh_.membership,
                   mesh_.measured);
    estimate.bytes = transfer.bytes;
    estimate.bytes_per_second = transfer.bytes_per_second;
  }
  estimate.restart_seconds = absl::ToDoubleSeconds(job.attempt.watch.restart());
  return estimate;
}

void Pipelines::LookForBetterPlan(JobEntry& job, RecoveryTurn& turn) {
  AttemptState& attempt = job.attempt;
  if (IsDataParallel(job.record.spec) ||
      job.recovery->phase() != JobPhase::kRunning) {
    return;
  }
  // The speeds stay those of this look until its plan is made.
  if (!std::exchange(attempt.looks, false) &&
      (!attempt.watch.IsDue(turn.now) ||
       !attempt.watch.Measure(job.record, job.record.job.estimate(),
                              turn.now))) {
    return;
  }
  const PlacedStages places = job.recovery->PlanNow();  // sets attempt.verdict
  attempt.looks = !places.has_value();
  if (attempt.looks || !places->ok()) return;
  const auto estimate = EstimateMove(job, **places);
  if (!estimate.has_value()) return;
  const MoveVerdict verdict = attempt.watch.Decide(*estimate, turn.now);
  if (!verdict.move) return;
  job.recovery->OnBetterPlan(
      absl::StrCat("there is a better plan: ", verdict.why), turn);
}

void Pipelines::ForEach(Moment moment, const Act& act) {
  for (JobEntry* const job : mesh_.RunningJobs()) {
    if (job->recovery == nullptr) continue;
    RecoveryTurn turn{moment.now};
    act(*job, turn);
    Carry(*job, turn.actions, moment);
  }
}

void Pipelines::OnAttached(const Member& member, Moment moment) {
  const MachineId machine = MachineOf(member);
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    job.recovery->OnAttached(member.process(), machine,
                             member.registration.name(), turn);
    job.recovery->SetDraining(member.id, mesh_.IsDrained(member.id), turn);
  });
}

void Pipelines::OnLost(const Member& member, Moment moment) {
  if (JobEntry* const job = mesh_.JobOf(member.id)) {
    job->attempt.meter.SetDetection(moment.now - member.gone_since);
  }
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    const v1::Job& record = job.record.job;
    if (const int64_t all = MicroBatchesOf(job.record);
        all > 0 && record.predicted().through() == all) {
      job.recovery->OnAllStored();
      job.recovery->OnTick(turn);
    }
    job.recovery->OnLost(
        member.id,
        absl::StrCat(member.why, LostReplicaText(job.record, member.id)), turn);
  });
}

void Pipelines::OnDrain(WorkerId worker, bool drain, Moment moment) {
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    job.recovery->SetDraining(worker, drain, turn);
  });
}

void Pipelines::OnPlansChanged(Moment moment) {
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    job.recovery->OnPlansChanged(turn);
  });
}

void Pipelines::OnTick(Moment moment) {
  const MembershipPolicy& policy = mesh_.policy.membership;
  const bool settled = moment.now - mesh_.start >= policy.lease + policy.grace;
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    for (const auto& [id, member] : mesh_.membership.members()) {
      if (!settled || member.seen) continue;
      job.recovery->OnLost(id, member.why, turn);
    }
    job.recovery->OnTick(turn);
  });
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) { Judge(job, turn); });
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    LookForBetterPlan(job, turn);
  });
}

void Pipelines::OnStandstill(absl::Duration duration, Moment moment) {
  ForEach(moment, [&](JobEntry& job, RecoveryTurn&) {
    job.recovery->OnStandstill(duration, moment.now);
  });
}

bool Pipelines::OnHeartbeat(const Member& member,
                            const v1::Heartbeat& heartbeat, Moment moment) {
  bool changed = false;
  ForEach(moment, [&](JobEntry& job, RecoveryTurn& turn) {
    // A worker that was suspect when the job began is not known yet.
    if (!job.recovery->Knows(member.id)) {
      Introduce(member, *job.recovery, turn);
    }
    JobReport report = ReportOf(heartbeat, job.record);
    const bool is_its = FindWorker(job.record, member.id) != nullptr;
    if (IsInference(job.record.spec)) {
      job.recovery->OnCheckpoints({PredictedCut(job.record)});
      report.step += job.recovery->base().step;
      if (report.phase == WorkPhase::kRunning &&
          !HasTurn(job.record, member.id)) {
        report.phase = WorkPhase::kDone;
      }
    } else {
      if (!heartbeat.has_run() && is_its &&
          JobId{heartbeat.kept().job()} == job.record.id() &&
          heartbeat.kept().attempt() == job.recovery->attempt()) {
        for (const v1::StepRecord& step : heartbeat.steps()) {
          TakeStep(mesh_, job, member.id, step, moment);
        }
        if (!heartbeat.steps().empty()) mesh_.Put(job);
      }
      job.recovery->OnRecorded(job.record.job.recorded_step());
    }
    const v1::KeptState& kept = heartbeat.kept();
    const int64_t attempt = job.recovery->attempt();
    v1::KeptState& most_kept = job.attempt.most_kept;
    if (kept.attempt() != attempt || !is_its) {
      report.kept.reset();
    } else if (report.kept.has_value() &&
               (most_kept.attempt() != attempt ||
                kept.applied() > most_kept.applied())) {
      most_kept = kept;
    }
    report.settled = RunsAt(job.record.job.cpu_capability(), member);
    job.recovery->OnReport(member.process(), report, turn);
    changed = changed || !turn.actions.empty();
  });
  return changed;
}

void Pipelines::Carry(JobEntry& job, const RecoveryActions& actions,
                      Moment moment) {
  for (const RecoveryAction& action : actions) {
    if (job.recovery == nullptr) return;  // the job has ended
    if (const auto* attempt = std::get_if<StoreAttempt>(&action)) {
      OnStoreAttempt(job, *attempt, moment);
    } else if (const auto* event = std::get_if<RecoveryEvent>(&action)) {
      mesh_.AddEvent(job, moment, event->kind, event->text);
    } else if (const auto* change = std::get_if<JobTransition>(&action)) {
      OnTransition(job, *change, moment);
    }
    // Orders are derived: JobRecovery::OrderOf(), Excludes().
  }
}

// The attempt counts as stored from here on: the brain's writes are stored,
// after retries if need be, before any order leaves.
void Pipelines::OnStoreAttempt(JobEntry& job, const StoreAttempt& attempt,
                               Moment moment) {
  const AttemptRow& row = attempt.row;
  const bool is_group = IsDataParallel(job.record.spec);
  const int64_t reached = job.record.job.step();
  mesh_.BeginAttempt(job, job.attempt.verdict, row.attempt, row.base.step,
                     moment);
  if (job.recovery == nullptr) return;  // its predictions have no layout
  if (is_group && reached > row.base.step) {
    mesh_.AddEvent(job, moment, "again", "the group goes on from step ",
                   row.base.step, ", and had reached step ", reached);
  }
  job.record.job.clear_estimate();
  job.record.job.clear_shards();
  const JobSpec spec = SpecOfAttempt(job.record);
  if (const auto model = Describe(spec); model.ok()) {
    const auto estimate = EstimateOf(mesh_, spec, *model, job.record.stages);
    if (estimate.has_value()) *job.record.job.mutable_estimate() = *estimate;
  }
  auto& rows = *job.record.job.mutable_attempts();
  while (!rows.empty() && rows.rbegin()->attempt() >= row.attempt) {
    rows.RemoveLast();
  }
  Write(row, *rows.Add());
  // Its first view is stored with the attempt.
  if (is_group) groups_.Start(job, row.base.step, moment);
  mesh_.Put(job);
  RecoveryTurn turn{moment.now};
  job.attempt.watched.clear();
  job.recovery->OnStored(row.attempt, turn);
  Carry(job, turn.actions, moment);
}

void Pipelines::OnTransition(JobEntry& job, const JobTransition& transition,
                             Moment moment) {
  const bool moves = job.recovery->moves();
  if (!moves || job.attempt.meter.open().has_value()) {
    job.attempt.meter.OnTransition(transition, job.record.job.step(),
                                   job.recovery->base(), job.recovery->why(),
                                   moment);
  }
  if (transition.to == JobPhase::kLeaving) groups_.OnLeft(job);
  switch (transition.to) {
    case JobPhase::kStopping:
    case JobPhase::kLeaving:
    case JobPhase::kChoosing:
      job.attempt.watch.OnStopped(transition.cause == JobCause::kMove || moves,
                                  moment.now);
      break;
    case JobPhase::kPaused:
      job.attempt.watch.OnPaused();
      break;
    case JobPhase::kRunning:
      job.attempt.watch.OnRunning(job.record, moment.now);
      if (job.group.has_value()) break;  // says that it trains
      mesh_.AddEvent(job, moment, "running",
                     IsInference(job.record.spec)
                         ? "all workers are ready and predict"
                         : "all workers are ready and train");
      break;
    case JobPhase::kDone:
      OnAllDone(mesh_, job, moment);
      break;
    case JobPhase::kFailed:
      mesh_.FailJob(
          job,
          job.lost_error.ok() ? job.recovery->why()
                              : std::string(job.lost_error.message()),
          AdviceAfter(job.lost_error, job.record.spec) + ResumeHint(job.record),
          moment);
      break;
    default:
      break;
  }
}

void Pipelines::SetPin(JobEntry& job, Cut cut, bool pinned, Moment moment) {
  RecoveryTurn turn{moment.now};
  job.recovery->SetPin(cut, pinned, turn);
  Carry(job, turn.actions, moment);
}

void Pipelines::AddTo(v1::StandingOrder& standing,
                      const MemberId& process) const {
  OrderNumber number;
  for (const JobId id : mesh_.running) {
    const JobEntry& job = mesh_.jobs.at(id);
    if (job.recovery == nullptr) continue;
    const JobOrder* const order = job.recovery->OrderOf(process);
    if (order == nullptr) continue;
    if (order->settle) standing.set_settle(job.record.job.cpu_capability());
    number = std::max(number, order->number);
    v1::KeepOrder& keep = *standing.add_keep();
    Write(order->keep, keep);
    keep.set_job(id.value);
    const v1::KeptState& kept = job.attempt.most_kept;
    // Without a verdict, the step is run again.
    if (order->finish.has_value() &&
        kept.attempt() == job.recovery->attempt() &&
        kept.applied() == *order->finish && kept.has_verdict()) {
      keep.mutable_finish()->set_attempt(kept.attempt());
      keep.mutable_finish()->set_step(*order->finish);
      *keep.mutable_finish()->mutable_verdict() = kept.verdict();
    }
    for (const Follow& follow : order->follow) {
      Write(FollowOrder{.job = id,
                        .source = follow.source,
                        .address = AddressOf(follow.source),
                        .layers = follow.layers},
            *keep.add_follow());
    }
  }
  Write(number, *standing.mutable_number());
}

// --- Live workers that do not work -------------------------------------------

std::vector<PeerReport> Pipelines::Watch(JobEntry& job, const Member& member,
                                         const WorkerReport& report,
                                         Moment moment) {
  const v1::RunState& run = report.heartbeat.run();
  if (run.attempt() != job.recovery->attempt() || !report.member.has_value()) {
    return {};
  }
  AttemptState::Watched& watched = job.attempt.watched[member.process()];
  watched.work.OnHeard(moment.now, mesh_.policy.membership.lease);
  watched.work.OnReport(run.phase() == v1::RunState::PHASE_RUNNING,
                        report.member->turn, report.heartbeat.progress(),
                        moment.now);
  // A peer report names the worker, not its process.
  watched.links.peers.clear();
  for (PeerReport peer : report.member->peers) {
    const auto place =
        absl::c_find_if(job.recovery->places(), [&peer](const RunPlace& each) {
          return each.process.worker == peer.peer.worker;
        });
    if (place == job.recovery->places().end()) continue;
    peer.peer = place->process;
    peer.awaited = true;
    watched.links.peers.push_back(peer);
  }
  return watched.links.peers;
}

// Predictions for an unmeasured machine may be far off: they may raise the
// bound above the measurements, not lower it.
absl::Duration Pipelines::InstructionBound(JobEntry& job) const {
  double& longest = job.attempt.micro_batch_seconds;
  double seconds = 0;
  bool all_measured = true;
  for (const v1::StageDrift& drift : DriftOf(job.record)) {
    all_measured = all_measured && drift.measured_seconds() > 0;
    seconds += std::max(drift.predicted_seconds(), drift.measured_seconds());
  }
  if (all_measured) longest = std::max(longest, seconds);
  return std::max(
      longest > 0 ? mesh_.policy.membership.lease : kLongestInstruction,
      absl::Seconds(kPatience * std::max(seconds, longest)));
}

void Pipelines::Judge(JobEntry& job, RecoveryTurn& turn) {
  if (IsDataParallel(job.record.spec)) return;
  JobRecovery& recovery = *job.recovery;
  for (auto cut = job.attempt.cut_off.begin();
       cut != job.attempt.cut_off.end();) {
    if (turn.now - cut->second <
        (job.IsPaused() ? kCutOffPause : kCutOffTime)) {
      ++cut;
      continue;
    }
    recovery.SetCutOff(cut->first, "", turn);
    cut = job.attempt.cut_off.erase(cut);
  }
  const absl::Duration bound = InstructionBound(job);
  recovery.SetLeaveBound(bound);
  const JobPhase phase = recovery.phase();
  if (phase != JobPhase::kStarting && phase != JobPhase::kRunning &&
      phase != JobPhase::kStopping) {
    return;
  }
  View view;
  std::map<MemberId, MemberReport> links;
  for (const auto& [process, watched] : job.attempt.watched) {
    const Member* const member = mesh_.membership.Find(process.worker);
    if (member == nullptr || member->process() != process ||
        member->state != MemberState::kLive) {
      continue;
    }
    if (IsHung(watched.work, bound)) {
      const absl::Duration idle =
          watched.work.heard - watched.work.progress_since;
      return recovery.OnStuck(
          process,
          absl::StrFormat("it answers, but has finished no instruction for "
                          "%.1f s",
                          absl::ToDoubleSeconds(idle)),
          turn);
    }
    view.members.push_back({process, 0, 1});
    links[process] = watched.links;
  }
  const std::optional<Eviction> cut =
      DecideEviction(view, links, mesh_.policy.membership.lease);
  if (!cut.has_value()) return;
  // Both live, so either may hold other stages, but not adjacent ones.
  const std::string why = absl::StrCat(
      "the link to ", mesh_.NameOf(cut->accuser.worker), " is cut");
  job.attempt.cut_off[cut->member.worker] = turn.now;
  recovery.SetCutOff(cut->member.worker, why, turn);
  recovery.OnStuck(cut->member, why, turn);
}

bool Pipelines::Excludes(const MemberId& process) const {
  const auto& running = mesh_.running;
  return absl::c_any_of(running, [&](JobId id) {
    const JobEntry& job = mesh_.jobs.at(id);
    return job.recovery != nullptr && job.recovery->Excludes(process);
  });
}

// --- All pipelines -----------------------------------------------------------

void Pipelines::TakeReport(JobEntry& job, WorkerId worker,
                           const v1::Heartbeat& heartbeat, Moment moment) {
  const bool is_group = IsDataParallel(job.record.spec);
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    if (is_group || !HoldsLast(job.record, worker)) break;
    TakeEvaluation(mesh_, job, evaluation, moment);
  }
  TakeRun(mesh_, job, worker, heartbeat.run(), moment);
  // The job has failed if its predictions have no layout.
  if (HasEnded(job.record.state())) return;
  // The first report of an input sets the job's inputs.  A differing report
  // comes only from a worker whose order did not name that input.  The job
  // fails, since parts of it were made from each.
  const v1::Inputs& read = heartbeat.run().inputs();
  v1::Inputs& began = *job.record.job.mutable_inputs();
  const absl::Status same = CheckInputs(read, began, job.record.spec);
  if (!same.ok()) {
    return mesh_.FailJob(
        job,
        absl::StrCat("worker ", mesh_.NameOf(worker), ": ", same.message()),
        AdviceAfter(same, job.record.spec), moment);
  }
  began.MergeFrom(read);  // skips unset fields
  v1::JobWorker& part = *FindWorker(job.record, worker);
  part.mutable_run()->set_phase(heartbeat.run().phase());
  job.attempt.meter.OnFetched(heartbeat.run().fetch_seconds());
  v1::Recovery recovery = job.record.job.recovery();
  if (job.attempt.meter.OnStep(job.record.job.step(), moment, recovery)) {
    *job.record.job.mutable_recovery() = recovery;
    mesh_.recoveries.push_back(recovery);
    mesh_.AddEvent(
        job, moment, "replayed",
        absl::StrFormat(
            "the job is as far as it was, %.2f s after the loss; "
            "it has run %s again",
            SecondsOf(recovery),
            Counted(recovery.again(),
                    IsInference(job.record.spec) ? "micro-batch" : "step")));
  }
  if (const absl::Status error = ErrorOf(heartbeat.run());
      !error.ok() && !is_group) {
    job.lost_error = absl::Status(
        error.code(),
        absl::StrCat("worker ", part.name(), " (", StagesOf(job.record, worker),
                     ") failed ", AtStep(job.record), ": ", error.message()));
  }
  mesh_.Put(job);
}

std::optional<RunOrder> Pipelines::OrderOf(const JobEntry& entry,
                                           WorkerId worker) const {
  if (entry.recovery == nullptr) return std::nullopt;
  const JobRecord& job = entry.record;
  const Member* const member = mesh_.membership.Find(worker);
  const JobOrder* const order =
      member == nullptr ? nullptr : entry.recovery->OrderOf(member->process());
  if (order == nullptr || !order->run.has_value()) return std::nullopt;
  RunOrder run;
  run.base = order->run->base;
  run.stop_after_batch = order->run->stop_after_batch;
  if (!IsInference(job.spec) && run.base != Cut()) {
    run.evaluated = job.job.evaluated_step() >= run.base.step;
    run.trained = run.base.step == job.job.steps() &&
                  (run.evaluated || job.job.total_samples() == 0);
  }
  for (size_t layer = 0; layer < order->run->sources.size(); ++layer) {
    const int first = static_cast<int>(layer);
    for (const MemberId& holder : order->run->sources[layer]) {
      run.sources.push_back({{first, first + 1}, holder, AddressOf(holder)});
    }
    if (order->run->sources[layer].empty() && run.base != Cut() &&
        !IsInference(job.spec)) {
      run.sources.push_back({{first, first + 1}, kCoordinatorProcess, ""});
    }
  }
  run.fence = job.fence();
  run.spec = SpecOfAttempt(job);
  run.stages = mesh_.Place(job.stages);
  run.routes = RoutesOf(job.stages);
  run.cpu_capability = job.job.cpu_capability();
  run.threads = job.job.threads();
  run.inputs = job.job.inputs();
  const v1::SkipRun* const skips = SkipRunAt(job.job, run.base.step);
  if (skips != nullptr) run.skipped_in_row = run.base.step - skips->first() + 1;
  if (IsDataParallel(job.spec) &&
      (!entry.group.has_value() || !groups_.AddTo(entry, *member, run))) {
    return std::nullopt;
  }
  return run;
}

}  // namespace paceline
