#include "client/playground.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"
#include "core/optim/optimizer.h"

namespace paceline {
namespace {

constexpr int kDefaultDevices = 4;
constexpr double kBackwardByForward = 2;

absl::Status Wrong(absl::string_view flag, absl::string_view value,
                   absl::string_view need) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": got ", value, ", need ", need));
}

absl::Status CheckAmount(absl::string_view flag, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Wrong(flag, absl::StrCat(value), "a number of at least 0");
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

absl::Status CheckFlags(const PlaygroundFlags& flags) {
  if (flags.devices.has_value()) {
    PACELINE_RETURN_IF_ERROR(
        CheckCount("--devices", *flags.devices, kMostPlaygroundDevices));
  }
  if (flags.layers.has_value()) {
    PACELINE_RETURN_IF_ERROR(
        CheckCount("--layers", *flags.layers, kMostPlaygroundLayers));
  }
  PACELINE_RETURN_IF_ERROR(CheckRates("--speed", flags.speeds, false));
  PACELINE_RETURN_IF_ERROR(CheckRates("--bandwidth", flags.bandwidths, true));
  PACELINE_RETURN_IF_ERROR(
      CheckRates("--flops", {flags.flops_per_second}, false));
  PACELINE_RETURN_IF_ERROR(CheckAmount("--latency", flags.latency_seconds));
  PACELINE_RETURN_IF_ERROR(CheckAmount("--frame-seconds", flags.frame_seconds));
  PACELINE_RETURN_IF_ERROR(CheckAmount("--forward", flags.forward_seconds));
  PACELINE_RETURN_IF_ERROR(
      CheckAmount("--backward", flags.backward_seconds.value_or(0)));
  PACELINE_RETURN_IF_ERROR(CheckAmount("--output-bytes", flags.output_bytes));
  PACELINE_RETURN_IF_ERROR(
      CheckAmount("--parameter-bytes", flags.parameter_bytes));
  return CheckAmount("--kept-bytes", flags.kept_bytes);
}

// --devices, else the longer of the lists.
absl::StatusOr<int> CountDevices(const PlaygroundFlags& flags) {
  const size_t listed = std::max(flags.speeds.size(), flags.bandwidths.size());
  if (listed > static_cast<size_t>(kMostPlaygroundDevices)) {
    return Wrong("--speed or --bandwidth", absl::StrCat(listed, " values"),
                 absl::StrCat("at most ", kMostPlaygroundDevices));
  }
  const int devices = flags.devices.value_or(
      listed > 1 ? static_cast<int>(listed) : kDefaultDevices);
  for (const auto& [flag, values] :
       {std::pair("--speed", &flags.speeds),
        std::pair("--bandwidth", &flags.bandwidths)}) {
    if (values->size() > 1 && static_cast<int>(values->size()) != devices) {
      return Wrong(flag, absl::StrCat(values->size(), " values"),
                   absl::StrCat("one, or one for each of ", devices,
                                " devices (--devices)"));
    }
  }
  return devices;
}

double ValueOf(const std::vector<double>& values, int device, double missing) {
  if (values.empty()) return missing;
  return values.size() == 1 ? values.front() : values[device];
}

void AddDevices(const PlaygroundFlags& flags, int devices,
                PlanProblem* problem) {
  constexpr double kGigabit = 1.25e8;  // bytes/s
  std::vector<double> ports;
  for (int d = 0; d < devices; ++d) {
    Device device;
    device.name = absl::StrCat("d", d);
    device.speed = ValueOf(flags.speeds, d, 1);
    device.machine = d;
    device.frame_seconds = flags.frame_seconds;
    problem->devices.push_back(std::move(device));
    ports.push_back(ValueOf(flags.bandwidths, d, kGigabit));
  }
  for (int from = 0; from < devices; ++from) {
    std::vector<LinkCost> row;
    for (int to = 0; to < devices; ++to) {
      row.push_back({std::min(ports[from], ports[to]), flags.latency_seconds});
    }
    problem->links.push_back(std::move(row));
  }
}

void AddEqualLayers(const PlaygroundFlags& flags, int layers,
                    PlanProblem* problem) {
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = absl::StrCat("layer ", i);
    layer.forward_seconds = flags.forward_seconds;
    layer.backward_seconds = flags.backward_seconds.value_or(
        kBackwardByForward * flags.forward_seconds);
    layer.output_bytes = flags.output_bytes;
    layer.parameter_bytes = flags.parameter_bytes;
    layer.kept_bytes = flags.kept_bytes;
    problem->layers.push_back(std::move(layer));
  }
}

absl::Status CheckModel(const PlaygroundFlags& flags, const JobSpec& spec) {
  const std::vector<std::string> names = ModelNames();
  if (std::find(names.begin(), names.end(), spec.model.name) == names.end()) {
    const std::string meant = DidYouMean(spec.model.name, names);
    return absl::InvalidArgumentError(absl::StrCat(
        "--model: there is no model '", Printable(spec.model.name), "'",
        meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"),
        "; there are: ", absl::StrJoin(names, ", ")));
  }
  constexpr int64_t kMostSamples = 1 << 20;
  if (flags.micro_batch_samples == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model needs --batch, the samples of a micro-batch: 1 to ",
        kMostSamples));
  }
  return CheckCount("--batch", flags.micro_batch_samples, kMostSamples);
}

absl::Status AddModelLayers(const PlaygroundFlags& flags, const JobSpec& spec,
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
    layer.backward_seconds = kBackwardByForward * layer.forward_seconds;
    layer.output_bytes = samples * static_cast<double>(described.output_bytes);
    layer.parameter_bytes = static_cast<double>(described.parameter_bytes +
                                                described.borrowed_bytes);
    layer.borrowed_bytes = static_cast<double>(described.borrowed_bytes);
    layer.kept_bytes =
        samples * static_cast<double>(described.activation_bytes);
    problem->layers.push_back(std::move(layer));
  }
  problem->owner_copies = StateSlots(spec.train.optimizer);
  problem->parameter_copies = 2 + problem->owner_copies;
  return absl::OkStatus();
}

// Runs of `parts` whose lengths differ by at most one, longer ones first:
// begins of each, and the end.
std::vector<int> SplitEvenly(int count, int parts) {
  std::vector<int> begins = {0};
  for (int i = 0; i < parts; ++i) {
    begins.push_back(begins.back() + count / parts + (i < count % parts));
  }
  return begins;
}

absl::StatusOr<Placement> Place(const PlaygroundFlags& flags, int layers,
                                int devices) {
  const int stages = flags.stages.value_or(std::min(layers, devices));
  if (stages < 1 || stages > layers) {
    return Wrong("--stages", absl::StrCat(stages),
                 absl::StrCat("1 to ", layers, ", the number of layers"));
  }
  const std::vector<int> cuts = SplitEvenly(layers, stages);
  const std::vector<int> runs = SplitEvenly(stages, std::min(stages, devices));
  Placement placement;
  int device = 0;
  for (int s = 0; s < stages; ++s) {
    if (s == runs[device + 1]) ++device;
    placement.push_back({{cuts[s], cuts[s + 1]}, {device}, {1}});
  }
  return placement;
}

}  // namespace

absl::StatusOr<SimulatedPlan> MakePlayground(const PlaygroundFlags& flags,
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

}  // namespace paceline
