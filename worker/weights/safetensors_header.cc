#include "worker/weights/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr size_t kMaxRank = 16;
constexpr size_t kMaxNameInMessage = 80;

std::string Shown(absl::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kMaxNameInMessage)),
                      "'");
}

// Takes the parser's events.  Every method returns false to end the parsing;
// error() then says why.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  const absl::Status& error() const { return error_; }

  bool start_object(size_t) override {
    switch (at_) {
      case At::kBegin:
        at_ = At::kTop;
        return true;
      case At::kEntry:
        at_ = name_ == "__metadata__" ? At::kMetadata : At::kTensor;
        place_ = Place();
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& text) override {
    switch (at_) {
      case At::kTop:
        if (!names_.insert(text).second) {
          return Fail(absl::StrCat("two entries named ", Shown(text)));
        }
        name_ = text;
        at_ = At::kEntry;
        return true;
      case At::kMetadata:
        metadata_key_ = text;
        at_ = At::kMetadataValue;
        return true;
      case At::kTensor:
        return TensorKey(text);
      default:
        return Unexpected("a key");
    }
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      if (!header_.metadata.emplace(metadata_key_, text).second) {
        return Fail(
            absl::StrCat("two metadata entries named ", Shown(metadata_key_)));
      }
      at_ = At::kMetadata;
      return true;
    }
    if (at_ != At::kDType) return Unexpected("a string");
    // Masks, a byte a value.
    place_.dtype = text == "BOOL" ? DType::kU8 : DTypeFromName(text);
    if (!place_.dtype) {
      return Fail(absl::StrCat("tensor ", Shown(name_), ": unknown dtype ",
                               Shown(text)));
    }
    at_ = At::kTensor;
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::kShape) {
      at_ = At::kDimensions;
    } else if (at_ == At::kDataOffsets) {
      at_ = At::kOffsets;
    } else {
      return Unexpected("a list");
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Fail(absl::StrCat("tensor ", Shown(name_), ": ", number,
                               " is beyond every file"));
    }
    const auto value = static_cast<int64_t>(number);
    if (at_ == At::kDimensions) {
      place_.shape->push_back(value);
      return place_.shape->size() <= kMaxRank ||
             Fail(absl::StrCat("tensor ", Shown(name_), ": more than ",
                               kMaxRank, " dimensions"));
    }
    if (at_ == At::kOffsets) {
      place_.offsets->push_back(value);
      return place_.offsets->size() <= 2 ||
             Fail(absl::StrCat("tensor ", Shown(name_),
                               ": more than two data_offsets"));
    }
    return Unexpected("a number");
  }

  bool end_array() override {
    at_ = At::kTensor;
    return true;
  }

  bool end_object() override {
    switch (at_) {
      case At::kTensor:
        at_ = At::kTop;
        return FinishTensor();
      case At::kMetadata:
        at_ = At::kTop;
        return true;
      default:  // the parser pairs braces: this is the outermost
        at_ = At::kEnd;
        return true;
    }
  }

  bool number_integer(number_integer_t number) override {
    return Fail(
        absl::StrCat("tensor ", Shown(name_), ": ", number, " is negative"));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat("tensor ", Shown(name_), ": ", Shown(text),
                             " is no integer of 64 bits"));
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("the header is not JSON at byte ", position));
  }

 private:
  enum class At {
    kBegin,
    kTop,            // among the entries
    kEntry,          // after an entry's name
    kMetadata,       // among the metadata
    kMetadataValue,  // after a metadata key
    kTensor,         // among a tensor's fields
    kDType,          // after "dtype"
    kShape,          // after "shape"
    kDimensions,     // in the list of "shape"
    kDataOffsets,    // after "data_offsets"
    kOffsets,        // in the list of "data_offsets"
    kEnd,
  };

  // What was said of a tensor so far.
  struct Place {
    bool has_dtype = false;
    std::optional<DType> dtype;
    std::optional<Shape> shape;
    std::optional<std::vector<int64_t>> offsets;
  };

  bool Fail(std::string why) {
    error_ = absl::InvalidArgumentError(std::move(why));
    return false;
  }

  bool Unexpected(absl::string_view what) {
    const bool inside = at_ != At::kBegin && at_ != At::kEnd;
    return Fail(
        absl::StrCat("the header has ", what, " where the format has none",
                     inside ? absl::StrCat(", near ", Shown(name_)) : ""));
  }

  bool TensorKey(const std::string& field) {
    bool repeated = false;
    if (field == "dtype") {
      repeated = std::exchange(place_.has_dtype, true);
      at_ = At::kDType;
    } else if (field == "shape") {
      repeated = place_.shape.has_value();
      place_.shape.emplace();
      at_ = At::kShape;
    } else if (field == "data_offsets") {
      repeated = place_.offsets.has_value();
      place_.offsets.emplace();
      at_ = At::kDataOffsets;
    } else {
      return Fail(absl::StrCat("tensor ", Shown(name_), ": unknown field ",
                               Shown(field)));
    }
    return !repeated || Fail(absl::StrCat("tensor ", Shown(name_), ": two ",
                                          field, " fields"));
  }

  bool FinishTensor() {
    if (!place_.dtype || !place_.shape || !place_.offsets) {
      return Fail(
          absl::StrCat("tensor ", Shown(name_),
                       ": one of dtype, shape and data_offsets is missing"));
    }
    if (place_.offsets->size() != 2) {
      return Fail(absl::StrCat("tensor ", Shown(name_), ": ",
                               place_.offsets->size(),
                               " data_offsets, need 2"));
    }
    const int64_t begin = place_.offsets->front();
    const int64_t end = place_.offsets->back();
    header_.tensors.push_back(TensorPlace{
        name_, *place_.dtype, *std::move(place_.shape), begin, end - begin});
    return true;
  }

  SafetensorsHeader& header_;
  absl::Status error_;
  At at_ = At::kBegin;
  std::string name_;  // of the entry that is read
  std::string metadata_key_;
  Place place_;
  std::unordered_set<std::string> names_;
};

// Sorted places must lie end to end from 0 to data_bytes.
absl::Status CheckPlaces(const std::vector<TensorPlace>& tensors,
                         int64_t data_bytes) {
  int64_t end = 0;
  for (const TensorPlace& place : tensors) {
    const std::string who = absl::StrCat("tensor ", Shown(place.name));
    if (place.bytes < 0 || place.bytes > data_bytes ||
        place.offset > data_bytes - place.bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": ", place.bytes, " bytes from ", place.offset,
                       " on do not lie in the file's ", data_bytes));
    }
    if (place.offset != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          who, place.offset < end ? ": overlaps" : ": leaves a hole after",
          " the tensor before it: begins at ", place.offset, ", that ends at ",
          end));
    }
    const int64_t need = TensorBytes(place.dtype, place.shape);
    if (place.bytes != need) {
      return absl::InvalidArgumentError(absl::StrCat(
          who, ": ", DTypeName(place.dtype), " of shape [",
          absl::StrJoin(place.shape, ", "), "] ",
          need < 0 ? "overflows" : absl::StrCat("takes ", need, " bytes"),
          ", its data_offsets hold ", place.bytes));
    }
    end += place.bytes;
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors end at byte ", end, " of ", data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  SafetensorsHeader header;
  HeaderReader reader(header);
  const bool parsed =
      nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  PACELINE_RETURN_IF_ERROR(reader.error());
  if (!parsed) return absl::InvalidArgumentError("the header is not JSON");

  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorPlace& a, const TensorPlace& b) {
              return std::tie(a.offset, a.bytes, a.name) <
                     std::tie(b.offset, b.bytes, b.name);
            });
  PACELINE_RETURN_IF_ERROR(CheckPlaces(header.tensors, data_bytes));
  return header;
}

}  // namespace paceline
