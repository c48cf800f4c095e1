#include "client/simulate_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/disturbance_flags.h"
#include "client/table.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/schedule/schedule.h"
#include "core/simulate/simulation.h"
#include "core/simulate/trace_text.h"

namespace paceline {
namespace {

constexpr int64_t kDefaultMicroBatches = 32;
// A terminal is for looking; -o json has them all.
constexpr size_t kMostRows = 32;

absl::Status CheckSchedule(const std::string& name) {
  const std::vector<std::string> names = ScheduleNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return absl::OkStatus();
  }
  const std::string meant = DidYouMean(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "--schedule: there is no schedule '", Printable(name), "'",
      meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"),
      "; there are: ", absl::StrJoin(names, ", ")));
}

// Forwards of what was planned for training: measured times hold both.
void GoForwardOnly(PlanProblem* problem) {
  if (!problem->training) return;
  problem->training = false;
  for (Device& device : problem->devices) {
    for (size_t i = 0; i < device.layer_seconds.size(); ++i) {
      const LayerCost& layer = problem->layers[i];
      const double both = layer.forward_seconds + layer.backward_seconds;
      if (both > 0) device.layer_seconds[i] *= layer.forward_seconds / both;
    }
  }
}

absl::Status ApplyFlags(const SimulateFlags& flags, SimulatedPlan* plan) {
  if (flags.micro_batches.has_value()) {
    plan->problem.micro_batches = *flags.micro_batches;
  } else if (plan->problem.micro_batches == 0) {
    plan->problem.micro_batches = kDefaultMicroBatches;
  }
  if (plan->problem.micro_batches < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--micro-batches: got ",
                                                   plan->problem.micro_batches,
                                                   ", need at least 1"));
  }
  if (flags.inference) GoForwardOnly(&plan->problem);
  SimulationOptions& options = plan->options;
  if (flags.schedule.has_value()) options.schedule = *flags.schedule;
  PACELINE_RETURN_IF_ERROR(CheckSchedule(options.schedule));
  CountMemoryOf(options.schedule, plan->problem);
  if (plan->planned.has_value()) {  // for the planner's word on the same run
    plan->planned->micro_batches = plan->problem.micro_batches;
    if (flags.inference) GoForwardOnly(&*plan->planned);
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
  const auto failed = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat("--trace: cannot write ", Printable(path), ": ",
                     std::strerror(errno), "; choose another file"));
  };
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return failed();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
      std::fflush(file) == 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = error;
  return written && closed ? absl::OkStatus() : failed();
}

// What the planner would have said; 0 where it has no formula.
double FormulaSeconds(const SimulatedPlan& plan) {
  const auto cost = CostOf(plan.planned.value_or(plan.problem), plan.placement);
  return cost.ok() ? cost->step_seconds : 0;
}

// --- documents --------------------------------------------------------------

Document::List StageNumbers(const DeviceUse& use) {
  Document::List stages;
  for (const int stage : use.stages) stages.push_back(stage);
  return stages;
}

Document ToDocument(const Device& device, const DeviceUse& use) {
  return Document::Map{
      {"name", device.name},
      {"used", Document(use.used)},
      {"stages", StageNumbers(use)},
      {"seconds", Document::Map{{"forward", use.forward_seconds},
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
  Document::List steps, workers;
  for (const double seconds : result.all_step_seconds) {
    steps.push_back(seconds);
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    workers.push_back(ToDocument(devices[d], result.devices[d]));
  }
  const bool finished = !result.all_step_seconds.empty();
  const double formula = FormulaSeconds(plan);
  const auto known = [&](bool is, double value) {
    return is ? Document(value) : Document();
  };
  return Document::Map{
      {"schedule", plan.options.schedule},
      {"stages", plan.placement.size()},
      {"micro_batches", plan.problem.micro_batches},
      {"training", Document(plan.problem.training)},
      {"seconds", result.seconds},
      {"step_seconds", known(finished, result.step_seconds)},
      {"steps", std::move(steps)},
      {"formula_step_seconds", formula > 0 ? Document(formula) : Document()},
      {"micro_batches_per_second",
       known(finished, result.micro_batches_per_second)},
      {"samples_per_second",
       known(finished && plan.options.micro_batch_samples > 0,
             result.samples_per_second)},
      {"bubble_share", result.bubble_share},
      {"unfinished_micro_batches", result.unfinished_micro_batches},
      {"restarts", result.restarts},
      {"lost_seconds", result.lost_seconds},
      {"failed_device", result.failed_device.has_value()
                            ? Document(devices[*result.failed_device].name)
                            : Document()},
      {"trace", TextOrNull(flags.trace_file)},
      {"trace_dropped", result.trace.dropped},
      {"workers", std::move(workers)}};
}

// --- tables -----------------------------------------------------------------

std::string Seconds(double seconds) { return HumanNumber(seconds); }

std::string RenderDevices(const SimulatedPlan& plan,
                          const SimulationResult& result) {
  Table table({{"device"},
               {"stages"},
               {"forward s", Table::Align::kRight},
               {"backward s", Table::Align::kRight},
               {"frames s", Table::Align::kRight},
               {"wait s", Table::Align::kRight},
               {"sent", Table::Align::kRight},
               {"received", Table::Align::kRight},
               {"peak memory", Table::Align::kRight}});
  size_t rows = 0, unused = 0;
  for (size_t d = 0; d < result.devices.size(); ++d) {
    const DeviceUse& use = result.devices[d];
    if (!use.used) ++unused;
    if (!use.used || ++rows > kMostRows) continue;
    table.AddRow({plan.problem.devices[d].name, absl::StrJoin(use.stages, ","),
                  Seconds(use.forward_seconds), Seconds(use.backward_seconds),
                  Seconds(use.send_seconds + use.receive_seconds),
                  Seconds(use.wait_seconds), HumanBytes(use.bytes_sent),
                  HumanBytes(use.bytes_received), HumanBytes(use.peak_bytes)});
  }
  std::string text = table.Render();
  if (rows > kMostRows) {
    absl::StrAppend(&text, "and ", rows - kMostRows,
                    " more; -o json shows all\n");
  }
  if (unused > 0) absl::StrAppend(&text, unused, " devices hold no stage\n");
  return text;
}

std::string FailureText(const SimulatedPlan& plan,
                        const SimulationResult& result) {
  if (!result.failed_device.has_value()) return "";
  return absl::StrCat(plan.problem.devices[*result.failed_device].name,
                      " failed at ", Seconds(result.seconds), " s, after ",
                      result.all_step_seconds.size(), " steps and ",
                      result.unfinished_micro_batches,
                      " micro-batches of the next");
}

std::string RestartText(const SimulationResult& result) {
  if (result.restarts == 0) return "";
  return absl::StrCat(result.restarts, ", ", Seconds(result.lost_seconds),
                      " s lost");
}

std::string Render(const SimulatedPlan& plan, const SimulationResult& result) {
  const PlanProblem& problem = plan.problem;
  const bool finished = !result.all_step_seconds.empty();
  const double formula = FormulaSeconds(plan);
  const std::string facts = RenderFacts(
      {{"schedule",
        absl::StrCat(problem.training ? plan.options.schedule : "forwards only",
                     ", ", plan.placement.size(), " stages, ",
                     problem.micro_batches, " micro-batches")},
       {"step",
        finished ? absl::StrCat(Seconds(result.step_seconds), " s") : ""},
       {"by formula", formula > 0 ? absl::StrCat(Seconds(formula), " s") : ""},
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

ExitCode SimulateCommand(Console& console, const SimulateFlags& flags,
                         SimulatedPlan plan) {
  const absl::Status applied = ApplyFlags(flags, &plan);
  if (!applied.ok()) return ReportError(console, applied);
  const auto result = Simulate(plan.problem, plan.placement, plan.options);
  if (!result.ok()) return ReportError(console, result.status());
  if (!flags.trace_file.empty()) {
    const absl::Status written =
        WriteTrace(flags.trace_file, TraceText(plan.problem, result->trace));
    if (!written.ok()) return ReportError(console, written);
    if (result->trace.dropped > 0) {
      console.Note(absl::StrCat("paceline: warning: the trace ends early, ",
                                result->trace.dropped,
                                " entries are left out; simulate fewer steps"));
    }
  }
  if (console.table()) {
    console.Print(Render(plan, *result));
    if (!flags.trace_file.empty()) {
      console.Note(absl::StrCat("trace: ", flags.trace_file,
                                "; open it at https://ui.perfetto.dev"));
    }
  } else {
    console.Print(ToDocument(flags, plan, *result));
  }
  return kExitOk;
}

}  // namespace paceline
