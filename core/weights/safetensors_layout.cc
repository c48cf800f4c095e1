#include "core/weights/safetensors_layout.h"

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"

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

}  // namespace paceline
