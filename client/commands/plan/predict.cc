#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/plan/plan.h"
#include "client/files/whole_file.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/predict/layer_predictor.h"
#include "core/predict/time_predictor.h"

namespace paceline {

namespace {

absl::StatusOr<TimePredictor> FitFiles(const std::vector<std::string>& files) {
  std::vector<TimingTable> tables;
  for (const std::string& file : files) {
    PACELINE_ASSIGN_OR_RETURN(const std::string text,
                              ReadWholeFile(file, kMaxTimingFileBytes));
    PACELINE_ASSIGN_OR_RETURN(TimingTable table, ParseTimingCsv(file, text));
    tables.push_back(std::move(table));
  }
  return TimePredictor(BuildCurves(tables));
}

// "COLUMN=VALUE,...,SIZE_COLUMN=NUMBER".
// Errors: InvalidArgument  a part without '=', no or two sizes, a size that is
//                          no number
absl::StatusOr<TimeQuery> ParseTimeQuery(absl::string_view text) {
  const auto error = [&](absl::string_view what) {
    return InvalidArgument("--at ", Printable(text), ": ", what);
  };
  TimeQuery query;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first.empty() || pair.first.size() == part.size()) {
      return error(absl::StrCat("'", Printable(part),
                                "' is not of the form COLUMN=VALUE"));
    }
    if (!IsSizeColumn(pair.first)) {
      query.features.emplace_back(pair.first, pair.second);
      continue;
    }
    if (!query.size_column.empty()) {
      return error(absl::StrCat("has two sizes, ", query.size_column, " and ",
                                pair.first));
    }
    query.size_column = std::string(pair.first);
    if (!absl::SimpleAtod(pair.second, &query.size)) {
      return error(absl::StrCat(pair.first, " '", Printable(pair.second),
                                "' is no number"));
    }
  }
  if (query.size_column.empty()) return error("needs a size, as elements=4096");
  return query;
}

struct Asked {
  std::string at;
  TimePrediction prediction;
};

absl::StatusOr<std::vector<Asked>> Ask(const TimePredictor& predictor,
                                       const std::vector<std::string>& at) {
  std::vector<Asked> asked;
  for (const std::string& text : at) {
    PACELINE_ASSIGN_OR_RETURN(const TimeQuery query, ParseTimeQuery(text));
    PACELINE_ASSIGN_OR_RETURN(const TimePrediction prediction,
                              predictor.Predict(query));
    asked.push_back({text, prediction});
  }
  return asked;
}

// --- documents --------------------------------------------------------------

// `error` after the keys of `before`.
Document WithError(Document before, const RelativeError& error) {
  before["mean_relative_error"] = error.mean;
  before["median_relative_error"] = error.median;
  return before;
}

Document ToDocument(const Evaluation& result, const std::vector<Asked>& asked) {
  Document document = WithError({{"points", result.interior.points}},
                                result.interior.predicted);
  document["heldout_curves"] = WithError(
      {{"curves", result.heldout_curves}, {"points", result.heldout.points}},
      result.heldout.predicted);
  document["heldout_curves"]["interval_coverage"] = result.heldout_coverage;
  document["line"] = WithError({}, result.interior.line);
  document["decades"] = ListOf(result.decades, [](const DecadeErrors& decade) {
    Document one = WithError({{"size", decade.size_column},
                              {"from", decade.from},
                              {"to", decade.to},
                              {"points", decade.errors.points}},
                             decade.errors.predicted);
    one["line"] = WithError({}, decade.errors.line);
    return one;
  });
  document["interval_level"] = kIntervalLevel;
  document["interval_coverage"] = result.interior_coverage;
  document["curves"] = result.curves;
  document["copied_curves"] = result.copied_curves;
  document["measured_points"] = result.measured_points;
  document["dropped_rows"] = result.dropped_rows;
  document["sampled"] = result.sampled;
  document["predictions"] = ListOf(asked, [](const Asked& one) {
    const TimePrediction& time = one.prediction;
    return Document{{"at", one.at},
                    {"seconds", time.seconds},
                    {"low_seconds", time.low_seconds},
                    {"high_seconds", time.high_seconds},
                    {"basis", std::string(TimeBasisName(time.basis))}};
  });
  return document;
}

// --- tables -----------------------------------------------------------------

// "1.88 %"; "-" where nothing was measured.
std::string Percent(double part) {
  if (std::isnan(part)) return "-";
  return absl::StrFormat("%.3g %%", 100 * part);
}

std::string ErrorText(const RelativeError& error) {
  return absl::StrCat("mean ", Percent(error.mean), ", median ",
                      Percent(error.median));
}

std::string DecadesTable(const std::vector<DecadeErrors>& decades) {
  Table table({"size", ">from", ">to", ">points", ">mean error", ">median",
               ">line's mean", ">line's median"});
  for (const auto& [size_column, from, to, errors] : decades) {
    table.AddRow(size_column, HumanNumber(from), HumanNumber(to), errors.points,
                 Percent(errors.predicted.mean),
                 Percent(errors.predicted.median), Percent(errors.line.mean),
                 Percent(errors.line.median));
  }
  return table.Render();
}

std::string PredictionsTable(const std::vector<Asked>& asked) {
  Table table({"at", ">seconds", ">from", ">to", "basis"});
  for (const Asked& one : asked) {
    table.AddRow(one.at, HumanNumber(one.prediction.seconds),
                 HumanNumber(one.prediction.low_seconds),
                 HumanNumber(one.prediction.high_seconds),
                 TimeBasisName(one.prediction.basis));
  }
  return table.Render();
}

std::string Render(const Evaluation& result, const std::vector<Asked>& asked) {
  return absl::StrCat(
      DecadesTable(result.decades), "\n",
      RenderFacts(
          {{"points left out",
            absl::StrCat(result.interior.points, ": ",
                         ErrorText(result.interior.predicted))},
           {"one line a curve", ErrorText(result.interior.line)},
           {"curves left out",
            absl::StrCat(result.heldout_curves, " (",
                         Counted(result.heldout.points, "point"),
                         "): ", ErrorText(result.heldout.predicted))},
           {"in their interval",
            absl::StrCat("points ", Percent(result.interior_coverage),
                         ", curves ", Percent(result.heldout_coverage),
                         ", meant ", Percent(kIntervalLevel))},
           {"fitted",
            absl::StrCat(Counted(result.measured_points, "point"), " of ",
                         Counted(result.curves, "curve"),
                         ", copies of others: ", result.copied_curves)}}),
      asked.empty() ? "" : absl::StrCat("\n", PredictionsTable(asked)));
}

void NoteWhatWasLeft(Console& console, const Evaluation& result) {
  if (result.dropped_rows > 0) {
    console.Note("note: ", Counted(result.dropped_rows, "row"),
                 result.dropped_rows == 1 ? " has" : " have",
                 " a time that is not finite and positive; left aside");
  }
  if (result.sampled) {
    console.Note("note: not all points were left out, but ",
                 result.interior.points, ", evenly taken");
  }
}

}  // namespace

Outcome PredictFitCommand(Console& console, const PredictFitOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(const auto predictor, FitFiles(options.files));
  PACELINE_ASSIGN_OR_RETURN(const auto asked, Ask(predictor, options.at));
  const Evaluation& result = predictor.evaluation();
  NoteWhatWasLeft(console, result);
  console.Print(Render(result, asked), ToDocument(result, asked));
  return kExitOk;
}

namespace {

struct Pass {
  LayerPass pass;
  const char* name;
  MeasuredSeconds LayerMeasurement::*measured;
};

constexpr Pass kPasses[] = {
    {LayerPass::kForward, "forward", &LayerMeasurement::forward},
    {LayerPass::kBackward, "backward", &LayerMeasurement::backward}};

struct PredictedPass {
  LayerPrediction predicted;
  double measured_seconds = 0;  // meaningful where the device was measured
};

struct PredictedLayer {
  std::string name;
  std::string kind;
  PredictedPass passes[std::size(kPasses)];
};

// Seconds are CPU seconds where a quota limits the device, as the planner takes
// them; else those of the wall clock.
struct PredictedDevice {
  std::string device = {};
  bool measured = false;  // this model, micro-batch and threads, here
  // The prediction comes from other measurements than the one beside it; false
  // where there is no other.
  bool independent = true;
  // A quota leaves a busy thread this share, as a profile of this device says.
  double cpu_share = 1;
  std::vector<PredictedLayer> layers = {};
  double total_seconds = 0;
  double total_measured_seconds = 0;

  bool is_of_cpu() const { return cpu_share < 1; }
};

// By the profile of `key`, else by any other of its device; 1: none is known.
double CpuShareOf(const Measurements& measurements, const ProfileKey& key) {
  const auto found = measurements.profiles.find(key);
  if (found != measurements.profiles.end()) return found->second.cpu_share;
  for (const auto& [other, profile] : measurements.profiles) {
    if (other.device == key.device) return profile.cpu_share;
  }
  return 1;
}

// Those that are attached or were measured.
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

// Errors: NotFound  nothing was ever measured
absl::StatusOr<PredictedDevice> PredictDevice(
    const JobSpec& spec, const ModelDescription& model,
    const std::string& device, const Measurements& measurements) {
  const ProfileKey key{ModelKey(spec.model, model.input, model.classes),
                       spec.train.micro_batch, ProfileDType(spec.precision),
                       spec.threads, device};
  PredictedDevice result{.device = device};
  Measurements others = measurements;
  others.profiles.erase(key);
  absl::StatusOr<LayerPredictor> predictor =
      LayerPredictor::Fit(RecordsOf(others));
  if (!predictor.ok()) {
    result.independent = false;
    predictor = LayerPredictor::Fit(RecordsOf(measurements));
  }
  if (!predictor.ok()) {
    return NotFound(
        "nothing was measured yet that layer times could be predicted from: "
        "run 'paceline profile --model ",
        Printable(spec.model.name), " --batch ", spec.train.micro_batch, "'");
  }
  result.cpu_share = CpuShareOf(measurements, key);
  const auto found = measurements.profiles.find(key);
  result.measured = found != measurements.profiles.end() &&
                    found->second.layers.size() == model.layers.size();
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    PredictedLayer& into = result.layers.emplace_back(
        PredictedLayer{layer.name, MainOperation(layer), {}});
    for (size_t p = 0; p < std::size(kPasses); ++p) {
      PredictedPass& pass = into.passes[p];
      const LayerWork work = WorkOf(spec, layer, device, kPasses[p].pass);
      PACELINE_ASSIGN_OR_RETURN(pass.predicted, predictor->Predict(work));
      result.total_seconds += pass.predicted.seconds;
      if (!result.measured) continue;
      const DeviceProfile& profile = found->second;
      pass.measured_seconds =
          SecondsOf(profile.layers[i].*kPasses[p].measured, profile);
      result.total_measured_seconds += pass.measured_seconds;
    }
  }
  return result;
}

absl::StatusOr<std::vector<PredictedDevice>> PredictAll(
    ControlClient& client, const JobSpec& spec, const std::string& wanted) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  PACELINE_ASSIGN_OR_RETURN(const Measurements measurements,
                            client.ListMeasurements(""));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                            LiveWorkers(client));
  std::vector<std::string> devices = KnownDevices(live, measurements);
  if (!wanted.empty()) {
    if (!absl::c_linear_search(devices, wanted)) {
      return NotFound("no worker '", Printable(wanted),
                      "' is attached or was ever measured; known are: ",
                      devices.empty() ? "none" : absl::StrJoin(devices, ", "));
    }
    devices = {wanted};
  }
  std::vector<PredictedDevice> predicted;
  for (const std::string& device : devices) {
    PACELINE_ASSIGN_OR_RETURN(PredictedDevice one,
                              PredictDevice(spec, model, device, measurements));
    predicted.push_back(std::move(one));
  }
  if (predicted.empty()) {
    return NotFound(
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
      NullUnless(measured, pass.measured_seconds);
}

Document ToDocument(const PredictedDevice& device) {
  Document layers = Document::array();
  for (const PredictedLayer& layer : device.layers) {
    Document& one = layers.emplace_back(
        Document{{"name", layer.name}, {"kind", layer.kind}});
    for (size_t p = 0; p < std::size(kPasses); ++p) {
      AddPass(kPasses[p].name, layer.passes[p], device.measured, one);
    }
  }
  return {{"device", device.device},
          {"total_seconds", device.total_seconds},
          {"total_measured_seconds",
           NullUnless(device.measured, device.total_measured_seconds)},
          {"independent", device.independent},
          {"clock", device.is_of_cpu() ? "cpu" : "wall"},
          {"interval_level", kIntervalLevel},
          {"layers", std::move(layers)}};
}

std::string Render(const PredictedDevice& device) {
  const std::string ms = device.is_of_cpu() ? "cpu ms" : "wall ms";
  Table table({"layer", "kind", ">forward " + ms, ">interval", "from",
               ">measured " + ms, ">backward " + ms, ">interval", "from",
               ">measured " + ms});
  for (const PredictedLayer& layer : device.layers) {
    std::vector<std::string> row = {layer.name, layer.kind};
    for (const auto& [predicted, measured_seconds] : layer.passes) {
      row.push_back(absl::StrFormat("%.3f", predicted.seconds * 1e3));
      row.push_back(absl::StrFormat("%.3f-%.3f", predicted.low_seconds * 1e3,
                                    predicted.high_seconds * 1e3));
      row.emplace_back(LayerLevelName(predicted.level));
      row.push_back(device.measured
                        ? absl::StrFormat("%.3f", measured_seconds * 1e3)
                        : "-");
    }
    table.AddRow(std::move(row));
  }
  return absl::StrCat(
      Printable(device.device), "\n", table.Render(),
      "all: ", HumanSeconds(device.total_seconds), " a micro-batch predicted",
      device.measured
          ? absl::StrCat(", ", HumanSeconds(device.total_measured_seconds),
                         " measured")
          : "",
      device.independent ? "" : ", from this measurement itself",
      device.is_of_cpu()
          ? absl::StrFormat(
                "; CPU time, of which a quota leaves %.2f s a second",
                device.cpu_share)
          : "",
      "\n");
}

}  // namespace

Outcome PredictModelCommand(const CommandContext& context, const JobSpec& spec,
                            const std::string& wanted) {
  Console& console = context.console;
  PACELINE_ASSIGN_OR_RETURN(const auto predicted,
                            PredictAll(context.client, spec, wanted));
  const std::string text =
      Joined(predicted, "\n",
             [](const PredictedDevice& device) { return Render(device); });
  console.PrintList(text, "devices",
                    ListOf(predicted, [](const PredictedDevice& device) {
                      return ToDocument(device);
                    }));
  if (!console.table()) return kExitOk;
  console.Note(
      absl::StrFormat("intervals hold the true time in about %.0f %% of cases",
                      100 * kIntervalLevel));
  return kExitOk;
}

}  // namespace paceline
