#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/plan/plan.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/model/description.h"
#include "core/optim/optimizer.h"
#include "core/plan/cut.h"
#include "core/schedule/schedule.h"
#include "core/simulate/simulation.h"

namespace paceline {

namespace {

constexpr int kDefaultDevices = 4;
constexpr double kBackwardByForward = 2;

absl::Status Wrong(absl::string_view flag, absl::string_view value,
                   absl::string_view need) {
  return InvalidArgument(flag, ": got ", value, ", need ", need);
}

absl::Status CheckRates(absl::string_view flag,
                        const std::vector<double>& values, bool may_be_free) {
  for (const double value : values) {
    if (value > 0 && (may_be_free || std::isfinite(value))) continue;
    return Wrong(flag, absl::StrCat(value),
                 may_be_free ? "a number above 0, or inf" : "a number above 0");
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view flag, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return Wrong(flag, absl::StrCat(value), absl::StrCat("1 to ", most));
}

absl::Status CheckFlags(const MachineFlags& flags) {
  PACELINE_RETURN_IF_ERROR(CheckCount("--devices", flags.devices.value_or(1),
                                      kMostSimulatedDevices));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("--layers", flags.layers.value_or(1), kMostSimulatedLayers));
  PACELINE_RETURN_IF_ERROR(CheckRates("--speed", flags.speeds, false));
  PACELINE_RETURN_IF_ERROR(CheckRates("--bandwidth", flags.bandwidths, true));
  PACELINE_RETURN_IF_ERROR(
      CheckRates("--flops", {flags.flops_per_second}, false));
  const std::pair<const char*, double> amounts[] = {
      {"--latency", flags.latency_seconds},
      {"--frame-seconds", flags.frame_seconds},
      {"--forward", flags.forward_seconds},
      {"--backward", flags.backward_seconds.value_or(0)},
      {"--output-bytes", flags.output_bytes},
      {"--parameter-bytes", flags.parameter_bytes},
      {"--kept-bytes", flags.kept_bytes}};
  for (const auto& [flag, amount] : amounts) {
    if (std::isfinite(amount) && amount >= 0) continue;
    return Wrong(flag, absl::StrCat(amount), "a number of at least 0");
  }
  return absl::OkStatus();
}

// --devices, else the longer of the lists.
absl::StatusOr<int> CountDevices(const MachineFlags& flags) {
  const size_t listed = std::max(flags.speeds.size(), flags.bandwidths.size());
  if (listed > static_cast<size_t>(kMostSimulatedDevices)) {
    return Wrong("--speed or --bandwidth", absl::StrCat(listed, " values"),
                 absl::StrCat("at most ", kMostSimulatedDevices));
  }
  const int devices = flags.devices.value_or(
      listed > 1 ? static_cast<int>(listed) : kDefaultDevices);
  for (const auto& [flag, values] :
       {std::pair("--speed", &flags.speeds),
        std::pair("--bandwidth", &flags.bandwidths)}) {
    if (values->size() > 1 && static_cast<int>(values->size()) != devices) {
      return Wrong(flag, absl::StrCat(values->size(), " values"),
                   absl::StrCat("one, or one for each of ",
                                Counted(devices, "device"), " (--devices)"));
    }
  }
  return devices;
}

double ValueOf(const std::vector<double>& values, int device, double missing) {
  if (values.empty()) return missing;
  return values.size() == 1 ? values.front() : values[device];
}

void AddDevices(const MachineFlags& flags, int devices, PlanProblem* problem) {
  constexpr double kGigabit = 1.25e8;  // bytes/s
  std::vector<double> ports;
  for (int d = 0; d < devices; ++d) {
    problem->devices.push_back({.name = absl::StrCat("d", d),
                                .speed = ValueOf(flags.speeds, d, 1),
                                .layer_seconds = {},
                                .machine = d,
                                .frame_seconds = flags.frame_seconds});
    ports.push_back(ValueOf(flags.bandwidths, d, kGigabit));
  }
  for (int from = 0; from < devices; ++from) {
    std::vector<LinkCost>& row = problem->links.emplace_back();
    for (int to = 0; to < devices; ++to) {
      row.push_back({std::min(ports[from], ports[to]), flags.latency_seconds});
    }
  }
}

void AddEqualLayers(const MachineFlags& flags, int layers,
                    PlanProblem* problem) {
  for (int i = 0; i < layers; ++i) {
    problem->layers.push_back(
        {.name = absl::StrCat("layer ", i),
         .forward_seconds = flags.forward_seconds,
         .backward_seconds = flags.backward_seconds.value_or(
             kBackwardByForward * flags.forward_seconds),
         .output_bytes = flags.output_bytes,
         .parameter_bytes = flags.parameter_bytes,
         .kept_bytes = flags.kept_bytes});
  }
}

absl::Status CheckModel(const MachineFlags& flags, const JobSpec& spec) {
  PACELINE_RETURN_IF_ERROR(
      CheckAmong("--model: ", "model", spec.model.name, ModelNames()));
  constexpr int64_t kMostSamples = 1 << 20;
  if (flags.micro_batch_samples == 0) {
    return InvalidArgument(
        "--model needs --batch, the samples of a micro-batch: 1 to ",
        kMostSamples);
  }
  return CheckCount("--batch", flags.micro_batch_samples, kMostSamples);
}

absl::Status AddModelLayers(const MachineFlags& flags, const JobSpec& spec,
                            PlanProblem* problem) {
  PACELINE_RETURN_IF_ERROR(CheckModel(flags, spec));
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  const auto samples = static_cast<double>(flags.micro_batch_samples);
  for (const Layer& described : model.layers) {
    LayerCost layer;
    layer.name = described.name;
    layer.forward_seconds =
        samples * described.forward_flops / flags.flops_per_second;
    layer.backward_seconds =
        described.backward_share * kBackwardByForward * layer.forward_seconds;
    layer.output_bytes = samples * static_cast<double>(described.output_bytes);
    FillWeights(described, /*has_casts=*/false, layer);
    layer.kept_bytes =
        samples * static_cast<double>(described.activation_bytes);
    problem->layers.push_back(std::move(layer));
  }
  problem->owner_copies = StateSlots(spec.train.optimizer);
  problem->parameter_copies = 2 + problem->owner_copies;
  return absl::OkStatus();
}

absl::StatusOr<Placement> Place(const MachineFlags& flags, int layers,
                                int devices) {
  const int stages = flags.stages.value_or(std::min(layers, devices));
  if (stages < 1 || stages > layers) {
    return Wrong("--stages", absl::StrCat(stages),
                 absl::StrCat("1 to ", layers, ", the number of layers"));
  }
  PACELINE_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                            CutEqually(layers, stages));
  const std::vector<int> holders = SpreadStages(stages, devices);
  Placement placement;
  for (int s = 0; s < stages; ++s) {
    placement.push_back({ranges[s], {holders[s]}, {1}});
  }
  return placement;
}

}  // namespace

absl::StatusOr<SimulatedPlan> MakeSimulatedPlan(const MachineFlags& flags,
                                                const JobSpec* model) {
  PACELINE_RETURN_IF_ERROR(CheckFlags(flags));
  if (flags.micro_batch_samples < 0) {
    return Wrong("--batch", absl::StrCat(flags.micro_batch_samples),
                 "the samples of a micro-batch, at least 1");
  }
  PACELINE_ASSIGN_OR_RETURN(const int devices, CountDevices(flags));
  SimulatedPlan plan;
  plan.options.micro_batch_samples = flags.micro_batch_samples;
  if (model == nullptr) {
    AddEqualLayers(flags, flags.layers.value_or(devices), &plan.problem);
  } else {
    PACELINE_RETURN_IF_ERROR(AddModelLayers(flags, *model, &plan.problem));
  }
  AddDevices(flags, devices, &plan.problem);
  PACELINE_ASSIGN_OR_RETURN(
      plan.placement,
      Place(flags, static_cast<int>(plan.problem.layers.size()), devices));
  return plan;
}

namespace {

constexpr char kSlowForm[] =
    "DEVICE@TIME=FACTOR[:DURATION] in seconds, as d1@10=2:30";
constexpr char kFailForm[] = "DEVICE@TIME[:BACK] in seconds, as d1@10:5";

// One flag's text and what it should look like.
struct Flag {
  absl::string_view name;
  const std::string& text;
  absl::string_view form;

  template <typename... Parts>
  absl::Status Wrong(const Parts&... why) const {
    return InvalidArgument(name, " '", Printable(text), "': ", why...,
                           "; need ", form);
  }
};

absl::StatusOr<double> Seconds(const Flag& flag, absl::string_view what,
                               absl::string_view text) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds) && std::isfinite(seconds) &&
      seconds >= 0) {
    return seconds;
  }
  return flag.Wrong("the ", what, " '", Printable(text),
                    "' is no number of at least 0");
}

absl::StatusOr<int> FindDevice(const Flag& flag, absl::string_view word,
                               const PlanProblem& problem) {
  for (size_t d = 0; d < problem.devices.size(); ++d) {
    if (problem.devices[d].name == word) return static_cast<int>(d);
  }
  int device = -1;
  const auto devices = static_cast<int>(problem.devices.size());
  if (absl::SimpleAtoi(word, &device) && device >= 0 && device < devices) {
    return device;
  }
  return flag.Wrong("there is no device '", Printable(word), "', there are ",
                    devices, ", ", Printable(problem.devices.front().name),
                    " (0) to ", Printable(problem.devices.back().name), " (",
                    devices - 1, ")");
}

// The text up to `mark`, and what follows; false without it.  `last`: a name
// may hold marks, so the last one counts.
bool SplitAt(absl::string_view* rest, char mark, bool last,
             absl::string_view* before) {
  const size_t at = last ? rest->rfind(mark) : rest->find(mark);
  if (at == absl::string_view::npos) return false;
  *before = rest->substr(0, at);
  *rest = rest->substr(at + 1);
  return true;
}

}  // namespace

absl::StatusOr<SimulatedSlowDown> ParseSlowDown(const std::string& text,
                                                const PlanProblem& problem) {
  const Flag flag = {"--slow", text, kSlowForm};
  absl::string_view rest = text;
  absl::string_view device, at, factor;
  if (!SplitAt(&rest, '@', true, &device)) return flag.Wrong("there is no '@'");
  if (!SplitAt(&rest, '=', false, &at)) return flag.Wrong("there is no '='");
  SimulatedSlowDown slow;
  const bool ends = SplitAt(&rest, ':', false, &factor);
  if (!ends) factor = rest;
  PACELINE_ASSIGN_OR_RETURN(slow.device, FindDevice(flag, device, problem));
  PACELINE_ASSIGN_OR_RETURN(slow.at_seconds, Seconds(flag, "time", at));
  PACELINE_ASSIGN_OR_RETURN(slow.factor, Seconds(flag, "factor", factor));
  if (slow.factor < 1) {
    return flag.Wrong("a factor of ", slow.factor,
                      " would be faster, 2 is half as fast");
  }
  if (ends) {
    PACELINE_ASSIGN_OR_RETURN(slow.for_seconds,
                              Seconds(flag, "duration", rest));
  }
  return slow;
}

absl::StatusOr<SimulatedFailure> ParseFailure(const std::string& text,
                                              const PlanProblem& problem) {
  const Flag flag = {"--fail", text, kFailForm};
  absl::string_view rest = text;
  absl::string_view device, at;
  if (!SplitAt(&rest, '@', true, &device)) return flag.Wrong("there is no '@'");
  SimulatedFailure failure;
  const bool recovers = SplitAt(&rest, ':', false, &at);
  if (!recovers) at = rest;
  PACELINE_ASSIGN_OR_RETURN(failure.device, FindDevice(flag, device, problem));
  PACELINE_ASSIGN_OR_RETURN(failure.at_seconds, Seconds(flag, "time", at));
  if (recovers) {
    PACELINE_ASSIGN_OR_RETURN(failure.recover_after_seconds,
                              Seconds(flag, "time until it is back", rest));
  }
  return failure;
}

namespace {

constexpr int64_t kDefaultMicroBatches = 32;
// A terminal is for looking; -o json has them all.
constexpr size_t kMostRows = 32;

absl::Status ApplyFlags(const SimulateFlags& flags, SimulatedPlan* plan) {
  if (flags.micro_batches.has_value()) {
    plan->problem.micro_batches = *flags.micro_batches;
  } else if (plan->problem.micro_batches == 0) {
    plan->problem.micro_batches = kDefaultMicroBatches;
  }
  if (plan->problem.micro_batches < 1) {
    return InvalidArgument("--micro-batches: got ", plan->problem.micro_batches,
                           ", need at least 1");
  }
  if (flags.inference) LeaveOutBackward({}, plan->problem);
  SimulationOptions& options = plan->options;
  if (flags.schedule.has_value()) options.schedule = *flags.schedule;
  PACELINE_RETURN_IF_ERROR(CheckAmong("--schedule: ", "schedule",
                                      options.schedule, ScheduleNames()));
  CountMemoryOf(options.schedule, plan->problem);
  if (plan->planned.has_value()) {  // for the planner's word on the same run
    plan->planned->micro_batches = plan->problem.micro_batches;
    if (flags.inference) LeaveOutBackward({}, *plan->planned);
    CountMemoryOf(options.schedule, *plan->planned);
  }
  options.steps = flags.steps;
  options.credit_frames = flags.credit_frames;
  options.keep_trace = !flags.trace_file.empty();
  for (const std::string& text : flags.slow) {
    PACELINE_ASSIGN_OR_RETURN(SimulatedSlowDown slow,
                              ParseSlowDown(text, plan->problem));
    options.slow_downs.push_back(std::move(slow));
  }
  for (const std::string& text : flags.fail) {
    PACELINE_ASSIGN_OR_RETURN(SimulatedFailure failure,
                              ParseFailure(text, plan->problem));
    options.failures.push_back(std::move(failure));
  }
  return absl::OkStatus();
}

absl::Status WriteTrace(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return FailedPrecondition("--trace: cannot write ", Printable(path), ": ",
                            std::strerror(errno), "; choose another file");
}

// Returns the planner's formula for the step; 0 where it has none.
double FormulaSeconds(const SimulatedPlan& plan) {
  const auto cost = CostOf(plan.planned.value_or(plan.problem), plan.placement);
  return cost.ok() ? cost->step_seconds : 0;
}

// --- documents --------------------------------------------------------------

Document ToDocument(const Device& device, const DeviceUse& use) {
  return Document{{"name", device.name},
                  {"used", Document(use.used)},
                  {"stages", use.stages},
                  {"seconds", Document{{"forward", use.forward_seconds},
                                       {"backward", use.backward_seconds},
                                       {"send", use.send_seconds},
                                       {"receive", use.receive_seconds},
                                       {"optimizer", use.optimizer_seconds},
                                       {"data", use.load_seconds},
                                       {"wait", use.wait_seconds},
                                       {"egress", use.egress_seconds},
                                       {"ingress", use.ingress_seconds}}},
                  {"frames_sent", use.frames_sent},
                  {"frames_received", use.frames_received},
                  {"bytes_sent", use.bytes_sent},
                  {"bytes_received", use.bytes_received},
                  {"peak_bytes", use.peak_bytes}};
}

Document ToDocument(const SimulateFlags& flags, const SimulatedPlan& plan,
                    const SimulationResult& result) {
  const std::vector<Device>& devices = plan.problem.devices;
  Document workers = Document::array();
  for (size_t d = 0; d < devices.size(); ++d) {
    workers.push_back(ToDocument(devices[d], result.devices[d]));
  }
  const bool finished = !result.all_step_seconds.empty();
  const double formula = FormulaSeconds(plan);
  return Document{
      {"schedule", plan.options.schedule},
      {"stages", plan.placement.size()},
      {"micro_batches", plan.problem.micro_batches},
      {"training", Document(plan.problem.training)},
      {"seconds", result.seconds},
      {"step_seconds", NullUnless(finished, result.step_seconds)},
      {"steps", result.all_step_seconds},
      {"formula_step_seconds", OrNull(formula)},
      {"micro_batches_per_second",
       NullUnless(finished, result.micro_batches_per_second)},
      {"samples_per_second",
       NullUnless(finished && plan.options.micro_batch_samples > 0,
                  result.samples_per_second)},
      {"bubble_share", result.bubble_share},
      {"unfinished_micro_batches", result.unfinished_micro_batches},
      {"restarts", result.restarts},
      {"lost_seconds", result.lost_seconds},
      {"failed_device", result.failed_device.has_value()
                            ? Document(devices[*result.failed_device].name)
                            : Document()},
      {"trace", OrNull(flags.trace_file)},
      {"trace_dropped", result.trace.dropped},
      {"workers", std::move(workers)}};
}

// --- tables -----------------------------------------------------------------

std::string RenderDevices(const SimulatedPlan& plan,
                          const SimulationResult& result) {
  Table table({"device", "stages", ">forward s", ">backward s", ">frames s",
               ">wait s", ">sent", ">received", ">peak memory"});
  size_t rows = 0;
  int64_t unused = 0;
  for (size_t d = 0; d < result.devices.size(); ++d) {
    const DeviceUse& use = result.devices[d];
    if (!use.used) ++unused;
    if (!use.used || ++rows > kMostRows) continue;
    table.AddRow(plan.problem.devices[d].name, absl::StrJoin(use.stages, ","),
                 HumanNumber(use.forward_seconds),
                 HumanNumber(use.backward_seconds),
                 HumanNumber(use.send_seconds + use.receive_seconds),
                 HumanNumber(use.wait_seconds), HumanBytes(use.bytes_sent),
                 HumanBytes(use.bytes_received), HumanBytes(use.peak_bytes));
  }
  std::string text = table.Render();
  if (rows > kMostRows) {
    absl::StrAppend(&text, "and ", rows - kMostRows,
                    " more; -o json shows all\n");
  }
  if (unused > 0) {
    absl::StrAppend(&text, Counted(unused, "device"),
                    unused == 1 ? " holds" : " hold", " no stage\n");
  }
  return text;
}

std::string FailureText(const SimulatedPlan& plan,
                        const SimulationResult& result) {
  if (!result.failed_device.has_value()) return "";
  return absl::StrCat(plan.problem.devices[*result.failed_device].name,
                      " failed at ", HumanNumber(result.seconds), " s, after ",
                      Counted(result.all_step_seconds.size(), "step"), " and ",
                      Counted(result.unfinished_micro_batches, "micro-batch"),
                      " of the next");
}

std::string RestartText(const SimulationResult& result) {
  if (result.restarts == 0) return "";
  return absl::StrCat(result.restarts, ", ", HumanNumber(result.lost_seconds),
                      " s lost");
}

std::string Render(const SimulatedPlan& plan, const SimulationResult& result) {
  const PlanProblem& problem = plan.problem;
  const bool finished = !result.all_step_seconds.empty();
  const double formula = FormulaSeconds(plan);
  const std::string facts = RenderFacts(
      {{"schedule",
        absl::StrCat(problem.training ? plan.options.schedule : "forwards only",
                     ", ", Counted(plan.placement.size(), "stage"), ", ",
                     Counted(problem.micro_batches, "micro-batch"))},
       {"step",
        finished ? absl::StrCat(HumanNumber(result.step_seconds), " s") : ""},
       {"by formula",
        formula > 0 ? absl::StrCat(HumanNumber(formula), " s") : ""},
       {"throughput",
        finished ? absl::StrCat(
                       HumanNumber(result.micro_batches_per_second),
                       " micro-batches/s",
                       plan.options.micro_batch_samples > 0
                           ? absl::StrCat(
                                 ", ", HumanNumber(result.samples_per_second),
                                 " samples/s")
                           : "")
                 : ""},
       {"bubbles", absl::StrFormat("%.1f %%", 100 * result.bubble_share)},
       {"failed", FailureText(plan, result)},
       {"restarts", RestartText(result)}});
  return absl::StrCat(facts, "\n", RenderDevices(plan, result));
}

}  // namespace

Outcome SimulateCommand(Console& console, const SimulateFlags& flags,
                        SimulatedPlan plan) {
  PACELINE_RETURN_IF_ERROR(ApplyFlags(flags, &plan));
  PACELINE_ASSIGN_OR_RETURN(
      const auto result, Simulate(plan.problem, plan.placement, plan.options));
  if (!flags.trace_file.empty()) {
    PACELINE_RETURN_IF_ERROR(
        WriteTrace(flags.trace_file, TraceText(plan.problem, result.trace)));
    if (result.trace.dropped > 0) {
      console.Note("paceline: warning: the trace ends early, ",
                   Counted(result.trace.dropped, "entry"),
                   result.trace.dropped == 1 ? " is" : " are",
                   " left out; simulate fewer steps");
    }
  }
  console.Print(Render(plan, result), ToDocument(flags, plan, result));
  if (console.table() && !flags.trace_file.empty()) {
    console.Note("trace: ", flags.trace_file,
                 "; open it at https://ui.perfetto.dev");
  }
  return kExitOk;
}

}  // namespace paceline
