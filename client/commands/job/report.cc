#include "client/render/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands/job/job.h"
#include "client/files/whole_file.h"
#include "client/render/sections.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/rpc/convert/job_convert.h"
#include "core/simulate/estimate.h"
#include "core/simulate/simulation.h"

namespace paceline {
namespace {

// --- A step -----------------------------------------------------------------

// Micro-batches of a step beyond these are left out.
constexpr int64_t kMostTraced = 32;

// Where the job's stages are.
struct PlacedJob {
  std::vector<InputWorker> workers;  // those that hold any
  std::vector<int64_t> ids;          // [workers]
  Placement placement;
};

PlacedJob PlaceOf(const v1::Job& job) {
  PlacedJob placed;
  std::vector<EstimateStage> stages;
  for (const v1::JobWorker& worker : job.workers()) {
    if (worker.stages().empty()) continue;
    for (const v1::StagePlacement& stage : worker.stages()) {
      stages.push_back({{stage.first_layer(), stage.last_layer()},
                        static_cast<int>(placed.ids.size()),
                        stage.share()});
    }
    placed.ids.push_back(worker.id());
    placed.workers.push_back({worker.name(), worker.name()});
  }
  absl::c_stable_sort(stages, [](const auto& a, const auto& b) {
    return a.layers.first < b.layers.first;
  });
  placed.placement = PlacementOf(stages);
  return placed;
}

// Makes the layers of each measured stage take together what it took.  Returns
// how many stages were measured, of replicas each.
int UseMeasuredTimes(const v1::Job& job, const PlacedJob& placed,
                     PlanInputs& inputs) {
  int measured = 0;
  for (const v1::StageDrift& drift : job.drift()) {
    const auto id = absl::c_find(placed.ids, drift.worker_id());
    const auto stage = static_cast<size_t>(drift.stage());
    if (!(drift.measured_seconds() > 0) || id == placed.ids.end() ||
        stage >= placed.placement.size()) {
      continue;
    }
    ++measured;
    const auto device = static_cast<int>(id - placed.ids.begin());
    const LayerRange layers = placed.placement[stage].layers;
    const double planned = LayerSeconds(inputs.problem, layers, device);
    std::vector<double>& seconds = inputs.problem.devices[device].layer_seconds;
    for (int layer = layers.first; layer < layers.last; ++layer) {
      // Where no time was expected, all layers get equal parts.
      seconds[layer] =
          planned > 0 ? seconds[layer] * drift.measured_seconds() / planned
                      : drift.measured_seconds() / (layers.last - layers.first);
    }
    // A quota has stopped what was measured already.
    inputs.facts[device].cpu_share = 1;
    inputs.facts[device].quota_period_seconds = 0;
  }
  return measured;
}

struct StepTrace {
  PlanProblem problem;  // its devices are the job's workers
  SimulationTrace trace;
  std::string basis;  // what it was made from, for people
};

// Errors: FailedPrecondition  the job has no pipeline, or no place on workers
//         InvalidArgument     this client does not know the model, or has
//                             another chain of it
absl::StatusOr<StepTrace> TraceStep(const v1::Job& job,
                                    const Measurements& measurements) {
  const JobSpec spec = FromProto(job.spec());
  if (IsDataParallel(spec)) {
    return FailedPrecondition("every member holds the whole model");
  }
  const PlacedJob placed = PlaceOf(job);
  if (placed.placement.empty()) {
    return FailedPrecondition("it has no place on workers");
  }
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(spec));
  PlanInputs inputs = MakePlanInputs(spec, model, placed.workers, measurements);
  PACELINE_RETURN_IF_ERROR(CheckPlacement(inputs.problem, placed.placement,
                                          DeviceHolds::kSeveralStages));
  const int measured = UseMeasuredTimes(job, placed, inputs);
  SimulationOptions options = OptionsFor(spec, placed.placement, inputs);
  options.keep_trace = true;
  // Schedules that deal stages out want a multiple of the workers.
  const auto workers = static_cast<int64_t>(placed.ids.size());
  const int64_t most = std::max(workers, kMostTraced / workers * workers);
  int64_t& count = inputs.problem.micro_batches;
  count = count > 0 ? std::min(count, most) : most;
  PACELINE_ASSIGN_OR_RETURN(
      SimulationResult result,
      Simulate(inputs.problem, placed.placement, options));
  StepTrace step;
  step.basis = absl::StrCat(
      "simulated: ", Counted(count, "micro-batch"), ", with the times that ",
      measured, " of ", Counted(job.drift_size(), "stage"), " took",
      measured < job.drift_size() ? "; others are predicted" : "");
  step.problem = std::move(inputs.problem);
  step.trace = std::move(result.trace);
  return step;
}

// --- A job ------------------------------------------------------------------

struct ReportedJob {
  v1::Job job;
  absl::StatusOr<StepTrace> step;  // or why there is none
  // The document of `job show`, with lists of what is not in it.
  Document document;

  std::string label() const {  // "7 first"
    return absl::StrCat(job.id(), " ", job.spec().name());
  }
  std::string step_note() const {
    return absl::StrCat("Job ", job.id(), ": ",
                        step.ok() ? step->basis : step.status().message());
  }
};

using Jobs = std::vector<ReportedJob>;

// These happen to every job.
constexpr absl::string_view kUsualEvents[] = {
    "submitted", "placed", "running",   "evaluated",
    "saving",    "rounds", "succeeded", "checkpoint"};

absl::StatusOr<Document> FaultsOf(ControlClient& client, int64_t id) {
  Document faults = Document::array();
  for (int64_t after = 0;;) {
    PACELINE_ASSIGN_OR_RETURN(const v1::GetEventsResponse page,
                              client.GetEvents(id, after));
    for (const v1::JobEvent& event : page.events()) {
      if (absl::c_linear_search(kUsualEvents, event.kind()) ||
          absl::StartsWith(event.text(), "attempt 1 begins")) {
        continue;
      }
      faults.push_back({{"time", HumanTime(event.unix_ms())},
                        {"kind", event.kind()},
                        {"text", event.text()}});
    }
    // Events that are not stored yet have no number to go on from.
    if (page.events().empty() || page.events().rbegin()->sequence() <= after) {
      return faults;
    }
    after = page.events().rbegin()->sequence();
  }
}

// On the workers' threads.
Document ComputedIn(const StepTrace& step) {
  Document computed = Document::array();
  for (const TraceSlice& slice : step.trace.slices) {
    if (slice.track != TraceTrack::kCompute) continue;
    computed.push_back({{"worker", step.problem.devices[slice.device].name},
                        {"stage", slice.stage},
                        {"what", std::string(slice.what)},
                        {"micro_batch", slice.micro_batch},
                        {"begin_seconds", slice.begin_seconds},
                        {"seconds", slice.seconds}});
  }
  return computed;
}

// The newest batch that all workers have traced; empty where there is none.
Document TracedIn(const v1::Job& job) {
  std::vector<std::pair<const v1::JobWorker*, const v1::StageTime*>> lanes;
  std::ptrdiff_t stages = 0;
  for (const v1::JobWorker& worker : job.workers()) {
    if (worker.stages().empty()) continue;
    stages += worker.stages_size();
    for (const v1::StageTime& time : worker.run().stage_times()) {
      lanes.emplace_back(&worker, &time);
    }
  }
  if (std::ssize(lanes) != stages) return Document::array();
  absl::c_sort(lanes, [](const auto& a, const auto& b) {
    return a.second->stage() < b.second->stage();
  });
  int64_t begin_us = std::numeric_limits<int64_t>::max();
  for (const auto& [worker, time] : lanes) {
    const v1::BatchTrace& trace = time->trace();
    if (!time->has_trace() ||
        trace.step() != lanes.front().second->trace().step()) {
      return Document::array();
    }
    begin_us = std::min(begin_us, trace.begin_unix_us());
  }
  Document traced = Document::array();
  for (const auto& [worker, time] : lanes) {
    const v1::BatchTrace& trace = time->trace();
    for (int i = 0; i < trace.us_size(); ++i) {
      traced.push_back(
          {{"worker", worker->name()},
           {"stage", time->stage()},
           {"what", trace.ops().substr(i, 1)},
           {"micro_batch", trace.micro_batches(i)},
           {"begin_seconds",
            1e-6 * static_cast<double>(trace.begin_unix_us() - begin_us +
                                       trace.begin_us(i))},
           {"seconds", 1e-6 * trace.us(i)},
           {"step", trace.step()}});
    }
  }
  return traced;
}

absl::StatusOr<ReportedJob> Gather(ControlClient& client, int64_t id,
                                   const v1::ListWorkersResponse& workers,
                                   const Measurements& measurements) {
  PACELINE_ASSIGN_OR_RETURN(const v1::Job job, client.GetWholeJob(id));
  ReportedJob reported = {job, TraceStep(job, measurements),
                          paceline::ToDocument(job, /*with_curve=*/false)};
  Document& document = reported.document;
  PACELINE_ASSIGN_OR_RETURN(document["faults"], FaultsOf(client, id));
  for (Document& part : document["workers"]) {
    for (const v1::Worker& worker : workers.workers()) {
      if (part["id"] == worker.id()) {
        part["machine"] = paceline::ToDocument(worker);
      }
    }
  }
  const int64_t end =
      job.ended_unix_ms() > 0 ? job.ended_unix_ms() : workers.unix_ms();
  document["seconds"] =
      NullUnless(job.started_unix_ms() > 0,
                 1e-3 * static_cast<double>(end - job.started_unix_ms()));
  if (!job.curve().empty()) document["loss"] = job.curve().rbegin()->loss();
  document["curve"] = ListOf(job.curve(), MessageDocument);
  document["curve_stride"] = job.curve_stride();
  for (Document& point : document["curve"]) {
    point["curve_stride"] = job.curve_stride();
  }
  if (reported.step.ok()) document["computed"] = ComputedIn(*reported.step);
  document["traced"] = TracedIn(job);
  return reported;
}

// --- Tables -----------------------------------------------------------------

// Fields are paths in a document, with blanks between.
constexpr char kSummary[] =
    "name kind state phase why model data stages schedule threads "
    "cpu_capability seconds step steps skipped_steps curve_stride loss "
    "test_accuracy "
    "samples_per_second measured_step_seconds predicted_step_seconds "
    "estimate/source attempt recovery/recoveries recovery/replayed_steps";

struct TableSpec {
  const char* name;
  const char* title;
  const char* list;    // key of a job's document: a list, or one element
  const char* fields;  // of an element
};

constexpr TableSpec kTables[] = {
    {"loss", "Training loss", "curve",
     "step loss learning_rate gradient_norm skipped unix_ms curve_stride"},
    {"accuracy", "Accuracy on the test set", "evaluations",
     "step accuracy loss samples"},
    {"time-split", "Where the seconds of each worker's newest run went",
     "workers",
     "name stages seconds/wall seconds/data seconds/forward seconds/backward "
     "seconds/evaluation seconds/receive_wait seconds/send seconds/aggregate "
     "seconds/optimizer seconds/snapshot seconds/orders seconds/unexplained"},
    {"measured-step", "A step, as measured by the workers' clocks", "traced",
     "worker stage what micro_batch begin_seconds seconds step"},
    {"step", "A step, as predicted", "computed",
     "worker stage what micro_batch begin_seconds seconds"},
    {"predicted", "A micro-batch, predicted and measured", "drift",
     "stage worker_id predicted_seconds measured_seconds "
     "measured_over_predicted layer_seconds"},
    {"recoveries", "Recoveries, and the seconds of the last one", "recovery",
     "recoveries replayed_steps why from_step again seconds/detect "
     "seconds/leave seconds/choose seconds/fetch seconds/build seconds/replay"},
    {"faults", "Faults, and what else does not happen to every job", "faults",
     "time kind text"},
    {"resources", "Resources", "workers",
     "name machine/cpu_model machine/cores machine/memory_bytes "
     "predicted_memory_bytes peak_memory_bytes flow/compute_cpu "
     "flow/other_cpu flow/seconds"}};

std::vector<std::string> FieldsOf(const char* fields) {
  return absl::StrSplit(fields, ' ');
}

// The value at a path as "seconds/forward"; empty where there is none.
std::string CellAt(const Document& document, const std::string& path) {
  const Document::json_pointer at("/" + path);
  if (!document.contains(at) || document.at(at).is_null()) return "";
  const Document& value = document.at(at);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return HumanNumber(value.get<double>(), 6);
  return ToJson(value);
}

// "forward" of "seconds/forward".
std::string TitleOf(const std::string& path) {
  return absl::StrReplaceAll(path.substr(path.rfind('/') + 1), {{"_", " "}});
}

// Adds a row for each setting that is not the same in all jobs.
void AddDifferences(const Jobs& jobs, Section& section) {
  std::vector<Document> specs;
  Document all = Document::object();
  for (const ReportedJob& reported : jobs) {
    specs.push_back(MessageDocument(reported.job.spec()).flatten());
    all.update(specs.back());
  }
  for (const auto& [path, value] : all.items()) {
    std::vector<std::string> row = {
        absl::StrReplaceAll(path.substr(1), {{"/", "."}})};
    for (const Document& spec : specs) {
      row.push_back(CellAt({{"", spec.value(path, Document())}}, ""));
    }
    const bool same = absl::c_all_of(row, [&row](const std::string& cell) {
      return &cell == &row[0] || cell == row[1];
    });
    if (!same && row[0] != "name") section.rows.push_back(std::move(row));
  }
}

// A row a fact, a column a job.
Section SummaryOf(const Jobs& jobs) {
  Section section = {
      .name = "summary", .title = "Summary", .titles = {"job"}, .leads = true};
  for (const ReportedJob& reported : jobs) {
    section.titles.push_back(absl::StrCat(reported.job.id()));
  }
  AddDifferences(jobs, section);
  for (const std::string& field : FieldsOf(kSummary)) {
    section.rows.push_back({TitleOf(field)});
    for (const ReportedJob& reported : jobs) {
      section.rows.back().push_back(CellAt(reported.document, field));
    }
  }
  return section;
}

// The rows of all jobs below each other.
Section SectionOf(const TableSpec& spec, const Jobs& jobs) {
  Section section = {.name = spec.name, .title = spec.title, .titles = {"job"}};
  const std::vector<std::string> fields = FieldsOf(spec.fields);
  absl::c_transform(fields, std::back_inserter(section.titles), TitleOf);
  for (const ReportedJob& reported : jobs) {
    const Document list = reported.document.value(spec.list, Document());
    for (const Document& element :
         list.is_object() ? Document::array({list}) : list) {
      section.rows.push_back({absl::StrCat(reported.job.id())});
      for (const std::string& field : fields) {
        section.rows.back().push_back(CellAt(element, field));
      }
    }
  }
  return section;
}

// --- Charts -----------------------------------------------------------------

// A line a job: the third column of the section over the second.
std::string ChartOf(const Jobs& jobs, const Section& section) {
  LineChart chart = {.what = section.title + " over steps", .x_name = "step"};
  for (const ReportedJob& reported : jobs) {
    ChartLine& line = chart.lines.emplace_back();
    line.name = reported.label();
    const std::string id = absl::StrCat(reported.job.id());
    for (const std::vector<std::string>& row : section.rows) {
      double step = 0, value = 0;
      if (row[0] != id || !absl::SimpleAtod(row[1], &step)) continue;
      line.points.emplace_back(step,
                               absl::SimpleAtod(row[2], &value) ? value : NAN);
    }
    // A chart has no room for more points; the last one stays.
    const size_t stride = 1 + line.points.size() / kCurvePoints;
    size_t left = line.points.size();
    std::erase_if(line.points,
                  [&](const auto&) { return --left % stride != 0; });
    for (const v1::AttemptRow& attempt : reported.job.attempts()) {
      if (attempt.attempt() <= 1) continue;
      chart.marks.emplace_back(
          attempt.base().step(),
          absl::StrCat("job ", id, ", attempt ", attempt.attempt()));
    }
  }
  return RenderLineChart(chart);
}

std::string SplitChart(const Jobs& jobs) {
  BarChart chart = {
      .what = "share of each worker's time",
      .axis = "% of the time",
      .legend = {"data", "forward and loss", "backward", "evaluation",
                 "waiting for neighbours", "other"}};
  for (const ReportedJob& reported : jobs) {
    for (const v1::JobWorker& worker : reported.job.workers()) {
      const v1::TimeSplit& split = worker.run().seconds();
      if (!(split.wall() > 0)) continue;
      std::vector<double> parts = {split.data(), split.forward(),
                                   split.backward(), split.evaluation(),
                                   split.receive_wait()};
      parts.push_back(
          std::max(0.0, split.wall() - absl::c_accumulate(parts, 0.0)));
      double begin = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        const double percent = 100 * parts[part] / split.wall();
        chart.bars.push_back({chart.rows.size(), begin, percent, part,
                              absl::StrFormat("%.1f", percent)});
        begin += percent;
      }
      chart.rows.push_back(absl::StrCat(reported.job.id(), " ", worker.name()));
    }
  }
  return RenderBarChart(chart);
}

constexpr absl::string_view kComputed[] = {"LOAD", "F", "B", "I", "W", "STEP"};

// list: key of the job's document, "computed" or "traced".
std::string StepChart(const ReportedJob& reported, const char* list) {
  BarChart chart = {
      .what = "what each worker computes when",
      .axis = absl::StrCat("ms of a step of job ", reported.label()),
      .legend = {"load", "forward", "backward", "gradient of the input",
                 "gradient of the weights", "update"}};
  for (const Document& bar : reported.document.value(list, Document::array())) {
    const auto worker = bar["worker"].get<std::string>();
    const auto what = bar["what"].get<std::string>();
    const auto row = absl::c_find(chart.rows, worker) - chart.rows.begin();
    if (row == std::ssize(chart.rows)) chart.rows.push_back(worker);
    chart.bars.push_back(
        {static_cast<size_t>(row), 1e3 * bar["begin_seconds"].get<double>(),
         1e3 * bar["seconds"].get<double>(),
         static_cast<size_t>(absl::c_find(kComputed, what) - kComputed),
         absl::StrCat(what, bar["micro_batch"].get<int>())});
  }
  return RenderBarChart(chart);
}

// --- The whole --------------------------------------------------------------

Report ReportOf(const Jobs& jobs, int64_t now_unix_ms) {
  Report report = {.title = "Report of"};
  for (const ReportedJob& reported : jobs) {
    absl::StrAppend(&report.title, " job ", reported.label(),
                    &reported == &jobs.back() ? "" : ",");
    if (HasEnded(reported.job.state())) continue;
    report.notes.push_back(absl::StrCat(
        "Job ", reported.job.id(), " has not ended; this is what was known at ",
        HumanTime(now_unix_ms), "."));
  }
  report.sections.push_back(SummaryOf(jobs));
  for (const TableSpec& spec : kTables) {
    Section section = SectionOf(spec, jobs);
    if (section.name == "loss" || section.name == "accuracy") {
      section.charts.push_back(ChartOf(jobs, section));
      for (const ReportedJob& reported : jobs) {
        const std::string kept = CurveText(reported.job);
        if (section.name == "accuracy" || kept.empty()) continue;
        section.notes.push_back(
            absl::StrCat("Job ", reported.job.id(), ": ", kept, "."));
      }
    } else if (section.name == "time-split") {
      section.charts.push_back(SplitChart(jobs));
    } else if (absl::EndsWith(section.name, "step")) {
      for (const ReportedJob& reported : jobs) {
        if (section.name == "step") {
          section.notes.push_back(reported.step_note());
        }
        section.charts.push_back(StepChart(reported, spec.list));
      }
    }
    report.sections.push_back(std::move(section));
  }
  return report;
}

// The traces of all jobs beside each other, their workers' names with the job.
absl::StatusOr<std::string> PerfettoOf(const Jobs& jobs) {
  PlanProblem problem;
  SimulationTrace all;
  for (const ReportedJob& reported : jobs) {
    if (!reported.step.ok()) continue;
    const auto first = static_cast<int>(problem.devices.size());
    for (Device device : reported.step->problem.devices) {
      device.name = absl::StrCat("job ", reported.job.id(), ": ", device.name);
      problem.devices.push_back(std::move(device));
    }
    for (TraceSlice slice : reported.step->trace.slices) {
      slice.device += first;
      if (slice.peer >= 0) slice.peer += first;
      all.slices.push_back(slice);
    }
    for (MemorySample sample : reported.step->trace.memory) {
      sample.device += first;
      all.memory.push_back(sample);
    }
  }
  if (!problem.devices.empty()) return TraceText(problem, all);
  return FailedPrecondition(
      "there is no step to draw: ", jobs.front().step_note(),
      "; --format html shows the rest");
}

constexpr char kPerfetto[] = "perfetto";

absl::StatusOr<std::string> TextOf(ControlClient& client,
                                   const ReportOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers,
                            client.ListWorkers());
  PACELINE_ASSIGN_OR_RETURN(const Measurements measurements,
                            client.ListMeasurements(""));
  Jobs jobs;
  for (const std::string& word : options.jobs) {
    PACELINE_ASSIGN_OR_RETURN(const int64_t id, ResolveJob(client, word));
    if (absl::c_any_of(jobs, [id](const ReportedJob& each) {
          return each.job.id() == id;
        })) {
      continue;
    }
    PACELINE_ASSIGN_OR_RETURN(ReportedJob job,
                              Gather(client, id, workers, measurements));
    jobs.push_back(std::move(job));
  }
  if (options.format == kPerfetto) return PerfettoOf(jobs);
  const auto* const form = absl::c_find_if(kReportForms, [&](const auto& each) {
    return options.format == each.name;
  });
  return form->print(ReportOf(jobs, workers.unix_ms()));
}

}  // namespace

std::vector<std::string> ReportFormats() {
  std::vector<std::string> names;
  for (const ReportForm& form : kReportForms) names.emplace_back(form.name);
  names.emplace_back(kPerfetto);
  return names;
}

Outcome ReportCommand(const CommandContext& context,
                      const ReportOptions& options) {
  Console& console = context.console;
  PACELINE_ASSIGN_OR_RETURN(const auto text, TextOf(context.client, options));
  if (options.file.empty() || options.file == "-") {
    console.Print(text);
    return kExitOk;
  }
  PACELINE_RETURN_IF_ERROR(WriteWholeFile(options.file, text));
  console.Note("the report is in ", Printable(options.file));
  return kExitOk;
}

}  // namespace paceline
