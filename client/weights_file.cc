#include "client/weights_file.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/table.h"
#include "client/text.h"

namespace paceline {
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
  Document::List tensors;
  for (const TensorPlace& tensor : weights.tensors) {
    Document::List shape(tensor.shape.begin(), tensor.shape.end());
    tensors.push_back(
        Document::Map{{"name", tensor.name},
                      {"dtype", std::string(DTypeName(tensor.dtype))},
                      {"shape", std::move(shape)},
                      {"offset", tensor.offset},
                      {"bytes", tensor.bytes}});
  }
  Document::Map metadata;
  for (const auto& [key, value] : weights.metadata) {
    metadata.emplace_back(key, value);
  }
  const Totals totals = Add(weights);
  return Document::Map{{"path", path},
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
