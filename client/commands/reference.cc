#include "client/commands/reference.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/files/settings.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/job_keys.h"
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

std::string SizesText(const Shape& shape) { return absl::StrJoin(shape, "x"); }

Document ParameterDocument(const Parameter& parameter) {
  return {{"name", parameter.name},
          {"shape", parameter.shape},
          {"trainable", parameter.trainable}};
}

Document ToDocument(const ModelDescription& model) {
  int64_t total = 0;
  Document layers = ListOf(model.layers, [&](const Layer& layer) {
    total += Parameters(layer);
    return Document{{"name", layer.name},
                    {"output", layer.output},
                    {"parameters", ListOf(layer.parameters, ParameterDocument)},
                    {"parameter_bytes", layer.parameter_bytes},
                    {"output_bytes", layer.output_bytes},
                    {"activation_bytes", layer.activation_bytes},
                    {"forward_flops", layer.forward_flops}};
  });
  return {{"name", model.name},
          {"input", model.input},
          {"classes", model.classes},
          {"parameters", total},
          {"layers", std::move(layers)}};
}

std::string Render(const ModelDescription& model) {
  Table table({">layer", "name", "output", ">parameters", ">output bytes",
               ">flop/sample"});
  int64_t parameters = 0;
  double flops = 0;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const Layer& layer = model.layers[l];
    table.AddRow(l, layer.name, SizesText(layer.output),
                 HumanCount(Parameters(layer)), HumanBytes(layer.output_bytes),
                 HumanCount(layer.forward_flops));
    parameters += Parameters(layer);
    flops += layer.forward_flops;
  }
  return absl::StrCat(
      table.Render(), "\n", model.name, " for ", SizesText(model.input), ": ",
      Counted(model.layers.size(), "layer"), ", ", HumanCount(parameters),
      " parameters, ", HumanCount(flops), " flop a sample\n");
}

}  // namespace

Outcome ListModelsCommand(Console& console) {
  console.PrintList(absl::StrCat(absl::StrJoin(ModelNames(), "\n"), "\n"),
                    "models", ListOf(ModelNames(), [](const std::string& name) {
                      return Document{{"name", name}};
                    }));
  if (!console.table()) return kExitOk;
  console.Note("layers of one: paceline model inspect NAME");
  console.Note(
      "one of your own: model.name script, model.file a scripted Sequential");
  return kExitOk;
}

bool IsModel(const std::string& word) {
  return absl::c_linear_search(ModelNames(), word);
}

Outcome InspectModelCommand(Console& console, const JobSpec& spec) {
  if (spec.model.name == kScriptModel) {
    return InvalidArgument(
        "a worker has to look into a script: paceline plan "
        "--model script --set model.file=/PATH shows its layers");
  }
  if (!IsModel(spec.model.name)) {
    return NotFound(
        WhyNotAmong("model", spec.model.name, ModelNames()),
        "; and the name of a .safetensors file shows what that holds");
  }
  PACELINE_ASSIGN_OR_RETURN(
      const auto model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  console.Print(Render(model), ToDocument(model));
  return kExitOk;
}

namespace {

// Here and below: values and bytes of all tensors, without the header.
Document ToDocument(const std::string& path, const WeightsSummary& weights,
                    int64_t values, int64_t bytes) {
  Document tensors = ListOf(weights.tensors, [](const TensorPlace& tensor) {
    return Document{{"name", tensor.name},
                    {"dtype", std::string(DTypeName(tensor.dtype))},
                    {"shape", tensor.shape},
                    {"offset", tensor.offset},
                    {"bytes", tensor.bytes}};
  });
  return {{"path", path},
          {"bytes", weights.file_bytes},
          {"sha256", weights.sha256},
          {"values", values},
          {"tensor_bytes", bytes},
          {"metadata", Document(weights.metadata)},
          {"tensors", std::move(tensors)}};
}

std::string Render(const std::string& path, const WeightsSummary& weights,
                   int64_t values, int64_t bytes) {
  Table table({"tensor", "dtype", "shape", ">bytes"});
  for (const TensorPlace& tensor : weights.tensors) {
    table.AddRow(tensor.name, DTypeName(tensor.dtype), ShapeText(tensor.shape),
                 tensor.bytes);
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"file", path},
      {"size", absl::StrCat(weights.file_bytes, " bytes")},
      {"tensors",
       absl::StrCat(weights.tensors.size(), " of ", HumanCount(values),
                    " values, ", bytes, " bytes")},
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

Outcome InspectWeightsCommand(Console& console, const ReadWeights& read,
                              const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const auto weights, read(path));
  int64_t values = 0, bytes = 0;
  for (const TensorPlace& tensor : weights.tensors) {
    values += NumElements(tensor.shape);
    bytes += tensor.bytes;
  }
  console.Print(Render(path, weights, values, bytes),
                ToDocument(path, weights, values, bytes));
  return kExitOk;
}

namespace {

constexpr size_t kColumns = 80;

std::vector<std::string> Words(const char* between_blanks) {
  return absl::StrSplit(between_blanks, ' ', absl::SkipEmpty());
}

bool IsIn(const JobKey& key, const std::string& section) {
  return section.empty() || section == key.path ||
         absl::StartsWith(key.path, section + ".");
}

// "train", "train.optimizer", ...
std::vector<std::string> Sections() {
  std::vector<std::string> sections;
  for (const JobKey& key : JobKeys()) {
    const std::string path = key.path;
    for (size_t dot = path.find('.'); dot != std::string::npos;
         dot = path.find('.', dot + 1)) {
      const std::string section = path.substr(0, dot);
      if (!absl::c_linear_search(sections, section)) {
        sections.push_back(section);
      }
    }
  }
  return sections;
}

// The default, as YAML; empty: key.absent says it.
std::string DefaultText(const JobKey& key) {
  if (*key.absent != '\0') return "";
  JobSpec spec;
  spec.faults.emplace_back();
  return ValueText(key.at(spec, 0));
}

// The keys that are written down: with a default of their own that has an
// effect beside the other defaults.  A list has no elements unless somebody
// writes them.
std::set<std::string> WrittenKeys() {
  std::vector<GivenKey> given;
  for (const JobKey& key : JobKeys()) {
    const bool in_list = absl::StartsWith(key.path, "faults.");
    if (!in_list && !DefaultText(key).empty()) given.push_back({key.path});
  }
  std::set<std::string> written;
  for (const GivenKey& key : given) written.insert(key.path);
  for (const UnusedKey& key : UnusedKeys(JobSpec(), given)) {
    written.erase(key.path);
  }
  return written;
}

// Returns the sentences of the key's comment.
std::string Sentences(const JobKey& key) {
  const std::string range = RangeText(key);
  std::string text = absl::StrCat(key.meaning, " Type: ", TypeText(key),
                                  range.empty() ? "" : ", ", range, ".");
  if (*key.absent != '\0') {
    absl::StrAppend(&text, " Default: ", key.absent, ".");
  }
  if (*key.decider != '\0') {
    absl::StrAppend(&text, " Only with ", key.decider, " ",
                    absl::StrJoin(Words(key.needs), ", "), ".");
  }
  return text;
}

void AppendComment(const std::string& indent, const std::string& text,
                   std::string& out) {
  std::string line = absl::StrCat(indent, "#");
  for (const std::string& word : Words(text.c_str())) {
    if (line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line = absl::StrCat(indent, "#");
    }
    absl::StrAppend(&line, " ", word);
  }
  absl::StrAppend(&out, line, "\n");
}

}  // namespace

std::string JobReference(const std::string& section) {
  std::string out =
      "# All keys of a job file with their defaults; leave out what you do not "
      "change.\n"
      "# A key is commented out where its default needs no writing down, or "
      "where it\n# has no effect beside the other defaults.  To set it, remove "
      "its '# '.\n";
  const std::set<std::string> written = WrittenKeys();
  std::vector<std::string> open;  // the sections around the last key
  for (const JobKey& key : JobKeys()) {
    if (!IsIn(key, section)) continue;
    std::vector<std::string> sections = absl::StrSplit(key.path, '.');
    const std::string name = sections.back();
    sections.pop_back();
    bool first = false;  // of its section
    for (size_t depth = 0; depth < sections.size(); ++depth) {
      if (depth < open.size() && open[depth] == sections[depth]) continue;
      open.resize(depth);
      open.push_back(sections[depth]);
      first = true;
      absl::StrAppend(&out, "\n", std::string(2 * depth, ' '), sections[depth],
                      ":\n");
    }
    open.resize(sections.size());
    const std::string indent(2 * sections.size(), ' ');
    AppendComment(indent, Sentences(key), out);
    const std::string value = DefaultText(key);
    const bool in_list = !sections.empty() && sections[0] == "faults";
    absl::StrAppend(&out, indent, written.contains(key.path) ? "" : "# ",
                    in_list ? (first ? "- " : "  ") : "", name, ":",
                    value.empty() ? "" : " ", value, "\n");
  }
  return out;
}

Document JobReferenceDocument(const std::string& section) {
  Document keys = Document::array();
  for (const JobKey& key : JobKeys()) {
    if (!IsIn(key, section)) continue;
    Document only_with;
    if (*key.decider != '\0') {
      only_with = {{"key", key.decider}, {"values", Words(key.needs)}};
    }
    keys.push_back(Document{{"key", key.path},
                            {"type", TypeText(key)},
                            {"range", OrNull(RangeText(key))},
                            {"default", OrNull(DefaultText(key))},
                            {"absent", key.absent},
                            {"meaning", key.meaning},
                            {"only_with", std::move(only_with)}});
  }
  return {{"keys", std::move(keys)}};
}

Outcome JobKeysCommand(Console& console, const std::string& section) {
  if (!section.empty() && FindJobKey(section) == nullptr) {
    PACELINE_RETURN_IF_ERROR(CheckAmong("", "section", section, Sections()));
  }
  console.Print(JobReference(section), JobReferenceDocument(section));
  return kExitOk;
}

Outcome ListContextsCommand(Console& console) {
  const std::string current = CurrentContext();
  Table table({"", "name", "coordinator"});
  Document documents = Document::array();
  for (const std::string& name : ContextNames()) {
    const auto context = ReadContext(name);
    const std::string host =
        context.ok() ? context->coordinator.value_or("") : "";
    const std::string error(context.status().message());
    table.AddRow(name == current ? "*" : "", name, context.ok() ? host : error);
    documents.push_back(Document{{"name", name},
                                 {"coordinator", OrNull(host)},
                                 {"current", Document(name == current)},
                                 {"error", OrNull(error)}});
  }
  if (console.table() && documents.empty()) {
    console.Note(
        "no contexts yet; make one with 'paceline context set NAME HOST:PORT'");
  }
  console.PrintList(table.Render(), "contexts", std::move(documents));
  return kExitOk;
}

Outcome SetContextCommand(Console& console, const std::string& name,
                          const std::string& coordinator) {
  PACELINE_RETURN_IF_ERROR(SetContext(name, coordinator));
  console.Print("context " + name + " is " + coordinator +
                    "; next: paceline context use " + name + "\n",
                Document{{"name", name}, {"coordinator", coordinator}});
  return kExitOk;
}

Outcome UseContextCommand(Console& console, const std::string& name) {
  PACELINE_RETURN_IF_ERROR(UseContext(name));
  console.Print("in use: " + (name.empty() ? "no context" : name) + "\n",
                Document{{"current", OrNull(name)}});
  return kExitOk;
}

Outcome DeleteContextCommand(Console& console, const std::string& name) {
  PACELINE_RETURN_IF_ERROR(DeleteContext(name));
  console.Print("context " + name + " is deleted\n",
                Document{{"name", name}, {"deleted", Document(true)}});
  return kExitOk;
}

}  // namespace paceline
