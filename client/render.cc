#include "client/render.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/estimate.h"
#include "client/table.h"
#include "client/text.h"

namespace paceline {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

// The parts of a time split in the order of DESIGN 10, under their JSON names.
struct SplitPart {
  const char* name;
  const char* title;
  double TimeSplit::*seconds;
};
constexpr SplitPart kSplitParts[] = {
    {"forward", "fwd %", &TimeSplit::forward},
    {"backward", "bwd %", &TimeSplit::backward},
    {"send", "send %", &TimeSplit::send},
    {"receive_wait", "wait %", &TimeSplit::receive_wait},
    {"aggregate", "gate %", &TimeSplit::aggregate},
    {"optimizer", "opt %", &TimeSplit::optimizer},
    {"snapshot", "save %", &TimeSplit::snapshot},
    {"data", "data %", &TimeSplit::data},
    {"orders", "orders %", &TimeSplit::orders},
    {"unexplained", "other %", &TimeSplit::unexplained},
};

Document UnixMsOrNull(int64_t unix_ms) {
  return unix_ms == 0 ? Document() : Document(unix_ms);
}

Document FlowDocument(const FlowTimes& flow) {
  return Document::Map{{"micro_batches", flow.micro_batches},
                       {"samples", flow.samples},
                       {"first_unix_us", flow.first_unix_us},
                       {"last_unix_us", flow.last_unix_us},
                       {"compute", flow.compute},
                       {"compute_cpu", flow.compute_cpu},
                       {"other_cpu", flow.other_cpu},
                       {"starved", flow.starved},
                       {"in_flight", flow.in_flight},
                       {"blocked", flow.blocked},
                       {"data", flow.data},
                       {"fill", flow.fill},
                       {"update", flow.update},
                       {"seconds", flow.seconds}};
}

// Milliseconds; "-" where no result is there yet.
std::string LatencyText(const JobView& job) {
  const std::optional<FlowTimes> flow = ResultFlow(job);
  if (!flow.has_value() || !IsInference(job.spec)) return "";
  return absl::StrFormat("p50 %.1f ms, p99 %.1f ms", 1e3 * flow->latency_p50,
                         1e3 * flow->latency_p99);
}

Document LatencyDocument(const JobView& job) {
  const std::optional<FlowTimes> flow = ResultFlow(job);
  if (!flow.has_value() || !IsInference(job.spec)) return Document();
  return Document::Map{{"p50", flow->latency_p50},
                       {"p99", flow->latency_p99},
                       {"max", flow->latency_max}};
}

Document BytesOrNull(int64_t bytes) {
  return bytes > 0 ? Document(bytes) : Document();
}

Document MemberDocument(const std::optional<JobMemberView>& member) {
  if (!member.has_value()) return Document();
  return Document::Map{
      {"view", member->view},
      {"listens", member->listens},
      {"steps", member->next},
      {"state_step", member->state_step},
      // As text: a number of 64 bits is none in JavaScript.  Null: it has said
      // none yet, or the states are not equal anyway (gossip).
      {"state_hash", member->state_hash != 0 ? Document(absl::StrFormat(
                                                   "%016x", member->state_hash))
                                             : Document()}};
}

Document ToDocument(const JobWorkerView& worker) {
  Document::List stages, placements;
  for (const PlacementView& stage : worker.stages) {
    stages.push_back(stage.stage);
    placements.push_back(Document::Map{{"stage", stage.stage},
                                       {"first_layer", stage.first_layer},
                                       {"last_layer", stage.last_layer},
                                       {"share", stage.share}});
  }
  Document::Map seconds;
  for (const SplitPart& part : kSplitParts) {
    seconds.emplace_back(part.name, worker.seconds.*part.seconds);
  }
  seconds.emplace_back("wall", worker.seconds.wall);
  return Document::Map{
      {"id", worker.id},
      {"name", worker.name},
      {"stages", stages},
      {"placements", placements},
      {"seconds", seconds},
      {"flow",
       worker.flow.has_value() ? FlowDocument(*worker.flow) : Document()},
      {"peak_memory_bytes", BytesOrNull(worker.peak_memory_bytes)},
      {"predicted_memory_bytes", BytesOrNull(worker.predicted_memory_bytes)},
      {"member", MemberDocument(worker.member)}};
}

std::string Stages(const std::vector<PlacementView>& stages) {
  return absl::StrJoin(stages, ",", [](std::string* out, const auto& stage) {
    absl::StrAppend(out, stage.stage);
  });
}

// "0-3": from the first layer to the last one, as plans have it.
std::string Layers(const std::vector<PlacementView>& stages) {
  return absl::StrJoin(stages, ",", [](std::string* out, const auto& stage) {
    absl::StrAppend(out, stage.first_layer, "-", stage.last_layer - 1);
  });
}

std::string Steps(const JobView& job) {
  if (job.steps == 0) return job.step == 0 ? "-" : absl::StrCat(job.step);
  return absl::StrCat(job.step, "/", job.steps);
}

// "20/20 steps", "25/25 micro-batches"; "-" before the first.
std::string Done(const JobView& job) {
  if (job.steps == 0 && job.step == 0) return "-";
  return absl::StrCat(Steps(job),
                      IsInference(job.spec) ? " micro-batches" : " steps");
}

std::string Accuracy(const JobView& job) {
  const auto accuracy = TestAccuracy(job);
  return accuracy.has_value() ? absl::StrFormat("%.4f", *accuracy) : "";
}

std::string Elapsed(const JobView& job) {
  if (job.started_unix_ms == 0 || job.ended_unix_ms == 0) return "";
  return HumanDuration(
      absl::Milliseconds(job.ended_unix_ms - job.started_unix_ms));
}

std::string RenderSplit(const std::vector<JobWorkerView>& workers) {
  std::vector<Table::Column> columns = {
      {"worker"}, {"stages"}, {"layers"}, {"wall s", kRight}};
  for (const SplitPart& part : kSplitParts) {
    columns.push_back({part.title, kRight});
  }
  Table table(std::move(columns));
  for (const JobWorkerView& worker : workers) {
    const double wall = worker.seconds.wall;
    std::vector<std::string> row = {worker.name, Stages(worker.stages),
                                    Layers(worker.stages),
                                    absl::StrFormat("%.1f", wall)};
    for (const SplitPart& part : kSplitParts) {
      row.push_back(wall > 0
                        ? absl::StrFormat(
                              "%.1f", 100 * worker.seconds.*part.seconds / wall)
                        : "-");
    }
    table.AddRow(std::move(row));
  }
  return table.Render();
}

Document DriftDocument(const std::vector<DriftView>& drift) {
  Document::List list;
  for (const DriftView& stage : drift) {
    list.push_back(Document::Map{
        {"stage", stage.stage},
        {"worker_id", stage.worker_id},
        {"predicted_seconds", SecondsOrNull(stage.predicted_seconds)},
        {"measured_seconds", SecondsOrNull(stage.measured_seconds)},
        {"layer_seconds", SecondsOrNull(stage.layer_seconds)}});
  }
  return list;
}

// Predicted and measured milliseconds and their ratio; "-" for what is not
// known.
std::vector<std::string> DriftCells(double predicted_seconds,
                                    double measured_seconds) {
  const auto milliseconds = [](double seconds) {
    return seconds > 0 ? absl::StrFormat("%.3f", seconds * 1e3)
                       : std::string("-");
  };
  const bool both = predicted_seconds > 0 && measured_seconds > 0;
  return {milliseconds(predicted_seconds), milliseconds(measured_seconds),
          both ? absl::StrFormat("%.2f", measured_seconds / predicted_seconds)
               : "-"};
}

std::string WorkerName(const JobView& job, int64_t id) {
  for (const JobWorkerView& worker : job.workers) {
    if (worker.id == id) return worker.name;
  }
  return absl::StrCat("worker ", id);
}

// A line a stage and one for the step; empty where nothing was predicted or
// measured.
std::string RenderDrift(const JobView& job) {
  const double predicted_step =
      job.estimate.has_value() ? job.estimate->step_seconds : 0;
  if (job.drift.empty() && !(predicted_step > 0) && !(job.step_seconds > 0)) {
    return "";
  }
  Table table({{"time of"},
               {"predicted ms", kRight},
               {"measured ms", kRight},
               {"ratio", kRight}});
  const auto add = [&](std::string what, double predicted, double measured) {
    std::vector<std::string> row = DriftCells(predicted, measured);
    row.insert(row.begin(), std::move(what));
    table.AddRow(std::move(row));
  };
  std::map<int, int> replicas;
  for (const DriftView& stage : job.drift) ++replicas[stage.stage];
  for (const DriftView& stage : job.drift) {
    add(absl::StrCat(
            "stage ", stage.stage,
            replicas[stage.stage] > 1
                ? absl::StrCat(" on ", WorkerName(job, stage.worker_id))
                : "",
            ", a micro-batch"),
        stage.predicted_seconds, stage.measured_seconds);
  }
  if (!IsInference(job.spec)) {
    add("a step", predicted_step, job.step_seconds);
  }
  std::string text = table.Render();
  if (job.estimate.has_value() && !job.estimate->source.empty()) {
    absl::StrAppend(&text, "predicted from: ", Printable(job.estimate->source),
                    "\n");
  }
  return text;
}

// A line a worker; empty where nothing was predicted or measured.
std::string RenderMemory(const std::vector<JobWorkerView>& workers) {
  Table table({{"memory of"},
               {"predicted", kRight},
               {"peak", kRight},
               {"ratio", kRight}});
  const auto bytes = [](double count) {
    return count > 0 ? HumanBytes(count) : std::string("-");
  };
  bool known = false;
  for (const JobWorkerView& worker : workers) {
    const auto predicted = static_cast<double>(worker.predicted_memory_bytes);
    const auto peak = static_cast<double>(worker.peak_memory_bytes);
    known = known || predicted > 0 || peak > 0;
    table.AddRow({worker.name, bytes(predicted), bytes(peak),
                  predicted > 0 && peak > 0
                      ? absl::StrFormat("%.2f", peak / predicted)
                      : "-"});
  }
  return known ? table.Render() : "";
}

Document VersionsDocument(const std::vector<VersionsView>& versions) {
  Document::List list;
  for (const VersionsView& stage : versions) {
    list.push_back(Document::Map{{"stage", stage.stage},
                                 {"updates", stage.updates},
                                 {"skipped_updates", stage.skipped_updates},
                                 {"staleness", stage.staleness},
                                 {"versions", stage.versions},
                                 {"version_bytes", stage.version_bytes}});
  }
  return list;
}

std::string RenderVersions(const std::vector<VersionsView>& versions) {
  Table table({{"stage", kRight},
               {"updates", kRight},
               {"skipped", kRight},
               {"staleness", kRight},
               {"versions", kRight},
               {"weights", kRight}});
  for (const VersionsView& stage : versions) {
    table.AddRow({absl::StrCat(stage.stage), absl::StrCat(stage.updates),
                  absl::StrCat(stage.skipped_updates),
                  absl::StrFormat("%.2f", stage.staleness),
                  absl::StrCat(stage.versions),
                  HumanBytes(static_cast<double>(stage.version_bytes))});
  }
  return absl::StrCat(table.Render(),
                      "staleness: updates between the weights of a gradient "
                      "and those it changed, mean\n");
}

// Of inference there is one, which belongs to no step.
std::string RenderEvaluations(const JobView& job) {
  const bool steps = !IsInference(job.spec);
  std::vector<Table::Column> columns = {
      {"test loss", kRight}, {"accuracy", kRight}, {"samples", kRight}};
  if (steps) columns.insert(columns.begin(), {"step", kRight});
  Table table(std::move(columns));
  for (const EvaluationRecord& evaluation : job.evaluations) {
    std::vector<std::string> row = {
        absl::StrFormat("%.4f", evaluation.loss),
        absl::StrFormat("%.4f", evaluation.accuracy),
        absl::StrCat(evaluation.samples)};
    if (steps) row.insert(row.begin(), absl::StrCat(evaluation.step));
    table.AddRow(std::move(row));
  }
  return table.Render();
}

// Null for a pipeline, and while the number is not settled.
Document ShardsDocument(const JobSpec& spec) {
  const int32_t shards = spec.aggregation.shards;
  return IsDataParallel(spec) && shards > 0 ? Document(shards) : Document();
}

std::string Clock(int64_t unix_ms) {
  return absl::FormatTime("%H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

}  // namespace

Document ToDocument(const JobView& job, bool with_curve) {
  Document::List loss, evaluations, workers;
  for (const LossPoint& point : job.curve) {
    Document::Map entry = {{"step", point.step}, {"value", point.loss}};
    if (point.skipped) entry.emplace_back("skipped", Document(true));
    loss.push_back(std::move(entry));
  }
  for (const EvaluationRecord& evaluation : job.evaluations) {
    evaluations.push_back(Document::Map{{"step", evaluation.step},
                                        {"loss", evaluation.loss},
                                        {"accuracy", evaluation.accuracy},
                                        {"samples", evaluation.samples}});
  }
  for (const JobWorkerView& worker : job.workers) {
    workers.push_back(ToDocument(worker));
  }
  const auto accuracy = TestAccuracy(job);
  Document::Map map = {{"id", job.id},
                       {"name", job.spec.name},
                       {"kind", job.spec.kind},
                       {"state", std::string(JobStateName(job.state))},
                       {"why", job.why},
                       {"phase", TextOrNull(job.phase)},
                       {"model", job.spec.model.name},
                       {"data", job.spec.data.name},
                       {"stages", StageCount(job)},
                       {"schedule", IsInference(job.spec)
                                        ? Document()
                                        : Document(job.spec.pipeline.schedule)},
                       {"step", job.step},
                       {"steps", job.steps},
                       {"skipped_steps", job.skipped_steps}};
  if (with_curve) map.emplace_back("loss", std::move(loss));
  const Document::Map rest = {
      {"test_accuracy", accuracy ? Document(*accuracy) : Document()},
      {"evaluations", std::move(evaluations)},
      {"weights_path", TextOrNull(job.weights_path)},
      {"weights_sha256", TextOrNull(job.weights_sha256)},
      {"shards", ShardsDocument(job.spec)},
      {"threads", job.threads},
      {"cpu_capability", job.cpu_capability},
      {"samples_per_second", job.samples_per_second},
      {"latency_seconds", LatencyDocument(job)},
      {"estimate",
       job.estimate.has_value() ? ToDocument(*job.estimate) : Document()},
      {"drift", DriftDocument(job.drift)},
      {"versions", VersionsDocument(job.versions)},
      {"predicted_step_seconds",
       SecondsOrNull(job.estimate.has_value() ? job.estimate->step_seconds
                                              : 0)},
      {"measured_step_seconds", SecondsOrNull(job.step_seconds)},
      {"workers", std::move(workers)},
      {"attempt", job.attempt},
      {"plan_version", job.plan_version},
      {"submitted_unix_ms", UnixMsOrNull(job.submitted_unix_ms)},
      {"started_unix_ms", UnixMsOrNull(job.started_unix_ms)},
      {"ended_unix_ms", UnixMsOrNull(job.ended_unix_ms)}};
  map.insert(map.end(), rest.begin(), rest.end());
  return map;
}

Document ToDocument(const WorkerView& worker) {
  Document::List stages;
  for (const int stage : worker.stages) stages.push_back(stage);
  return Document::Map{
      {"id", worker.id},
      {"name", worker.name},
      {"pid", worker.pid},
      {"state", worker.state},
      {"drained", worker.drained},
      {"address", worker.address},
      {"http_address", TextOrNull(worker.http_address)},
      {"job", worker.job == 0 ? Document() : Document(worker.job)},
      {"stages", std::move(stages)},
      {"last_heard_seconds", worker.last_heard_seconds},
      {"machine_id", worker.machine_id},
      {"cpu_capability", worker.cpu_capability},
      {"cpu_model", worker.cpu_model},
      {"architecture", worker.architecture},
      {"cores", worker.cores},
      {"memory_bytes", worker.memory_bytes},
      {"version", worker.version}};
}

Document ToDocument(const EventView& event) {
  return Document::Map{{"sequence", event.sequence},
                       {"unix_ms", event.unix_ms},
                       {"kind", event.kind},
                       {"text", event.text}};
}

Document ToDocument(const LogLineView& line) {
  return Document::Map{{"unix_ms", line.unix_ms},
                       {"level", line.level},
                       {"source", line.source},
                       {"text", line.text}};
}

std::string RenderJobs(const std::vector<JobView>& jobs) {
  Table table({{"id", kRight},
               {"name"},
               {"kind"},
               {"state"},
               {"done", kRight},
               {"accuracy", kRight},
               {"submitted"},
               {"why"}});
  for (const JobView& job : jobs) {
    table.AddRow({absl::StrCat(job.id), job.spec.name, job.spec.kind,
                  std::string(JobStateName(job.state)), Done(job),
                  Accuracy(job), HumanTime(job.submitted_unix_ms), job.why});
  }
  return table.Render();
}

std::string RenderJob(const JobView& job, const PlotOptions& plot) {
  const std::string state =
      job.phase.empty()
          ? std::string(JobStateName(job.state))
          : absl::StrCat(JobStateName(job.state), " (", job.phase, ")");
  std::string text = RenderFacts({
      {"job", absl::StrCat(job.id)},
      {"name", job.spec.name},
      {"kind", job.spec.kind},
      {"state", state},
      {"why", job.why},
      {"model", job.spec.model.name},
      {"data", job.spec.data.name},
      {"pipeline",
       absl::StrCat(StagesText(StageCount(job)), ", ", ScheduleText(job.spec))},
      {IsInference(job.spec) ? "micro-batches" : "step", Steps(job)},
      {"skipped steps",
       job.skipped_steps > 0 ? absl::StrCat(job.skipped_steps) : std::string()},
      {"samples/s", job.samples_per_second > 0
                        ? HumanRate(job.samples_per_second)
                        : std::string()},
      {"latency", LatencyText(job)},
      {"threads", absl::StrCat(job.threads)},
      {"cpu capability", job.cpu_capability},
      {"submitted", HumanTime(job.submitted_unix_ms)},
      {"took", Elapsed(job)},
      {"test accuracy", Accuracy(job)},
      {ResultName(job), job.weights_path},
      {"sha256", job.weights_sha256},
  });
  if (const std::string curve = PlotLoss(job.curve, plot); !curve.empty()) {
    absl::StrAppend(&text, "\nloss\n", curve);
  }
  if (!job.evaluations.empty()) {
    absl::StrAppend(&text, "\n", RenderEvaluations(job));
  }
  if (const std::string drift = RenderDrift(job); !drift.empty()) {
    absl::StrAppend(&text, "\n", drift);
  }
  if (const std::string memory = RenderMemory(job.workers); !memory.empty()) {
    absl::StrAppend(&text, "\n", memory);
  }
  if (!job.versions.empty()) {
    absl::StrAppend(&text, "\n", RenderVersions(job.versions));
  }
  if (!job.workers.empty()) {
    absl::StrAppend(&text, "\n", RenderSplit(job.workers));
  }
  return text;
}

std::string RenderWorkers(const std::vector<WorkerView>& workers) {
  Table table({{"id", kRight},
               {"name"},
               {"state"},
               {"address"},
               {"pid", kRight},
               {"job", kRight},
               {"stages"},
               {"cores", kRight},
               {"memory", kRight},
               {"cpu"},
               {"heard", kRight}});
  for (const WorkerView& worker : workers) {
    table.AddRow({absl::StrCat(worker.id), worker.name, worker.state,
                  worker.address, absl::StrCat(worker.pid),
                  worker.job == 0 ? "-" : absl::StrCat(worker.job),
                  absl::StrJoin(worker.stages, ","), absl::StrCat(worker.cores),
                  HumanBytes(static_cast<double>(worker.memory_bytes)),
                  worker.cpu_capability,
                  absl::StrFormat("%.1f s ago", worker.last_heard_seconds)});
  }
  return table.Render();
}

std::string RenderWorker(const WorkerView& worker) {
  return RenderFacts({
      {"id", absl::StrCat(worker.id)},
      {"name", worker.name},
      {"state", worker.state},
      {"job", worker.job == 0 ? std::string() : absl::StrCat(worker.job)},
      {"stages", absl::StrJoin(worker.stages, ",")},
      {"heard", absl::StrFormat("%.1f s ago", worker.last_heard_seconds)},
      {"address", worker.address},
      {"http", worker.http_address},
      {"pid", absl::StrCat(worker.pid)},
      {"machine id", worker.machine_id},
      {"cpu", worker.cpu_model},
      {"cpu capability", worker.cpu_capability},
      {"architecture", worker.architecture},
      {"cores", absl::StrCat(worker.cores)},
      {"memory", HumanBytes(static_cast<double>(worker.memory_bytes))},
      {"version", worker.version},
  });
}

std::string RenderEvent(const EventView& event) {
  return absl::StrFormat("%s  %-10s  %s\n", HumanTime(event.unix_ms),
                         Printable(event.kind), Printable(event.text));
}

std::string RenderLogLine(const LogLineView& line) {
  return absl::StrFormat("%s  %-5s  %s  %s\n", Clock(line.unix_ms),
                         Printable(line.level), Printable(line.source),
                         Printable(line.text));
}

std::string RenderOutcome(const JobView& job) {
  std::string text =
      absl::StrCat("job ", job.id, ": ", JobStateName(job.state));
  if (const std::string took = Elapsed(job); !took.empty()) {
    absl::StrAppend(&text, " after ", took);
  }
  // Why a job failed is an error, and goes where errors go.
  if (!job.why.empty() && job.state != JobState::kFailed) {
    absl::StrAppend(&text, ": ", Printable(job.why));
  }
  absl::StrAppend(&text, "\n");
  if (const std::string accuracy = Accuracy(job); !accuracy.empty()) {
    absl::StrAppend(&text, "test accuracy: ", accuracy, "\n");
  }
  if (!job.weights_path.empty()) {
    absl::StrAppend(&text, ResultName(job), ": ", Printable(job.weights_path),
                    "\n");
  }
  if (!job.weights_sha256.empty()) {
    absl::StrAppend(&text, "sha256: ", Printable(job.weights_sha256), "\n");
  }
  return text;
}

}  // namespace paceline
