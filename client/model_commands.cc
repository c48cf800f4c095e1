#include "client/model_commands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/table.h"
#include "client/text.h"
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

Document ShapeDocument(const Shape& shape) {
  Document::List list;
  for (const int64_t dimension : shape) list.push_back(dimension);
  return list;
}

Document ToDocument(const ModelDescription& model) {
  Document::List layers;
  int64_t total = 0;
  for (const Layer& layer : model.layers) {
    Document::List parameters;
    for (const Parameter& parameter : layer.parameters) {
      parameters.push_back(
          Document::Map{{"name", parameter.name},
                        {"shape", ShapeDocument(parameter.shape)},
                        {"trainable", Document(parameter.trainable)}});
    }
    total += Parameters(layer);
    layers.push_back(Document::Map{{"name", layer.name},
                                   {"output", ShapeDocument(layer.output)},
                                   {"parameters", std::move(parameters)},
                                   {"parameter_bytes", layer.parameter_bytes},
                                   {"output_bytes", layer.output_bytes},
                                   {"activation_bytes", layer.activation_bytes},
                                   {"forward_flops", layer.forward_flops}});
  }
  return Document::Map{{"name", model.name},
                       {"input", ShapeDocument(model.input)},
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
  const std::string meant = DidYouMean(name, ModelNames());
  return absl::NotFoundError(absl::StrCat(
      "there is no model '", Printable(name), "'",
      meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"),
      "; there are: ", absl::StrJoin(ModelNames(), ", "),
      "; and the name of a .safetensors file shows what that holds"));
}

}  // namespace

ExitCode ListModelsCommand(Console& console) {
  if (!console.table()) {
    Document::List models;
    for (const std::string& name : ModelNames()) {
      models.push_back(Document::Map{{"name", name}});
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

}  // namespace paceline
