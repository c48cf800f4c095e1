#include "client/render/report.h"

#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"
#include "core/rpc/convert/job_convert.h"

namespace paceline {
namespace {

// The parts of a time split, in the order of a table's columns.
struct SplitPart {
  const char* title;
  double (v1::TimeSplit::*seconds)() const;
};
constexpr SplitPart kSplitParts[] = {
    {">fwd %", &v1::TimeSplit::forward},
    {">bwd %", &v1::TimeSplit::backward},
    {">eval %", &v1::TimeSplit::evaluation},
    {">send %", &v1::TimeSplit::send},
    {">wait %", &v1::TimeSplit::receive_wait},
    {">gate %", &v1::TimeSplit::aggregate},
    {">opt %", &v1::TimeSplit::optimizer},
    {">save %", &v1::TimeSplit::snapshot},
    {">data %", &v1::TimeSplit::data},
    {">orders %", &v1::TimeSplit::orders},
    {">other %", &v1::TimeSplit::unexplained},
};

// Updates between the weights of a gradient and those it changed, mean.
double MeanStaleness(const v1::StageVersions& stage) {
  return static_cast<double>(stage.staleness()) /
         static_cast<double>(std::max<int64_t>(stage.updates(), 1));
}

std::optional<double> TestAccuracy(const v1::Job& job) {
  if (job.evaluations().empty()) return std::nullopt;
  return job.evaluations().rbegin()->accuracy();
}

// The value; empty where it is not known.
template <typename T>
std::string TextIf(bool known, const T& value) {
  return known ? absl::StrCat(value) : "";
}

// Micro-batches that were computed in this attempt for entry `i` of the drift;
// 0: none yet.
int64_t MicroBatchesOf(const v1::Job& job, int i) {
  return i < job.stage_times_size() ? job.stage_times(i).micro_batches() : 0;
}

// --- documents --------------------------------------------------------------

Document LatencyDocument(const v1::Job& job) {
  const std::optional<v1::FlowTimes> flow = ResultFlow(job);
  if (!flow.has_value() || !IsInference(job)) return Document();
  return {{"p50", flow->latency_p50()},
          {"p99", flow->latency_p99()},
          {"max", flow->latency_max()}};
}

Document MemberDocument(const v1::JobMember& member) {
  Document document = FieldsDocument(member, "view listens state_step");
  document["steps"] = member.next();
  // As text: a number of 64 bits is none in JavaScript.  Null: it has said none
  // yet, or the states are not equal anyway (gossip).
  document["state_hash"] = NullUnless(
      member.state_hash() != 0, absl::StrFormat("%016x", member.state_hash()));
  return document;
}

Document WorkerDocument(const v1::JobWorker& worker) {
  const auto placement = [](const v1::StagePlacement& stage) {
    return FieldsDocument(stage, "stage first_layer last_layer share");
  };
  const v1::RunState& run = worker.run();
  int64_t sent_bytes = 0;
  for (const v1::SentBytes& sent : run.sent()) sent_bytes += sent.bytes();
  Document document = FieldsDocument(worker, "id name predicted_memory_bytes?");
  document.update(FieldsDocument(
      run, "flow peak_memory_bytes? update_bytes? energy_joules?"));
  document.update(
      {{"stages", ListOf(worker.stages(),
                         [](const auto& stage) { return stage.stage(); })},
       {"placements", ListOf(worker.stages(), placement)},
       {"seconds", MessageDocument(run.seconds())},
       {"sent_bytes", OrNull(sent_bytes)},
       {"member",
        worker.has_member() ? MemberDocument(worker.member()) : Document()}});
  return document;
}

Document LossDocument(const v1::StepRecord& point) {
  Document entry = {{"step", point.step()}, {"value", point.loss()}};
  if (point.unix_ms() != 0) entry["unix_ms"] = point.unix_ms();
  if (point.skipped()) entry["skipped"] = true;
  return entry;
}

Document DriftOfStage(const v1::StageDrift& stage) {
  Document document = FieldsDocument(
      stage,
      "stage worker_id predicted_seconds? measured_seconds? layer_seconds?");
  document["measured_over_predicted"] =
      NullUnless(stage.predicted_seconds() > 0,
                 stage.measured_seconds() / stage.predicted_seconds());
  return document;
}

// "step 40 of job 7"; empty: from the beginning.
std::string ResumedText(const v1::Job& job) {
  if (!job.has_resumed()) return "";
  return absl::StrCat("step ", job.resumed().step(), " of job ",
                      job.resumed().job());
}

std::string CheckpointsText(const v1::Job& job) {
  return Joined(job.checkpoints(), ", ", [](const v1::Checkpoint& each) {
    return absl::StrCat("step ", each.cut().step());
  });
}

Document DriftDocument(const v1::Job& job) {
  Document list = ListOf(job.drift(), DriftOfStage);
  for (int i = 0; i < job.drift_size(); ++i) {
    list[i]["micro_batches"] = OrNull(MicroBatchesOf(job, i));
  }
  return list;
}

Document VersionsDocument(const v1::Job& job) {
  Document list = ListOf(job.versions(), MessageDocument);
  for (int i = 0; i < job.versions_size(); ++i) {
    list[i]["staleness"] = MeanStaleness(job.versions(i));
  }
  return list;
}

// --- text -------------------------------------------------------------------

// Milliseconds; empty where no result is there yet.
std::string LatencyText(const v1::Job& job) {
  const std::optional<v1::FlowTimes> flow = ResultFlow(job);
  if (!flow.has_value() || !IsInference(job)) return "";
  return absl::StrFormat("p50 %.1f ms, p99 %.1f ms", 1e3 * flow->latency_p50(),
                         1e3 * flow->latency_p99());
}

// "0-3": from the first layer to the last one, as plans have it.
std::string Layers(const v1::JobWorker& worker) {
  return Joined(worker.stages(), ",", [](const v1::StagePlacement& stage) {
    return absl::StrCat(stage.first_layer(), "-", stage.last_layer() - 1);
  });
}

std::string Steps(const v1::Job& job) {
  if (job.steps() == 0) return job.step() == 0 ? "-" : absl::StrCat(job.step());
  return absl::StrCat(job.step(), "/", job.steps());
}

// "20/20 steps", "25/25 micro-batches"; "-" before the first.
std::string Done(const v1::Job& job) {
  if (job.steps() == 0 && job.step() == 0) return "-";
  return absl::StrCat(Steps(job), " ", StepName(job),
                      job.step() == 1 && job.steps() <= 1 ? ""
                      : IsInference(job)                  ? "es"
                                                          : "s");
}

std::string Accuracy(const v1::Job& job) {
  const auto accuracy = TestAccuracy(job);
  return accuracy.has_value() ? HumanLoss(*accuracy) : "";
}

std::string Elapsed(const v1::Job& job) {
  if (job.started_unix_ms() == 0 || job.ended_unix_ms() == 0) return "";
  // A clock may have been set back meanwhile.
  return HumanDuration(std::max(
      absl::ZeroDuration(),
      absl::Milliseconds(job.ended_unix_ms() - job.started_unix_ms())));
}

std::string Rate(const v1::Job& job) {
  const double rate = job.samples_per_second();
  return rate > 0 ? HumanRate(rate) : "";
}

std::string PipelineText(const v1::Job& job, JobSpec spec) {
  if (job.shards() > 0) spec.aggregation.shards = job.shards();
  return absl::StrCat(StagesText(StageCount(job)), ", ", ScheduleText(spec));
}

std::string RenderSplit(const v1::Job& job) {
  if (job.workers().empty()) return "";
  std::vector<std::string> titles = {"worker", "stages", "layers", ">wall s"};
  for (const SplitPart& part : kSplitParts) titles.emplace_back(part.title);
  Table table(std::move(titles));
  for (const v1::JobWorker& worker : job.workers()) {
    const double wall = worker.run().seconds().wall();
    std::vector<std::string> row = {worker.name(), StageNumbers(worker),
                                    Layers(worker),
                                    absl::StrFormat("%.1f", wall)};
    for (const SplitPart& part : kSplitParts) {
      const double seconds = (worker.run().seconds().*part.seconds)();
      row.push_back(wall > 0 ? absl::StrFormat("%.1f", 100 * seconds / wall)
                             : "-");
    }
    table.AddRow(std::move(row));
  }
  return table.Render();
}

// Adds a predicted value, the measured one and their ratio; "-" for what is not
// known.
template <typename Text>
void AddCompared(const std::string& what, double predicted, double measured,
                 const Text& text, Table& table) {
  const bool both = predicted > 0 && measured > 0;
  table.AddRow(what, predicted > 0 ? text(predicted) : "-",
               measured > 0 ? text(measured) : "-",
               both ? absl::StrFormat("%.2f", measured / predicted) : "-");
}

std::string WorkerName(const v1::Job& job, int64_t id) {
  for (const v1::JobWorker& worker : job.workers()) {
    if (worker.id() == id) return worker.name();
  }
  return absl::StrCat("worker ", id);
}

// A line a stage and one for the step; empty where nothing was predicted or
// measured.
std::string RenderDrift(const v1::Job& job) {
  const double predicted_step = job.estimate().step_seconds();
  if (job.drift().empty() && !(predicted_step > 0) &&
      !(job.step_seconds() > 0)) {
    return "";
  }
  Table table({"time of", ">predicted ms", ">measured ms", ">ratio"});
  const auto add = [&](const std::string& what, double predicted,
                       double measured) {
    const auto milliseconds = [](double seconds) {
      return absl::StrFormat("%.3f", seconds * 1e3);
    };
    AddCompared(what, predicted, measured, milliseconds, table);
  };
  std::map<int, int> replicas;
  for (const v1::StageDrift& stage : job.drift()) ++replicas[stage.stage()];
  for (const v1::StageDrift& stage : job.drift()) {
    add(absl::StrCat(
            "stage ", stage.stage(),
            replicas[stage.stage()] > 1
                ? absl::StrCat(" on ", WorkerName(job, stage.worker_id()))
                : "",
            ", a micro-batch"),
        stage.predicted_seconds(), stage.measured_seconds());
  }
  if (!IsInference(job)) add("a step", predicted_step, job.step_seconds());
  std::string text = table.Render();
  if (!job.estimate().source().empty()) {
    absl::StrAppend(
        &text, "predicted from: ", Printable(job.estimate().source()), "\n");
  }
  if (!job.estimate().shards_why().empty()) {
    absl::StrAppend(&text,
                    ShardsText(job.estimate().shards(),
                               Printable(job.estimate().shards_why())),
                    "\n");
  }
  return text;
}

// A line for each worker of a stage that has several; empty where none has.
std::string RenderReplicas(const v1::Job& job, const JobSpec& spec) {
  if (IsDataParallel(spec)) return "";
  const Placements placed = StagesInOrder(job);
  Table table({">replica of stage", "worker", ">share", ">micro-batches"});
  bool several = false;
  for (int i = 0; i < placed.size(); ++i) {
    const double share = ShareOf(placed, i);
    if (share >= 1) continue;
    several = true;
    int64_t micro_batches = 0;
    for (int d = 0; d < job.drift_size(); ++d) {
      if (job.drift(d).stage() == placed[i].stage() &&
          job.drift(d).worker_id() == placed[i].worker_id()) {
        micro_batches = MicroBatchesOf(job, d);
      }
    }
    table.AddRow(placed[i].stage(), WorkerName(job, placed[i].worker_id()),
                 absl::StrFormat("%.1f %%", 100 * share), micro_batches);
  }
  return several ? table.Render() : "";
}

// A line a worker; empty where nothing was predicted or measured.
std::string RenderMemory(const v1::Job& job) {
  Table table({"memory of", ">predicted", ">peak", ">ratio"});
  bool known = false;
  for (const v1::JobWorker& worker : job.workers()) {
    const auto predicted = static_cast<double>(worker.predicted_memory_bytes());
    const auto peak = static_cast<double>(worker.run().peak_memory_bytes());
    known = known || predicted > 0 || peak > 0;
    AddCompared(worker.name(), predicted, peak, HumanBytes, table);
  }
  return known ? table.Render() : "";
}

std::string RenderVersions(const v1::Job& job) {
  if (job.versions().empty()) return "";
  Table table({">stage", ">updates", ">skipped", ">staleness", ">versions",
               ">weights"});
  for (const v1::StageVersions& stage : job.versions()) {
    table.AddRow(stage.stage(), stage.updates(), stage.skipped_updates(),
                 absl::StrFormat("%.2f", MeanStaleness(stage)),
                 stage.versions(),
                 HumanBytes(static_cast<double>(stage.version_bytes())));
  }
  return absl::StrCat(table.Render(),
                      "staleness: updates between the weights of a gradient "
                      "and those it changed, mean\n");
}

// Inference has one evaluation, which belongs to no step.
std::string RenderEvaluations(const v1::Job& job) {
  if (job.evaluations().empty()) return "";
  const bool steps = !IsInference(job);
  std::vector<std::string> titles = {">test loss", ">accuracy", ">samples"};
  if (steps) titles.insert(titles.begin(), ">step");
  Table table(std::move(titles));
  for (const v1::EvaluationRecord& evaluation : job.evaluations()) {
    std::vector<std::string> row = {HumanLoss(evaluation.loss()),
                                    HumanLoss(evaluation.accuracy()),
                                    absl::StrCat(evaluation.samples())};
    if (steps) row.insert(row.begin(), absl::StrCat(evaluation.step()));
    table.AddRow(std::move(row));
  }
  return table.Render();
}

// Null for a pipeline, and while the number is not settled.
Document ShardsDocument(const JobSpec& spec, int32_t settled) {
  return IsDataParallel(spec)
             ? OrNull(settled > 0 ? settled : spec.aggregation.shards)
             : Document();
}

}  // namespace

std::string ClockText(int64_t unix_ms) {
  return absl::FormatTime("%H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

bool IsInference(const v1::Job& job) { return job.spec().kind() == kInferKind; }

std::string StepName(const v1::Job& job) {
  return IsInference(job) ? "micro-batch" : "step";
}

std::string ResultName(const v1::Job& job) {
  return IsInference(job) ? "predictions" : "weights";
}

std::optional<v1::FlowTimes> ResultFlow(const v1::Job& job) {
  return FlowOf(job, StageCount(job) - 1);
}

std::optional<v1::FlowTimes> FlowOf(const v1::Job& job, int stage) {
  std::optional<v1::FlowTimes> sum;
  double weighted_p50 = 0;
  for (const v1::JobWorker& worker : job.workers()) {
    const v1::FlowTimes& flow = worker.run().flow();
    if (flow.micro_batches() == 0) continue;
    for (const v1::StagePlacement& each : worker.stages()) {
      if (each.stage() != stage) continue;
      weighted_p50 +=
          static_cast<double>(flow.micro_batches()) * flow.latency_p50();
      if (!sum.has_value()) {
        sum = flow;
        continue;
      }
      sum->set_micro_batches(sum->micro_batches() + flow.micro_batches());
      sum->set_samples(sum->samples() + flow.samples());
      sum->set_first_unix_us(
          std::min(sum->first_unix_us(), flow.first_unix_us()));
      sum->set_last_unix_us(std::max(sum->last_unix_us(), flow.last_unix_us()));
      sum->set_latency_p99(std::max(sum->latency_p99(), flow.latency_p99()));
      sum->set_latency_max(std::max(sum->latency_max(), flow.latency_max()));
    }
  }
  if (sum.has_value()) {
    sum->set_latency_p50(weighted_p50 /
                         static_cast<double>(sum->micro_batches()));
  }
  return sum;
}

Placements StagesInOrder(const v1::Job& job) {
  Placements stages;
  for (const v1::JobWorker& worker : job.workers()) {
    stages.Add(worker.stages().begin(), worker.stages().end());
  }
  absl::c_stable_sort(stages, [](const auto& a, const auto& b) {
    return a.stage() < b.stage();
  });
  return stages;
}

double ShareOf(const Placements& stages, int i) {
  double sum = 0;
  for (const v1::StagePlacement& stage : stages) {
    if (stage.stage() == stages[i].stage()) sum += stage.share();
  }
  return sum > 0 ? stages[i].share() / sum : 1;
}

std::string ShareText(const Placements& stages, int i) {
  const double share = ShareOf(stages, i);
  if (share >= 1) return "";
  return absl::StrFormat(", %.1f %% of the micro-batches", 100 * share);
}

int StageCount(const PipelineSpec& pipeline) {
  return pipeline.cuts.empty() ? pipeline.stages
                               : static_cast<int>(pipeline.cuts.size()) + 1;
}

int StageCount(const v1::Job& job) {
  int stages = 0;
  for (const v1::JobWorker& worker : job.workers()) {
    for (const v1::StagePlacement& stage : worker.stages()) {
      stages = std::max(stages, stage.stage() + 1);
    }
  }
  return stages > 0 ? stages : StageCount(FromProto(job.spec()).pipeline);
}

// Those that its faults name, and those whose worker is gone.
std::vector<int32_t> SkippedBlocks(const v1::Job& job) {
  std::vector<int32_t> blocks(job.skipped_blocks().begin(),
                              job.skipped_blocks().end());
  for (const v1::FaultSpec& fault : job.spec().faults()) {
    if (fault.kind() == kSkipStage) blocks.push_back(fault.block());
  }
  return blocks;
}

std::string StageNumbers(const v1::JobWorker& worker) {
  return Joined(worker.stages(), ",", &v1::StagePlacement::stage);
}

std::string ShardsText(int32_t shards, const std::string& why) {
  return absl::StrCat("shards: ", shards,
                      why.empty() ? "" : absl::StrCat(" (", why, ")"));
}

std::string ScheduleText(const JobSpec& spec) {
  if (IsDataParallel(spec)) {
    const int32_t shards = spec.aggregation.shards;
    return absl::StrCat(
        "data parallel (", spec.aggregation.mode, ", ", spec.aggregation.rule,
        shards > 0 ? absl::StrCat(", shards: ", shards) : "", ")");
  }
  return IsInference(spec) ? "forward only" : spec.pipeline.schedule;
}

std::string StagesText(int stages) {
  if (stages <= 0) return "stages not chosen yet";
  return Counted(stages, "stage");
}

Document ToDocument(const v1::Job& job, bool with_curve) {
  const JobSpec spec = FromProto(job.spec());
  const auto accuracy = TestAccuracy(job);
  Document document = {
      {"id", job.id()},
      {"name", spec.name},
      {"kind", spec.kind},
      {"state", JobStateName(job.state())},
      {"model", spec.model.name},
      {"data", spec.data.name},
      {"stages", StageCount(job)},
      {"schedule", NullUnless(!IsInference(spec), spec.pipeline.schedule)}};
  document.update(FieldsDocument(
      job,
      "why phase? step steps skipped_steps evaluations weights_path? "
      "weights_sha256? threads cpu_capability samples_per_second estimate "
      "attempt recovery conflict plan_version submitted_unix_ms? "
      "started_unix_ms? ended_unix_ms?"));
  if (with_curve) {
    document["loss"] = ListOf(job.curve(), LossDocument);
    document["curve_stride"] = OrNull(job.curve_stride());
  }
  document.update(
      {{"test_accuracy",
        NullUnless(accuracy.has_value(), accuracy.value_or(0))},
       {"checkpoints",
        ListOf(job.checkpoints(),
               [](const auto& each) { return each.cut().step(); })},
       {"resumed", job.has_resumed() ? FieldsDocument(job.resumed(), "job step")
                                     : Document()},
       {"shards", ShardsDocument(spec, job.shards())},
       {"latency_seconds", LatencyDocument(job)},
       {"drift", DriftDocument(job)},
       {"versions", VersionsDocument(job)},
       {"predicted_step_seconds", OrNull(job.estimate().step_seconds())},
       {"measured_step_seconds", OrNull(job.step_seconds())},
       {"workers", ListOf(job.workers(), WorkerDocument)},
       {"floor_step", NullUnless(job.has_floor_step(), job.floor_step())},
       {"skipped_blocks", SkippedBlocks(job)},
       {"notes", ListOf(job.notes(), Printable)}});
  return document;
}

Document ToDocument(const v1::Worker& worker) {
  const v1::Registration& about = worker.registration();
  Document document =
      FieldsDocument(worker, "id drained job? stages last_heard_seconds");
  document.update(FieldsDocument(
      about,
      "name pid address http_address? machine_id cpu_capability cpu_model "
      "architecture cores memory_bytes data_dirs version"));
  document["state"] = StateText(worker);
  document["scripts"] = !about.no_scripts();
  return document;
}

std::string RenderJobs(const v1::ListJobsResponse& jobs, bool wide) {
  Table table({">id", "name", "kind", "state", ">done", ">accuracy", "+model",
               "+data", "+pipeline", "+workers", "+>samples/s", "submitted",
               "+>took", "why"});
  for (const v1::Job& job : jobs.jobs()) {
    const JobSpec spec = FromProto(job.spec());
    table.AddRow({absl::StrCat(job.id()), spec.name, spec.kind,
                  JobStateName(job.state()), Done(job), Accuracy(job),
                  spec.model.name, spec.data.name, PipelineText(job, spec),
                  Joined(job.workers(), ",", &v1::JobWorker::name), Rate(job),
                  HumanTime(job.submitted_unix_ms()), Elapsed(job),
                  wide ? job.why() : FirstClause(job.why())});
  }
  return table.Render(wide);
}

std::string RecoveryText(const v1::Job& job) {
  const v1::Recovery& recovery = job.recovery();
  if (recovery.recoveries() == 0) return "";
  const std::string step = StepName(job);
  const v1::RecoverySeconds& seconds = recovery.seconds();
  return absl::StrFormat(
      "%s; from %s %d, %s again; detect %.2f s, leave %.2f s, choose %.2f "
      "s, fetch %.2f s, build %.2f s, replay %.2f s",
      recovery.why(), step, recovery.from_step(),
      Counted(recovery.again(), step), seconds.detect(), seconds.leave(),
      seconds.choose(), seconds.fetch(), seconds.build(), seconds.replay());
}

std::string CurveText(const v1::Job& job) {
  if (job.curve_stride() <= 1) return "";
  return absl::StrCat("of steps before the last 10,000 each ",
                      job.curve_stride(), "th is kept");
}

std::string RenderJob(const v1::Job& job, const PlotOptions& plot) {
  const JobSpec spec = FromProto(job.spec());
  std::string state(JobStateName(job.state()));
  if (!job.phase().empty()) absl::StrAppend(&state, " (", job.phase(), ")");
  std::string text = RenderFacts({
      {"job", absl::StrCat(job.id())},
      {"name", spec.name},
      {"kind", spec.kind},
      {"state", state},
      {"why", job.why()},
      {"notes", absl::StrJoin(job.notes(), "; ")},
      {"model", spec.model.name},
      {"data", spec.data.name},
      {"pipeline", PipelineText(job, spec)},
      {IsInference(job) ? "micro-batches" : "step", Steps(job)},
      {"skipped steps", TextIf(job.skipped_steps() > 0, job.skipped_steps())},
      {"loss curve", CurveText(job)},
      {"samples/s", Rate(job)},
      {"latency", LatencyText(job)},
      {"threads", absl::StrCat(job.threads())},
      {"cpu capability", job.cpu_capability()},
      {"submitted", HumanTime(job.submitted_unix_ms())},
      {"took", Elapsed(job)},
      {"attempt", TextIf(job.attempt() > 1, job.attempt())},
      {IsInference(job) ? "stored up to" : "state kept of",
       TextIf(job.has_floor_step(),
              absl::StrCat(StepName(job), " ", job.floor_step()))},
      {"without blocks", absl::StrJoin(SkippedBlocks(job), ", ")},
      {"last recovery", RecoveryText(job)},
      {"test accuracy", Accuracy(job)},
      {"goes on from", ResumedText(job)},
      {"checkpoints", CheckpointsText(job)},
      {ResultName(job), job.weights_path()},
      {"sha256", job.weights_sha256()},
  });
  const std::string curve = PlotLoss(job.curve(), plot);
  if (!curve.empty()) absl::StrAppend(&text, "\nloss\n", curve);
  for (const std::string& part :
       {RenderEvaluations(job), RenderDrift(job), RenderReplicas(job, spec),
        RenderMemory(job), RenderVersions(job), RenderSplit(job)}) {
    if (!part.empty()) absl::StrAppend(&text, "\n", part);
  }
  return text;
}

std::string StateText(const v1::Worker& worker) {
  const v1::WorkerState state = worker.state();
  if (worker.drained() &&
      (state == v1::WORKER_STATE_IDLE || state == v1::WORKER_STATE_BUSY)) {
    return worker.job() > 0 ? "draining" : "drained";
  }
  if (state == 0 || !v1::WorkerState_IsValid(state)) return "unknown";
  return absl::AsciiStrToLower(
      absl::StripPrefix(v1::WorkerState_Name(state), "WORKER_STATE_"));
}

std::string RenderWorkers(const v1::ListWorkersResponse& workers, bool wide) {
  Table table({">id", "name", "state", "address", ">pid", ">job", "stages",
               ">cores", ">memory", "cpu", "+cpu model", "+machine", "+http",
               "+version", ">heard"});
  for (const v1::Worker& worker : workers.workers()) {
    const v1::Registration& about = worker.registration();
    table.AddRow({absl::StrCat(worker.id()), about.name(), StateText(worker),
                  about.address(), absl::StrCat(about.pid()),
                  worker.job() == 0 ? "-" : absl::StrCat(worker.job()),
                  absl::StrJoin(worker.stages(), ","),
                  absl::StrCat(about.cores()),
                  HumanBytes(static_cast<double>(about.memory_bytes())),
                  about.cpu_capability(), about.cpu_model(), about.machine_id(),
                  about.http_address(), about.version(),
                  absl::StrFormat("%.1f s ago", worker.last_heard_seconds())});
  }
  return table.Render(wide);
}

std::string RenderWorker(const v1::Worker& worker) {
  const v1::Registration& about = worker.registration();
  return RenderFacts({
      {"id", absl::StrCat(worker.id())},
      {"name", about.name()},
      {"state", StateText(worker)},
      {"job", TextIf(worker.job() > 0, worker.job())},
      {"stages", absl::StrJoin(worker.stages(), ",")},
      {"heard", absl::StrFormat("%.1f s ago", worker.last_heard_seconds())},
      {"address", about.address()},
      {"http", about.http_address()},
      {"pid", absl::StrCat(about.pid())},
      {"machine id", about.machine_id()},
      {"cpu", about.cpu_model()},
      {"cpu capability", about.cpu_capability()},
      {"architecture", about.architecture()},
      {"cores", absl::StrCat(about.cores())},
      {"memory", HumanBytes(static_cast<double>(about.memory_bytes()))},
      {"jobs may read", absl::StrJoin(about.data_dirs(), ", ")},
      {"scripts", about.no_scripts() ? "forbidden (--no-scripts)" : "allowed"},
      {"version", about.version()},
  });
}

std::string RenderEvent(const v1::JobEvent& event) {
  return absl::StrFormat("%s  %-10s  %s\n", HumanTime(event.unix_ms()),
                         Printable(event.kind()), Printable(event.text()));
}

std::string RenderLogLine(const v1::LogLine& line) {
  return absl::StrFormat("%s  %-5s  %s  %s\n", ClockText(line.unix_ms()),
                         Printable(line.level()), Printable(line.source()),
                         Printable(line.text()));
}

std::string RenderOutcome(const v1::Job& job) {
  std::string text =
      absl::StrCat("job ", job.id(), ": ", JobStateName(job.state()));
  if (const std::string took = Elapsed(job); !took.empty()) {
    absl::StrAppend(&text, " after ", took);
  }
  // Why a job failed is an error, and goes where errors go.
  if (!job.why().empty() && job.state() != v1::JOB_STATE_FAILED) {
    absl::StrAppend(&text, ": ", Printable(job.why()));
  }
  absl::StrAppend(&text, "\n");
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>{"test accuracy", Accuracy(job)},
        {ResultName(job), job.weights_path()},
        {"sha256", job.weights_sha256()}}) {
    if (value.empty()) continue;
    absl::StrAppend(&text, name, ": ", Printable(value), "\n");
  }
  return text;
}

}  // namespace paceline
