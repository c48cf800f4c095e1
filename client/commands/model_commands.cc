#include "client/commands/model_commands.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/command.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"

namespace paceline {

namespace {

int64_t Parameters(const Layer& layer) {
  int64_t count = 0;
  for (const Parameter& parameter : layer.parameters) {
    count += NumElements(parameter.shape);
  }
  return count;
}

std::string ShapeText(const Shape& shape) { return absl::StrJoin(shape, "x"); }

Document ToDocument(const ModelDescription& model) {
  Document layers = Document::array();
  int64_t total = 0;
  for (const Layer& layer : model.layers) {
    Document parameters = Document::array();
    for (const Parameter& parameter : layer.parameters) {
      parameters.push_back(Document{{"name", parameter.name},
                                    {"shape", parameter.shape},
                                    {"trainable", parameter.trainable}});
    }
    total += Parameters(layer);
    layers.push_back(Document{{"name", layer.name},
                              {"output", layer.output},
                              {"parameters", std::move(parameters)},
                              {"parameter_bytes", layer.parameter_bytes},
                              {"output_bytes", layer.output_bytes},
                              {"activation_bytes", layer.activation_bytes},
                              {"forward_flops", layer.forward_flops}});
  }
  return {{"name", model.name},
          {"input", model.input},
          {"classes", model.classes},
          {"parameters", total},
          {"layers", std::move(layers)}};
}

std::string Render(const ModelDescription& model) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{"layer", kRight},
               {"name"},
               {"output"},
               {"parameters", kRight},
               {"output bytes", kRight},
               {"flop/sample", kRight}});
  int64_t parameters = 0;
  double flops = 0;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const Layer& layer = model.layers[l];
    table.AddRow({absl::StrCat(l), layer.name, ShapeText(layer.output),
                  HumanCount(static_cast<double>(Parameters(layer))),
                  HumanBytes(static_cast<double>(layer.output_bytes)),
                  HumanCount(layer.forward_flops)});
    parameters += Parameters(layer);
    flops += layer.forward_flops;
  }
  return absl::StrCat(table.Render(), "\n", model.name, " for ",
                      ShapeText(model.input), ": ", model.layers.size(),
                      " layers, ", HumanCount(static_cast<double>(parameters)),
                      " parameters, ", HumanCount(flops), " flop a sample\n");
}

absl::Status NoSuchModel(const std::string& name) {
  return absl::NotFoundError(absl::StrCat(
      WhyNotAmong("model", name, ModelNames()),
      "; and the name of a .safetensors file shows what that holds"));
}

}  // namespace

ExitCode ListModelsCommand(Console& console) {
  if (!console.table()) {
    Document models = Document::array();
    for (const std::string& name : ModelNames()) {
      models.push_back(Document{{"name", name}});
    }
    console.PrintList("models", std::move(models));
    return kExitOk;
  }
  console.Print(absl::StrCat(absl::StrJoin(ModelNames(), "\n"), "\n"));
  console.Note("layers of one: paceline model inspect NAME");
  console.Note(
      "one of your own: model.name script, model.file a scripted Sequential");
  return kExitOk;
}

bool IsModel(const std::string& word) {
  const std::vector<std::string> names = ModelNames();
  return std::find(names.begin(), names.end(), word) != names.end();
}

ExitCode InspectModelCommand(Console& console, const JobSpec& spec) {
  if (spec.model.name == kScriptModel) {
    return ReportError(
        console, absl::InvalidArgumentError(
                     "a script is looked into by a worker: paceline plan "
                     "--model script --set model.file=/PATH shows its layers"));
  }
  if (!IsModel(spec.model.name)) {
    return ReportError(console, NoSuchModel(spec.model.name));
  }
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  if (!model.ok()) return ReportError(console, model.status());
  if (console.table()) {
    console.Print(Render(*model));
  } else {
    console.Print(ToDocument(*model));
  }
  return kExitOk;
}

namespace {

struct Totals {
  int64_t values = 0;
  int64_t bytes = 0;  // without the header
};

Totals Add(const WeightsSummary& weights) {
  Totals totals;
  for (const TensorPlace& tensor : weights.tensors) {
    totals.values += NumElements(tensor.shape);
    totals.bytes += tensor.bytes;
  }
  return totals;
}

Document ToDocument(const std::string& path, const WeightsSummary& weights) {
  Document tensors = Document::array();
  for (const TensorPlace& tensor : weights.tensors) {
    tensors.push_back(Document{{"name", tensor.name},
                               {"dtype", std::string(DTypeName(tensor.dtype))},
                               {"shape", tensor.shape},
                               {"offset", tensor.offset},
                               {"bytes", tensor.bytes}});
  }
  Document metadata = Document::object();
  for (const auto& [key, value] : weights.metadata) metadata[key] = value;
  const Totals totals = Add(weights);
  return {{"path", path},
          {"bytes", weights.file_bytes},
          {"sha256", weights.sha256},
          {"values", totals.values},
          {"tensor_bytes", totals.bytes},
          {"metadata", std::move(metadata)},
          {"tensors", std::move(tensors)}};
}

std::string Render(const std::string& path, const WeightsSummary& weights) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{"tensor"}, {"dtype"}, {"shape"}, {"bytes", kRight}});
  for (const TensorPlace& tensor : weights.tensors) {
    table.AddRow({tensor.name, std::string(DTypeName(tensor.dtype)),
                  absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]"),
                  absl::StrCat(tensor.bytes)});
  }
  const Totals totals = Add(weights);
  std::vector<std::pair<std::string, std::string>> facts = {
      {"file", path},
      {"size", absl::StrCat(weights.file_bytes, " bytes")},
      {"tensors", absl::StrCat(weights.tensors.size(), " of ",
                               HumanCount(static_cast<double>(totals.values)),
                               " values, ", totals.bytes, " bytes")},
      {"sha256", weights.sha256}};
  for (const auto& [key, value] : weights.metadata) {
    facts.emplace_back(absl::StrCat("metadata ", Printable(key)), value);
  }
  return absl::StrCat(table.Render(), "\n", RenderFacts(facts));
}

}  // namespace

bool LooksLikeWeightsFile(const std::string& word) {
  std::error_code ignored;
  return absl::EndsWith(word, ".safetensors") ||
         std::filesystem::exists(word, ignored);
}

ExitCode InspectWeightsCommand(Console& console, WeightsFileReader& reader,
                               const std::string& path) {
  const auto weights = reader.Summarize(path);
  if (!weights.ok()) return ReportError(console, weights.status());
  if (console.table()) {
    console.Print(Render(path, *weights));
  } else {
    console.Print(ToDocument(path, *weights));
  }
  return kExitOk;
}

}  // namespace paceline
