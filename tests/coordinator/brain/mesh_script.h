// A mesh that plays lines of text and tells what became of it, for the golden
// texts of tests/golden/coordinator.
//
//   attach w1 101 memory_bytes: 5   a process of worker w1; of its registration
//   submit group train.steps=9      a job over group | N stages | infer N
//   members 3                       w1, w2, w3 train a job; others: members 3
//                                   aggregation.members=2, pipeline, shared
//   run | prepare | done w1 [STEP]  its next heartbeats say so
//   say w1                          the same again
//   level w1 STEP                   ... that it has all of the state by now
//   beat w1 steps { step: 3 }       ... with more in it
//   hold w1 w2 25 45                ... the pieces of these steps' cuts
//   idle w1 w2                      heartbeats without a run
//   link w1 w2 broken MS            what w1 says of w2; also owes MS | refused
//                                   | ok
//   differ w1 17 w1=7 w2=8          states that w1 knows of
//   break | silence | hang w1       its stream, its heartbeats, its thread
//   go | stand | train MS           time passes; members work, wait, or step on
//   pass MS w1 w2                   ... with heartbeats of these without a run
//   compute SECONDS a=1 b=2 c       stages compute, those of b twice as long as
//                                   was measured; c sends heartbeats, no more
//   stopped a                       after 7 steps, with the states of layers
//   stuck a                         it runs on whatever it is told
//   later                           another coordinator has what was stored
//   order a | places | nodes        its order, where stages are, all workers
//   look                            what the end of each script tells
//
// The other verbs are called as what they ask of the coordinator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/watch/metrics.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/script.h"

namespace paceline {

class MeshScript final : public Script {
 private:
  using Worker = GroupMesh::Worker;

  // All workers whose names stand from that word on.
  std::vector<StreamId> StreamsAt(size_t i) {
    std::vector<StreamId> streams;
    for (; i < words_.size(); ++i) {
      streams.push_back(mesh_->worker(words_[i]).stream);
    }
    return streams;
  }
  JobSpec SpecAt(size_t i) const { return SpecOfText(Rest(i)); }
  // Plays the beginning without telling it.
  void Begin(const std::string& job) {
    Submit(SubmissionOf(SpecOfText(job)));
    EXPECT_EQ(out_, "");
    Look();
    out_.clear();
  }
  void Submit(const v1::SubmitJobRequest& request) {
    jobs_ = std::max(jobs_, mesh_->Submit(request).value);
    SayOf(mesh_->submit_error());
  }

  // Each is a heartbeat of the worker named first.
  bool DoBeat(const std::string& verb) {
    const std::string name = Word(1);
    if (verb == "say") {
      mesh_->Say(name);
    } else if (verb == "run" || verb == "prepare" || verb == "done") {
      mesh_->worker(name).phase = verb == "run"       ? kRunning
                                  : verb == "prepare" ? kPreparing
                                                      : kDone;
      mesh_->Say(name, Number(2, verb == "done" ? 60 : 0));
    } else if (verb == "level") {
      mesh_->Level(name, Number(2));
    } else if (verb == "beat") {
      v1::Heartbeat heartbeat = mesh_->Beat(name);
      MergeText(Rest(2), heartbeat);
      mesh_->Send(name, heartbeat);
    } else if (verb == "differ") {
      MemberReport& report = mesh_->worker(name).report;
      report.mismatch_step = Number(2);
      for (size_t i = 3; i < words_.size(); ++i) {
        const std::pair<std::string, std::string> hash =
            absl::StrSplit(words_[i], '=');
        report.mismatch[mesh_->Id(hash.first)] = std::stoull(hash.second);
      }
      mesh_->Say(name);
    } else if (verb == "state") {
      mesh_->worker(name).report.state_step = Number(2);
      mesh_->worker(name).report.state_hash = Number(3);
    } else if (verb == "link") {
      PeerReport peer = {mesh_->Id(Word(2))};
      if (Word(3) == "broken") peer.broken = absl::Milliseconds(Number(4));
      if (Word(3) == "owes") peer.owing = absl::Milliseconds(Number(4));
      peer.refused = Word(3) == "refused";
      std::vector<PeerReport>& peers = mesh_->worker(name).report.peers;
      std::erase_if(peers, [&](auto& each) { return each.peer == peer.peer; });
      if (Word(3) != "ok") peers.push_back(peer);
      mesh_->Say(name);
    } else if (verb == "steps") {  // FIRST LAST [skipped] [done]
      const auto phase = Word(words_.size() - 1) == "done" ? kDone : kRunning;
      mesh_->ReportSteps(mesh_->worker(name).stream, phase, Number(2),
                         Number(3), Word(4) == "skipped");
    } else if (verb == "predict") {  // DONE run|done MARKS...
      DoPredict(name, Number(2), Word(3));
    } else {
      return false;
    }
    return true;
  }

  // It has been through `done` of 10 micro-batches of 4 samples, and half of
  // the labels are right.  Marks, up to which all of it is stored, follow.
  void DoPredict(const std::string& name, int64_t done,
                 const std::string& phase) {
    v1::Heartbeat heartbeat =
        mesh_->Mesh::Beat(phase == "done" ? kDone : kRunning, done);
    v1::RunState& run = *heartbeat.mutable_run();
    run.set_steps(10);
    run.set_samples(4 * done);
    run.mutable_flow()->set_micro_batches(done);
    run.mutable_flow()->set_samples(4 * done);
    for (size_t i = 4; i < words_.size(); ++i) {
      v1::PredictedMark& mark = *run.add_predicted();
      mark.set_through(Number(i));
      mark.set_labels(4 * done);
      mark.set_correct(2 * done);
      mark.set_loss(8.0 * static_cast<double>(done));
    }
    if (name == "a") run.set_total_samples(40);  // the first stage's
    mesh_->Send(name, heartbeat);
  }

  // The part of its stage's micro-batches that the plan's place `at` has.
  double ShareOf(size_t at) const {
    const std::vector<StageOfPlan> stages = mesh_->Record().stages;
    double sum = 0;
    for (const StageOfPlan& stage : stages) {
      if (stage.layers == stages[at].layers) sum += stage.share;
    }
    return stages[at].share / sum;
  }

  // Its stages have computed for a second, in `slowness` times the time that
  // was measured.  Of an inference's last stage the predictions are stored.
  void SayTimes(const std::string& name, double slowness) {
    const JobRecord record = mesh_->Record();
    const bool infers = IsInference(record.spec);
    const double layer_seconds = infers ? 0.01 : 0.02;
    const auto all = static_cast<int>(Describe(record.spec)->layers.size());
    const int64_t more =
        infers ? static_cast<int64_t>(1 / layer_seconds / all / slowness) : 20;
    v1::Heartbeat heartbeat = mesh_->Mesh::Beat(kRunning, infers ? 0 : 5);
    v1::RunState& run = *heartbeat.mutable_run();
    run.set_steps(100'000);
    if (infers) run.set_total_samples(100'000);
    for (int i = 0; i < std::ssize(record.stages); ++i) {
      if (mesh_->StageWorker(mesh_->job(), i) != name) continue;
      v1::StageTime& time = *run.add_stage_times();
      const v1::StageTime before = record.job.stage_times_size() > i
                                       ? record.job.stage_times(i)
                                       : v1::StageTime();
      const LayerRange layers = record.stages[i].layers;
      time.set_stage(StageNumbers(record.stages)[i]);
      time.set_micro_batches(before.micro_batches() + more);
      time.set_seconds(before.seconds() + slowness * layer_seconds *
                                              (layers.last - layers.first) *
                                              static_cast<double>(more));
      if (!infers) {
        run.set_timed_steps(record.job.timed_steps() + 1);
        run.set_step_seconds(record.job.timed_seconds() + 1);
      } else if (layers.last == all) {
        run.mutable_flow()->set_micro_batches(time.micro_batches());
        run.mutable_flow()->set_samples(time.micro_batches());
        const auto done = static_cast<double>(time.micro_batches());
        const auto through = record.job.predicted_base().through() +
                             static_cast<int64_t>(done / ShareOf(i));
        for (int64_t mark = 8; mark <= through; mark += 8) {
          run.add_predicted()->set_through(mark);
        }
      }
    }
    mesh_->Send(name, heartbeat);
  }
  void Compute() {
    std::map<std::string, double> slowness;
    std::vector<StreamId> idle;
    for (size_t i = 2; Has(i); ++i) {
      const std::vector<std::string> parts = absl::StrSplit(words_[i], '=');
      if (parts.size() == 1) {
        idle.push_back(mesh_->worker(parts[0]).stream);
      } else {
        slowness[parts[0]] = std::stod(parts[1]);
      }
    }
    for (int64_t second = 0; second < Number(1); ++second) {
      mesh_->Mesh::Pass(1000, idle);
      for (const auto& [name, times] : slowness) SayTimes(name, times);
    }
  }
  void Stopped(const std::string& name) {
    v1::Heartbeat heartbeat = mesh_->Mesh::Beat(kStopped, 7);
    heartbeat.mutable_run()->set_stopped_at(7);
    heartbeat.mutable_run()->clear_steps();
    v1::PiecesHeld::OfJob& held = *heartbeat.mutable_pieces()->add_jobs();
    held.set_job(mesh_->job().value);
    *held.add_cuts() = WholeCut({heartbeat.run().attempt(), 7});
    mesh_->Send(name, heartbeat);
  }

  bool DoTime(const std::string& verb) {
    if (verb == "compute") {
      Compute();
    } else if (verb == "stopped") {
      Stopped(Word(1));
    } else if (verb == "go" || verb == "stand") {
      mesh_->Pass(Number(1), /*progress=*/verb == "go");
    } else if (verb == "pass") {
      mesh_->Mesh::Pass(Number(1), StreamsAt(2));
    } else if (verb == "train") {
      for (int64_t ms = 0; ms < Number(1); ms += 50) {
        for (auto& [name, worker] : mesh_->workers()) {
          if (worker.silent || !worker.stream.assigned()) continue;
          if (worker.hangs) {
            mesh_->Say(name);
          } else {
            mesh_->Say(name, worker.report.next + 1);
          }
        }
        mesh_->Mesh::Pass(50);
      }
    } else if (verb == "later") {
      mesh_.reset(new GroupMesh(Later(*mesh_)));
      seen_weights_ = seen_checkpoints_ = seen_ends_ = seen_exports_ = 0;
      seen_events_.clear();
    } else {
      return false;
    }
    return true;
  }

  bool DoMesh(const std::string& verb) {
    const std::string name = Word(1);
    if (verb == "attach") {
      mesh_->Attach(name, Number(2), Rest(3));
      SayOf(mesh_->last_attach());
    } else if (verb == "dial") {  // attaches, and says nothing yet
      Worker& worker = mesh_->worker(name);
      worker.stream =
          mesh_->Mesh::Attach(WorkerNamed(name, worker.incarnation));
    } else if (verb == "members") {
      mesh_->AttachAll(static_cast<int>(Number(1)));
      Begin("group " + Rest(2));
      mesh_->SayAll(0);
      mesh_->SayAll(3);
    } else if (verb == "pipeline" || verb == "shared") {
      const int stages = static_cast<int>(Number(1, 3));
      for (int i = 0; i < stages; ++i) {
        mesh_->Attach(std::string(1, static_cast<char>('a' + i)), 1 + i);
      }
      if (verb == "shared") {
        Begin(
            "infer 0 pipeline.cuts=2; pipeline.workers=a,b,c; "
            "pipeline.replicas=1,2; pipeline.shares=1,1,3");
      } else {
        Begin(Rest(1));
        mesh_->SayAll(1);
      }
    } else if (verb == "measured") {
      stored_.measurements.Put(ProfileOf(SpecAt(3), name, std::stod(Word(2))));
      mesh_ = std::make_unique<GroupMesh>(stored_);
    } else if (verb == "all") {
      mesh_->SayAll(Number(1));
    } else if (verb == "idle") {
      for (const StreamId stream : StreamsAt(1)) {
        SayOf(mesh_->Mesh::Send(stream, v1::Heartbeat()));
      }
    } else if (verb == "send") {  // this heartbeat and no more
      SayOf(mesh_->Mesh::Send(mesh_->worker(name).stream,
                              Parse<v1::Heartbeat>(Rest(2))));
    } else if (verb == "break") {
      mesh_->Break(name);
    } else if (verb == "silence" || verb == "speak") {
      mesh_->worker(name).silent = verb == "silence";
    } else if (verb == "hang") {
      mesh_->worker(name).hangs = true;
      mesh_->worker(name).report.turn = 9;
    } else if (verb == "stuck") {
      v1::Heartbeat heartbeat = mesh_->Beat(name);
      heartbeat.mutable_echo()->set_term(1);
      mesh_->worker(name).stuck_in = heartbeat;
    } else if (verb == "leave" || verb == "restart") {
      mesh_->Leave(mesh_->worker(name).stream, verb == "restart");
      Say(absl::StrCat("acknowledged: ", mesh_->acks().back().sequence));
    } else if (verb == "drain" || verb == "undrain") {
      SayOf(mesh_->Drain(name, verb == "drain").status());
    } else if (verb == "forget") {
      SayOf(mesh_->Forget(name).status());
    } else if (verb == "clock-back") {
      mesh_->SetWallClockBack(Number(1));
    } else {
      return false;
    }
    return true;
  }

  bool DoJob(const std::string& verb) {
    if (verb == "submit") {
      Submit(SubmissionOf(SpecAt(1)));
    } else if (verb == "resume" || verb == "resume-changed") {  // JOB STEP JOB
      v1::SubmitJobRequest request = SubmissionOf(SpecAt(3));
      request.mutable_resume()->set_job(Number(1));
      request.mutable_resume()->set_step(Number(2));
      request.mutable_resume()->set_accept_changed_data(verb != "resume");
      Submit(request);
    } else if (verb == "notes") {
      for (const std::string& note : mesh_->notes()) Say("note: " + note);
    } else if (verb == "stop") {
      SayOf(mesh_->Stop(JobId{Number(1, mesh_->job().value)}));
    } else if (verb == "delete") {
      const absl::Status may = mesh_->brain().CheckDelete(JobId{Number(1)});
      Say(may.ok() ? "it may go" : may.ToString());
    } else if (verb == "saved") {
      mesh_->Saved(kSaved, JobId{Number(1, mesh_->job().value)});
    } else if (verb == "unsaved") {
      mesh_->Saved(StatusAt(1));
    } else if (verb == "shards") {
      Say("shards: " + mesh_->Record().job.estimate().shards_why());
    } else if (verb == "curve") {
      for (const v1::StepRecord& step : mesh_->Curve()) {
        Say(absl::StrCat("loss after step ", step.step(), ": ", step.loss()));
      }
    } else {
      return DoCheckpoint(verb);
    }
    return true;
  }

  // A checkpoint of the first attempt.
  static v1::Checkpoint CheckpointOf(int64_t step) {
    v1::Checkpoint checkpoint;
    checkpoint.mutable_cut()->set_attempt(1);
    checkpoint.mutable_cut()->set_step(step);
    checkpoint.set_bytes(1 << 20);
    return checkpoint;
  }

  v1::PiecesHeld::HeldCut WholeCut(const Cut& at) const {
    v1::PiecesHeld::HeldCut cut;
    *cut.mutable_cut() = ToProto(at);
    cut.add_layers()->set_last(
        static_cast<int>(Describe(mesh_->Record().spec)->layers.size()));
    return cut;
  }

  // The named workers run, and hold all pieces of the named steps' cuts, which
  // are of the present attempt or "ATTEMPT/STEP".
  void Hold() {
    std::vector<std::string> names;
    v1::PiecesHeld held;
    int64_t step = 0;
    for (size_t i = 1; i < words_.size(); ++i) {
      const std::vector<std::string> parts = absl::StrSplit(words_[i], '/');
      if (!absl::SimpleAtoi(parts.back(), &step)) {
        names.push_back(words_[i]);
        continue;
      }
      const int64_t attempt = parts.size() > 1 ? std::stoll(parts[0])
                                               : mesh_->Record().job.attempt();
      if (held.jobs().empty()) held.add_jobs();
      *held.mutable_jobs(0)->add_cuts() = WholeCut({attempt, step});
    }
    for (const std::string& name : names) {
      mesh_->worker(name).phase = kRunning;
      mesh_->worker(name).report.next = step;
      v1::Heartbeat heartbeat = mesh_->Beat(name);
      *heartbeat.mutable_pieces() = held;
      for (auto& of_job : *heartbeat.mutable_pieces()->mutable_jobs()) {
        of_job.set_job(heartbeat.has_run() ? heartbeat.run().job()
                                           : mesh_->job().value);
      }
      mesh_->Send(name, heartbeat);
    }
  }

  // Other processes of a and b, which hold nothing, take part in the next
  // attempt: later than lost processes may take to come back.
  void LoseAll() {
    mesh_->Attach("a", 11);
    mesh_->Attach("b", 12);
    const std::vector<StreamId> streams = {mesh_->worker("a").stream,
                                           mesh_->worker("b").stream};
    v1::Heartbeat empty;
    empty.mutable_pieces();
    for (int i = 0; i < 500 && !mesh_->Run("a").has_value(); ++i) {
      mesh_->Mesh::Pass(50);
      for (const StreamId stream : streams) {
        SayOf(mesh_->Mesh::Send(stream, empty));
      }
    }
  }

  bool DoCheckpoint(const std::string& verb) {
    const JobId job = mesh_->job();
    if (verb == "hold") {
      Hold();
    } else if (verb == "make") {  // STEP: a checkpoint of it
      words_ = {"hold", "a", "b", Word(1)};
      Hold();
      mesh_->CheckpointFetched(CheckpointOf(Number(3)));
      mesh_->CheckpointKept(absl::OkStatus());
    } else if (verb == "lose-all") {
      LoseAll();
    } else if (verb == "fetched") {
      mesh_->CheckpointFetched(CheckpointOf(Number(1)));
    } else if (verb == "unfetched") {
      mesh_->CheckpointFetched(StatusAt(1));
    } else if (verb == "kept") {
      mesh_->CheckpointKept(absl::OkStatus());
    } else if (verb == "damaged") {  // by JOB, of STEP of the first job
      mesh_->CheckpointDamaged(JobId{Number(1)}, {job, Number(2)}, StatusAt(3));
    } else if (verb == "find") {  // JOB ATTEMPT STEP
      const auto found = mesh_->brain().checkpoints().Find(
          JobId{Number(1)}, {Number(2), Number(3)});
      Say(found.ok() ? absl::StrCat("checkpoint: step ", found->step,
                                    " of job ", found->job.value)
                     : found.status().ToString());
    } else if (verb == "counts") {
      const auto counts = mesh_->brain().checkpoints().counts();
      Say(absl::StrCat("checkpoints kept: ", counts.kept,
                       ", failed: ", counts.failed));
    } else if (verb == "export") {
      const auto answer = mesh_->Export(job);
      Say(!answer.ok() ? answer.status().ToString()
          : !answer->has_value()
              ? "the export waits"
              : absl::StrCat("the export is of step ", (*answer)->step));
    } else {
      return false;
    }
    return true;
  }

  // --- what is measured -----------------------------------------------------

  void SayAsked(const absl::StatusOr<v1::StartProfileResponse>& ticket) {
    Say(ticket.ok() ? "asked: " + ticket->ShortDebugString()
                    : ticket.status().ToString());
  }
  void Answer(const std::string& name, v1::Measurement measurement) {
    measurement.set_id(
        mesh_->Order(mesh_->worker(name).stream).rest.measure().id());
    v1::Heartbeat heartbeat;
    *heartbeat.mutable_measurement() = std::move(measurement);
    SayOf(mesh_->Mesh::Send(mesh_->worker(name).stream, heartbeat));
  }
  // Layer i of the job's model takes i ms each way, as of 1.
  static v1::DeviceProfile GrowingProfileOf(const JobSpec& spec,
                                            const std::string& device) {
    DeviceProfile profile = ProfileOf(spec, device, 0);
    double seconds = 0;
    for (LayerMeasurement& layer : profile.layers) {
      seconds += 1e-3;
      layer.forward = layer.backward = {seconds, 0, seconds};
    }
    return ToProto(profile);
  }
  void LookAtMeasures() {
    for (const auto& [name, worker] : mesh_->workers()) {
      const v1::MeasureOrder& order =
          mesh_->Order(worker.stream).rest.measure();
      if (order.id() == 0) continue;
      if (order.has_link()) {
        Say(absl::StrCat(name, " dials ", order.link().name()));
      } else if (order.has_layers()) {
        const v1::ModelSpec& model = order.layers().spec().model();
        Say(absl::StrCat(name, " measures ", model.name(), " ", model.file()));
      } else {
        const v1::MeasureFiles& files = order.files();
        Say(absl::StrCat(name, " looks for ", absl::StrJoin(files.paths(), " "),
                         files.has_spec() ? " as a job does, with " : "",
                         files.inputs().ShortDebugString()));
      }
    }
  }

  bool DoMeasure(const std::string& verb) {
    const std::string name = Word(1);
    if (verb == "ask" || verb == "ask-links") {  // WORKERS or -, JOB
      std::vector<std::string> workers;
      if (name != "-") workers = absl::StrSplit(name, ',');
      SayAsked(mesh_->Profile(SpecAt(2), workers, verb == "ask-links"));
    } else if (verb == "ask-files") {  // HOW MANY, and the job that reads them
      v1::StartProfileRequest request;
      for (int64_t i = 0; i < Number(1); ++i) request.add_files("/data");
      if (words_.size() > 2) {
        *request.mutable_spec() = ToProto(SpecAt(2));
        request.mutable_inputs()->set_contents(5);
      }
      SayAsked(mesh_->Profile(request));
    } else if (verb == "answer") {
      Answer(name, Parse<v1::Measurement>(Rest(2)));
    } else if (verb == "profiled") {  // by a worker: of DEVICE, for JOB
      v1::Measurement measurement;
      *measurement.mutable_profile() = GrowingProfileOf(SpecAt(3), Word(2));
      Answer(name, std::move(measurement));
    } else if (verb == "orders") {
      LookAtMeasures();
    } else if (verb == "measurements") {
      const v1::ListMeasurementsResponse measured = mesh_->Measured("");
      for (const auto& profile : measured.profiles()) {
        Say("measured: layers on " + profile.device());
      }
      for (const auto& link : measured.links()) {
        Say("measured: " + link.ShortDebugString());
      }
    } else if (verb == "progress") {
      v1::GetProfileRequest request;
      request.set_id(Number(1));
      const auto view = mesh_->brain().ViewProfile(request, mesh_->Now().now);
      Say(view.ok() ? "progress: " + view->ShortDebugString()
                    : view.status().ToString());
    } else if (verb == "stages") {
      for (const StageOfPlan& stage : mesh_->Record().stages) {
        Say(absl::StrCat("a stage of layers ", stage.layers.first, " to ",
                         stage.layers.last));
      }
      EXPECT_TRUE(mesh_->Record().job.has_estimate());
    } else {
      return false;
    }
    return true;
  }

  // Tells what of an order LookAtWorkers() leaves out.
  void LookAtOrder(const std::string& name) {
    const RunOrder run = *mesh_->Run(name);
    std::string text = absl::StrCat(name, ": ", run.cpu_capability,
                                    ", threads ", run.threads, ", stages");
    for (const StagePlacement& stage : run.stages) {
      absl::StrAppend(&text, " ", stage.stage, "[", stage.layers.first, ",",
                      stage.layers.last, ") on ", NameOf(stage.worker), " at ",
                      stage.address);
      if (stage.share != 1) absl::StrAppend(&text, " share ", stage.share);
    }
    for (const RouteTable& route : run.routes) {
      absl::StrAppend(&text, ", turns ", absl::StrJoin(route.turns(), " "));
    }
    if (run.group.has_value()) {
      absl::StrAppend(&text, ", ", NameOf(run.group->uploader.worker),
                      " uploads");
      for (const GroupWorker& worker : run.group->workers) {
        absl::StrAppend(&text, ", ", worker.name, " at ", worker.address);
      }
    }
    for (const FaultSpec& fault : run.spec.faults) {
      absl::StrAppend(&text, ", fault ", fault.kind, " of ", fault.worker);
    }
    Say(text);
  }
  void LookAtPlaces() {
    const std::vector<StageOfPlan> stages = mesh_->Record().stages;
    for (size_t i = 0; i < stages.size(); ++i) {
      Say(absl::StrCat(
          "layers ", stages[i].layers.first, " to ", stages[i].layers.last,
          " on ", mesh_->StageWorker(mesh_->job(), i), ", share ", ShareOf(i)));
    }
  }
  void LookAtNodes() {
    for (const v1::Worker& view : mesh_->ViewWorkers()) {
      Say(absl::StrCat(view.registration().name(), " is ",
                       WorkerStateName(view.state()), ", job ", view.job(),
                       ", stages ", absl::StrJoin(view.stages(), " "),
                       view.drained() ? ", drained" : ""));
    }
  }

  bool Do(const std::string& verb) override {
    if (verb == "order") {
      LookAtOrder(Word(1));
    } else if (verb == "places") {
      LookAtPlaces();
    } else if (verb == "nodes") {
      LookAtNodes();
    } else {
      return DoEvent(verb);
    }
    return true;
  }
  bool DoEvent(const std::string& verb) {
    return DoBeat(verb) || DoTime(verb) || DoMesh(verb) || DoJob(verb) ||
           DoMeasure(verb);
  }

  // --- what it tells --------------------------------------------------------

  static std::string CutOf(const Cut& cut) {
    return absl::StrCat("step ", cut.step, " of attempt ", cut.attempt);
  }

  std::string MembersOf(const View& view) {
    return absl::StrJoin(view.members, " ", [&](std::string* out, auto& each) {
      absl::StrAppend(out, NameOf(each.id.worker));
      if (each.share != 1) absl::StrAppend(out, " (share ", each.share, ")");
      if (each.from_step > 0) {
        absl::StrAppend(out, " (from step ", each.from_step, ")");
      }
    });
  }
  std::string NameOf(WorkerId id) {
    for (const auto& [name, worker] : mesh_->workers()) {
      if (worker.id == id.value) return name;
    }
    return "?";
  }

  std::string RunOf(const std::string& name, const RunOrder& run) {
    std::string text = absl::StrCat("job ", run.fence.job.value, " attempt ",
                                    run.fence.attempt);
    if (run.base != Cut()) {
      absl::StrAppend(&text, " from ", CutOf(run.base));
    }
    if (run.group.has_value()) {
      const View& view = run.group->view;
      absl::StrAppend(&text,
                      Contains(view, mesh_->Id(name)) ? ", member of view "
                                                      : ", listens to view ",
                      ViewText(view.id), ": ", MembersOf(view));
      if (run.group->workers.size() > view.members.size()) {
        absl::StrAppend(
            &text, "; may send: ",
            absl::StrJoin(run.group->workers, " ",
                          [](std::string* out, const GroupWorker& each) {
                            absl::StrAppend(out, each.name);
                          }));
      }
      if (run.spec.aggregation.shards > 1) {
        absl::StrAppend(&text, "; ", run.spec.aggregation.shards, " shards");
      }
    } else {
      absl::StrAppend(
          &text, ", stages on ",
          absl::StrJoin(run.stages, " ",
                        [](std::string* out, const StagePlacement& each) {
                          absl::StrAppend(out, each.worker_name);
                          if (each.address == each.worker_name + ":7401")
                            return;
                          absl::StrAppend(out, " at ", each.address);
                        }));
    }
    if (!run.sources.empty() &&
        std::all_of(run.sources.begin(), run.sources.end(), [](auto& source) {
          return source.holder == kCoordinatorProcess && source.address.empty();
        })) {
      absl::StrAppend(&text, ", pieces of the coordinator");
    }
    if (mesh_->worker(name).phase == kDone && run.group.has_value()) {
      absl::StrAppend(&text, "; ", NameOf(run.group->uploader.worker),
                      " uploads");
    }
    if (run.inputs.ByteSizeLong() > 0) {
      absl::StrAppend(&text, ", ", run.inputs.ShortDebugString());
    }
    if (run.stop_after_batch) absl::StrAppend(&text, ", to stop");
    if (run.evaluated) absl::StrAppend(&text, ", evaluated");
    if (run.trained) absl::StrAppend(&text, ", trained");
    if (run.skipped_in_row > 0) {
      absl::StrAppend(&text, ", ", run.skipped_in_row, " skipped in a row");
    }
    return text;
  }

  std::string OrderOf(const std::string& name, const Worker& worker) {
    if (!worker.stream.assigned()) return "away";
    if (mesh_->Orders(worker.stream) == 0) return "has no order";
    const StandingOrder& order = mesh_->Order(worker.stream);
    std::string text =
        order.run.has_value() ? RunOf(name, *order.run) : "no run";
    if (order.rest.renew()) absl::StrAppend(&text, ", to start anew");
    if (!order.rest.settle().empty()) {
      absl::StrAppend(&text, ", to start anew at ", order.rest.settle());
    }
    if (order.rest.released()) absl::StrAppend(&text, ", released");
    for (const v1::KeepOrder& keep : order.rest.keep()) {
      for (const v1::Cut& pin : keep.pins()) {
        absl::StrAppend(&text, ", pins ", CutOf(Taken<Cut>(pin)));
      }
    }
    return text;
  }

  std::string StateOf(const std::string& name) {
    for (const v1::Worker& view : mesh_->ViewWorkers()) {
      if (view.registration().name() != name) continue;
      const bool usual = view.state() == v1::WORKER_STATE_IDLE ||
                         view.state() == v1::WORKER_STATE_BUSY;
      return absl::StrCat(
          usual ? "" : " (" + WorkerStateName(view.state()) + ")",
          view.drained() ? " (drained)" : "");
    }
    return " (forgotten)";
  }

  void LookAtWorkers() {
    std::vector<std::pair<std::string, std::string>> lines;  // text, names
    for (const auto& [name, worker] : mesh_->workers()) {
      const std::string text = OrderOf(name, worker);
      const auto same =
          std::find_if(lines.begin(), lines.end(),
                       [&](const auto& line) { return line.first == text; });
      const std::string named = name + StateOf(name);
      if (same == lines.end()) {
        lines.emplace_back(text, named);
      } else {
        absl::StrAppend(&same->second, " ", named);
      }
    }
    for (const auto& [text, names] : lines) Say(names + ": " + text);
  }

  void LookAtJob(JobId id) {
    if (!mesh_->brain().FindRecord(id).ok()) return;
    const v1::Job job = mesh_->Job(id);
    std::string text =
        absl::StrCat("job ", id.value, ": ", JobStateName(mesh_->State(id)));
    if (!job.phase().empty()) absl::StrAppend(&text, ", ", job.phase());
    absl::StrAppend(&text, ", step ", job.step());
    if (job.has_loss()) absl::StrAppend(&text, ", loss ", job.loss());
    if (job.has_accuracy()) {
      absl::StrAppend(&text, ", accuracy ", job.accuracy());
    }
    const v1::Job record = mesh_->Record(id).job;
    if (record.recorded_step() > 0) {
      absl::StrAppend(&text, ", recorded ", record.recorded_step());
    }
    if (record.skipped_steps() > 0) {
      absl::StrAppend(&text, ", ", record.skipped_steps(), " skipped");
    }
    if (record.predicted().through() > 0) {
      absl::StrAppend(&text, ", stored ", record.predicted().through());
    }
    if (job.conflict().rounds() > 0) {
      absl::StrAppend(&text, ", cosine ", job.conflict().cosine(), " of ",
                      job.conflict().rounds(), " rounds, the last ",
                      job.conflict().step());
    }
    for (const v1::Checkpoint& kept : job.checkpoints()) {
      absl::StrAppend(&text, ", checkpoint ", kept.cut().step());
    }
    if (!job.why().empty()) absl::StrAppend(&text, "; ", job.why());
    Say(text);
    const std::vector<std::string> story = mesh_->Story(id);
    size_t& seen = seen_events_[id];
    for (; seen < story.size(); ++seen) {
      const std::string kind = story[seen].substr(0, story[seen].find(':'));
      if (kind == "placed" || kind == "running") continue;
      if (kind == "submitted" && !job.has_resumed()) continue;
      Say("  " + story[seen]);
    }
  }

  // Names the holders of the last layer, and the job's inputs if they are
  // known.
  static std::string HoldersOf(const CheckpointOrder& order) {
    return absl::StrCat(
        ", layer ", order.holders.size(), " from ",
        absl::StrJoin(order.holders.back(), " ",
                      [](std::string* out, const PieceHolder& holder) {
                        absl::StrAppend(out, holder.address);
                      }),
        order.manifest.inputs().ByteSizeLong() > 0 ? ", of a job that reads "
                                                   : "",
        order.manifest.inputs().ShortDebugString());
  }

  void LookAtActions() {
    using Weights = Actions::Weights::Kind;
    for (; seen_weights_ < mesh_->weights().size(); ++seen_weights_) {
      const Actions::Weights& todo = mesh_->weights()[seen_weights_];
      const size_t tensors = todo.layout.tensors.size();
      Say(absl::StrCat(
          todo.kind == Weights::kOpen   ? "weights: open"
          : todo.kind == Weights::kSave ? "weights: save"
                                        : "weights: forget",
          tensors > 0 ? absl::StrCat(" with ", tensors, " tensors") : ""));
    }
    using Kind = Actions::Checkpoint::Kind;
    for (; seen_checkpoints_ < mesh_->checkpoints().size();
         ++seen_checkpoints_) {
      const Actions::Checkpoint& todo = mesh_->checkpoints()[seen_checkpoints_];
      const v1::Cut& cut = todo.order.manifest.cut();
      if (todo.kind == Kind::kFetch) {
        Say("checkpoint: fetch " + CutOf({cut.attempt(), cut.step()}) +
            HoldersOf(todo.order));
      } else if (todo.kind == Kind::kKeep) {
        Say(absl::StrCat("checkpoint: keep ", todo.id.step));
      } else {
        Say("checkpoint: retain " + absl::StrJoin(todo.steps, " "));
      }
    }
    for (; seen_exports_ < mesh_->exports().size(); ++seen_exports_) {
      const auto& answer = mesh_->exports()[seen_exports_];
      Say(answer.ok() ? absl::StrCat("an export gets step ", answer->step)
                      : "an export fails: " + answer.status().ToString());
    }
    for (; seen_ends_ < mesh_->ends().size(); ++seen_ends_) {
      Say("a stream ends: " + mesh_->ends()[seen_ends_].status.ToString());
    }
  }

  void Look() override {
    for (int64_t id = 1; id <= jobs_; ++id) LookAtJob(JobId{id});
    LookAtWorkers();
    LookAtActions();
  }

  StoredState stored_;
  std::unique_ptr<GroupMesh> mesh_ = std::make_unique<GroupMesh>();
  int64_t jobs_ = 0;
  std::map<JobId, size_t> seen_events_;
  size_t seen_weights_ = 0;
  size_t seen_checkpoints_ = 0;
  size_t seen_exports_ = 0;
  size_t seen_ends_ = 0;
};

}  // namespace paceline
