#include "core/weights/safetensors_layout.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/job_model.h"
#include "core/optim/optimizer.h"

namespace paceline {
namespace {

constexpr int64_t kAlignment = 8;
constexpr absl::string_view kMetadataKey = "__metadata__";

std::string MetadataJson(const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> entries;
  for (const auto& [key, value] : metadata) {
    entries.push_back(absl::StrCat(JsonQuoted(key), ":", JsonQuoted(value)));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ","), "}");
}

// `begin` counts from where the data starts, as the format wants it.
std::string TensorJson(const TensorPlace& place, int64_t begin) {
  return absl::StrCat(JsonQuoted(place.name),
                      ":{\"dtype\":", JsonQuoted(DTypeName(place.dtype)),
                      ",\"shape\":[", absl::StrJoin(place.shape, ","),
                      "],\"data_offsets\":[", begin, ",", begin + place.bytes,
                      "]}");
}

// Fills in bytes, and offset counted from where the data starts.  Returns the
// bytes of all.
absl::StatusOr<int64_t> PlaceTensors(std::vector<TensorPlace>& tensors) {
  std::unordered_set<std::string> names;
  int64_t end = 0;
  for (TensorPlace& place : tensors) {
    if (place.name == kMetadataKey || !names.insert(place.name).second) {
      return InvalidArgument("two entries named ", JsonQuoted(place.name));
    }
    if (ElementBytes(place.dtype) == 0) {
      return InvalidArgument("tensor ", JsonQuoted(place.name),
                             " has no dtype");
    }
    place.offset = end;
    place.bytes = TensorBytes(place.dtype, place.shape);
    if (place.bytes < 0 || __builtin_add_overflow(end, place.bytes, &end)) {
      return InvalidArgument("tensor ", JsonQuoted(place.name), " of shape [",
                             absl::StrJoin(place.shape, ","),
                             "] has an impossible size");
    }
  }
  return end;
}

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int64_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

std::string TensorText(const TensorPlace& place) {
  return absl::StrCat(place.name, " of ", DTypeName(place.dtype), "[",
                      absl::StrJoin(place.shape, ","), "]");
}

constexpr char kPredictions[] = "predictions";

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOut(
    std::vector<TensorPlace> tensors,
    const std::map<std::string, std::string>& metadata) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t data_bytes, PlaceTensors(tensors));

  std::vector<std::string> entries;
  if (!metadata.empty()) {
    entries.push_back(
        absl::StrCat(JsonQuoted(kMetadataKey), ":", MetadataJson(metadata)));
  }
  for (const TensorPlace& place : tensors) {
    entries.push_back(TensorJson(place, place.offset));
  }
  std::string json = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  SafetensorsLayout layout;
  layout.header = LittleEndian(json.size()) + json;
  const int64_t header_bytes = static_cast<int64_t>(layout.header.size());
  if (__builtin_add_overflow(header_bytes, data_bytes, &layout.file_bytes)) {
    return InvalidArgument(data_bytes,
                           " bytes of tensors do not fit in a file");
  }
  for (TensorPlace& place : tensors) place.offset += header_bytes;
  layout.tensors = std::move(tensors);
  return layout;
}

std::map<std::string, std::string> MetadataOf(const ModelDescription& model) {
  std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                 {"model", model.name}};
  if (model.pruned) {
    metadata[kSizesKey] =
        absl::StrCat("[", absl::StrJoin(model.sizes, ","), "]");
  }
  metadata.insert(model.made_with.begin(), model.made_with.end());
  return metadata;
}

absl::StatusOr<SafetensorsLayout> LayOut(const ModelDescription& model) {
  std::vector<TensorPlace> tensors;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      tensors.push_back({.name = parameter.name,
                         .dtype = parameter.dtype,
                         .shape = parameter.shape});
    }
  }
  return LayOut(std::move(tensors), MetadataOf(model));
}

absl::StatusOr<StateLayout> LayOutState(const ModelDescription& model,
                                        const OptimizerSpec& optimizer) {
  std::vector<TensorPlace> tensors;
  std::vector<size_t> ends;  // [layers]: one past its last tensor
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const Parameter& parameter : model.layers[i].parameters) {
      tensors.push_back({parameter.name, parameter.dtype, parameter.shape});
      const int slots = parameter.trainable ? StateSlots(optimizer) : 0;
      for (int slot = 0; slot < slots; ++slot) {
        tensors.push_back({absl::StrCat(parameter.name, ".optimizer.", slot),
                           parameter.dtype, parameter.shape});
      }
    }
    for (const Parameter& parameter : model.layers[i].borrowed) {
      tensors.push_back(
          {absl::StrCat("layer.", i, ".borrowed.", parameter.name),
           parameter.dtype, parameter.shape});
    }
    ends.push_back(tensors.size());
  }
  StateLayout layout;
  PACELINE_ASSIGN_OR_RETURN(
      layout.file,
      LayOut(std::move(tensors), {{"format", "pt"}, {"model", model.name}}));
  layout.made_with = model.made_with;
  int64_t offset = static_cast<int64_t>(layout.file.header.size());
  for (const size_t end : ends) {
    const int64_t next = end == 0 ? offset
                                  : layout.file.tensors[end - 1].offset +
                                        layout.file.tensors[end - 1].bytes;
    layout.layers.push_back({offset, next - offset});
    offset = next;
  }
  return layout;
}

absl::Status CheckSameState(const StateLayout& has, const StateLayout& wants) {
  if (has.layers.size() != wants.layers.size()) {
    return InvalidArgument("it has ", has.layers.size(),
                           " layers, the job's model has ",
                           wants.layers.size());
  }
  const std::vector<TensorPlace>& a = has.file.tensors;
  const std::vector<TensorPlace>& b = wants.file.tensors;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string left = i < a.size() ? TensorText(a[i]) : "nothing";
    const std::string right = i < b.size() ? TensorText(b[i]) : "nothing";
    if (left == right) continue;
    return InvalidArgument("it has ", left, " where the job's model has ",
                           right);
  }
  std::vector<std::string> said_by_client;
  return CheckMadeWith(has.made_with, wants.made_with, /*reset_head=*/false,
                       said_by_client);
}

std::vector<uint8_t> SkippedRow(const ModelDescription& model,
                                const InferSpec& infer) {
  bool any = infer.tolerate == "skip";
  std::vector<uint8_t> row;
  for (const Layer& layer : model.layers) {
    if (layer.block < 0) continue;
    row.resize(layer.block + 1);
    row[layer.block] = layer.skipped ? 1 : 0;
    any = any || layer.skipped;
  }
  return any ? row : std::vector<uint8_t>();
}

absl::StatusOr<SafetensorsLayout> LayOutPredictions(
    const ModelDescription& model, const InferSpec& infer, int64_t samples,
    const PredictedNameBytes& names) {
  const Shape& output = model.layers.back().output;
  // A class for each of these.
  Shape each = Batched(samples, output);
  if (!output.empty()) each.pop_back();
  std::vector<TensorPlace> tensors;
  for (const char* const name : {kPredictedClasses, kPredictedLabels}) {
    tensors.push_back({.name = name, .dtype = DType::kI64, .shape = each});
  }
  if (infer.outputs) {
    tensors.push_back(
        {.name = kPredictedOutputs, .shape = Batched(samples, output)});
  }
  const auto blocks = static_cast<int64_t>(SkippedRow(model, infer).size());
  if (blocks > 0) {
    tensors.push_back({.name = kPredictedSkipped,
                       .dtype = DType::kU8,
                       .shape = {samples, blocks}});
  }
  // Last, since all others have to begin at a multiple of their elements.
  for (const auto& [name, bytes] :
       {std::pair(kPredictedFiles, names.files),
        std::pair(kPredictedClassNames, names.class_names)}) {
    if (bytes == 0) continue;
    tensors.push_back({.name = name, .dtype = DType::kU8, .shape = {bytes}});
  }
  absl::StatusOr<SafetensorsLayout> layout = LayOut(
      std::move(tensors),
      {{"format", "pt"}, {"model", model.name}, {"content", kPredictions}});
  if (layout.ok()) layout->content = kPredictions;
  return layout;
}

}  // namespace paceline
