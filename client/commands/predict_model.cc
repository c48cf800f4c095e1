#include "client/commands/predict_model.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/profile.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"
#include "core/model/precision.h"
#include "core/predict/curve_error.h"

namespace paceline {
namespace {

constexpr LayerPass kPasses[] = {LayerPass::kForward, LayerPass::kBackward};

absl::StatusOr<LayerPredictor> FitWithout(const Measurements& measurements,
                                          const ProfileKey& key) {
  Measurements others = measurements;
  others.profiles.erase(key);
  return LayerPredictor::Fit(RecordsOf(others));
}

double MeasuredSecondsOf(const DeviceProfile& profile, size_t layer,
                         LayerPass pass) {
  const LayerMeasurement& measured = profile.layers[layer];
  const MeasuredSeconds& seconds =
      pass == LayerPass::kForward ? measured.forward : measured.backward;
  return profile.cpu_share < 1 ? seconds.cpu : seconds.wall;
}

// By the profile of `key`, else by any other of its device; 1: none is known.
double CpuShareOf(const Measurements& measurements, const ProfileKey& key) {
  const auto found = measurements.profiles.find(key);
  if (found != measurements.profiles.end()) return found->second.cpu_share;
  for (const auto& [other, profile] : measurements.profiles) {
    if (other.device == key.device) return profile.cpu_share;
  }
  return 1;
}

bool IsOfCpu(const PredictedDevice& device) { return device.cpu_share < 1; }

struct Totals {
  double predicted = 0;
  double measured = 0;
};

Totals TotalsOf(const PredictedDevice& device) {
  Totals totals;
  for (const PredictedLayer& layer : device.layers) {
    for (const PredictedPass* pass : {&layer.forward, &layer.backward}) {
      totals.predicted += pass->predicted.seconds;
      totals.measured += pass->measured_seconds;
    }
  }
  return totals;
}

// Lists what each profile was measured of, for a person who asked for something
// else.
std::vector<std::string> KnownDevices(const std::vector<v1::Worker>& live,
                                      const Measurements& measurements) {
  std::set<std::string> names;
  for (const v1::Worker& worker : live) {
    names.insert(worker.registration().name());
  }
  for (const auto& [key, profile] : measurements.profiles) {
    names.insert(key.device);
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<std::vector<PredictedDevice>> PredictAll(
    MeasureClient& measure, const JobSpec& spec,
    const PredictModelOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  PACELINE_ASSIGN_OR_RETURN(const Measurements measurements,
                            measure.ListMeasurements(""));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                            LiveWorkers(measure));
  std::vector<std::string> devices = KnownDevices(live, measurements);
  if (!options.device.empty()) {
    if (std::find(devices.begin(), devices.end(), options.device) ==
        devices.end()) {
      return absl::NotFoundError(absl::StrCat(
          "no worker '", Printable(options.device),
          "' is attached or was ever measured; known are: ",
          devices.empty() ? "none" : absl::StrJoin(devices, ", ")));
    }
    devices = {options.device};
  }
  std::vector<PredictedDevice> predicted;
  for (const std::string& device : devices) {
    PACELINE_ASSIGN_OR_RETURN(PredictedDevice one,
                              PredictDevice(spec, model, device, measurements));
    predicted.push_back(std::move(one));
  }
  if (predicted.empty()) {
    return absl::NotFoundError(
        "no worker is attached and nothing was measured yet: start a worker "
        "and run 'paceline profile --model MODEL --batch B'");
  }
  return predicted;
}

void AddPass(const std::string& name, const PredictedPass& pass, bool measured,
             Document& into) {
  into[name + "_seconds"] = pass.predicted.seconds;
  into[name + "_low_seconds"] = pass.predicted.low_seconds;
  into[name + "_high_seconds"] = pass.predicted.high_seconds;
  into[name + "_level"] = std::string(LayerLevelName(pass.predicted.level));
  into[name + "_measured_seconds"] =
      measured ? Document(pass.measured_seconds) : Document();
}

Document ToDocument(const PredictedDevice& device) {
  Document layers = Document::array();
  for (const PredictedLayer& layer : device.layers) {
    Document& one = layers.emplace_back(
        Document{{"name", layer.name}, {"kind", layer.kind}});
    AddPass("forward", layer.forward, device.measured, one);
    AddPass("backward", layer.backward, device.measured, one);
  }
  const Totals totals = TotalsOf(device);
  return {{"device", device.device},
          {"total_seconds", totals.predicted},
          {"total_measured_seconds",
           device.measured ? Document(totals.measured) : Document()},
          {"independent", device.independent},
          {"clock", IsOfCpu(device) ? "cpu" : "wall"},
          {"interval_level", kIntervalLevel},
          {"layers", std::move(layers)}};
}

std::vector<std::string> PassCells(const PredictedPass& pass, bool measured) {
  const LayerPrediction& predicted = pass.predicted;
  return {
      absl::StrFormat("%.3f", predicted.seconds * 1e3),
      absl::StrFormat("%.3f-%.3f", predicted.low_seconds * 1e3,
                      predicted.high_seconds * 1e3),
      std::string(LayerLevelName(predicted.level)),
      measured ? absl::StrFormat("%.3f", pass.measured_seconds * 1e3) : "-"};
}

std::string Render(const PredictedDevice& device) {
  constexpr Table::Align kRight = Table::Align::kRight;
  const std::string ms = IsOfCpu(device) ? "cpu ms" : "wall ms";
  Table table({{"layer"},
               {"kind"},
               {"forward " + ms, kRight},
               {"interval", kRight},
               {"from"},
               {"measured " + ms, kRight},
               {"backward " + ms, kRight},
               {"interval", kRight},
               {"from"},
               {"measured " + ms, kRight}});
  for (const PredictedLayer& layer : device.layers) {
    std::vector<std::string> row = {layer.name, layer.kind};
    for (const PredictedPass* pass : {&layer.forward, &layer.backward}) {
      for (std::string& cell : PassCells(*pass, device.measured)) {
        row.push_back(std::move(cell));
      }
    }
    table.AddRow(std::move(row));
  }
  const Totals totals = TotalsOf(device);
  return absl::StrCat(
      Printable(device.device), "\n", table.Render(),
      "all: ", HumanSeconds(totals.predicted), " a micro-batch predicted",
      device.measured
          ? absl::StrCat(", ", HumanSeconds(totals.measured), " measured")
          : "",
      device.independent ? "" : ", from this measurement itself",
      IsOfCpu(device)
          ? absl::StrFormat(
                "; CPU time, of which a quota leaves %.2f s a second",
                device.cpu_share)
          : "",
      "\n");
}

}  // namespace

absl::StatusOr<PredictedDevice> PredictDevice(
    const JobSpec& spec, const ModelDescription& model,
    const std::string& device, const Measurements& measurements) {
  const ProfileKey key{ModelKey(spec.model, model.input, model.classes),
                       spec.train.micro_batch, ProfileDType(spec.precision),
                       spec.threads, device};
  PredictedDevice result{.device = device, .layers = {}};
  absl::StatusOr<LayerPredictor> predictor = FitWithout(measurements, key);
  if (!predictor.ok()) {
    result.independent = false;
    predictor = LayerPredictor::Fit(RecordsOf(measurements));
  }
  if (!predictor.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "nothing was measured yet that layer times could be predicted from: "
        "run 'paceline profile --model ",
        Printable(spec.model.name), " --batch ", spec.train.micro_batch, "'"));
  }
  result.cpu_share = CpuShareOf(measurements, key);
  const auto found = measurements.profiles.find(key);
  result.measured = found != measurements.profiles.end() &&
                    found->second.layers.size() == model.layers.size();
  for (size_t i = 0; i < model.layers.size(); ++i) {
    PredictedLayer layer{.name = model.layers[i].name,
                         .kind = MainOperation(model.layers[i]),
                         .forward = {},
                         .backward = {}};
    for (const LayerPass pass : kPasses) {
      PredictedPass& into =
          pass == LayerPass::kForward ? layer.forward : layer.backward;
      PACELINE_ASSIGN_OR_RETURN(
          into.predicted,
          predictor->Predict(WorkOf(spec, model.layers[i], device, pass)));
      if (result.measured) {
        into.measured_seconds = MeasuredSecondsOf(found->second, i, pass);
      }
    }
    result.layers.push_back(std::move(layer));
  }
  return result;
}

ExitCode PredictModelCommand(const CommandContext& context,
                             MeasureClient& measure, const JobSpec& spec,
                             const PredictModelOptions& options) {
  Console& console = context.console;
  const auto predicted = PredictAll(measure, spec, options);
  if (!predicted.ok()) return ReportError(console, predicted.status());
  if (!console.table()) {
    Document list = Document::array();
    for (const PredictedDevice& device : *predicted) {
      list.push_back(ToDocument(device));
    }
    console.PrintList("devices", std::move(list));
    return kExitOk;
  }
  std::string text;
  for (const PredictedDevice& device : *predicted) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Render(device));
  }
  console.Print(text);
  console.Note(
      absl::StrFormat("intervals hold the true time in about %.0f %% of cases",
                      100 * kIntervalLevel));
  return kExitOk;
}

}  // namespace paceline
