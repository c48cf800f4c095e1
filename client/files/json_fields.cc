#include "client/files/json_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/render/text.h"

namespace paceline {
namespace {

const Document kNoFields = Document::object();

// Names what stands where something else is expected.
std::string Describe(const Document& value) {
  constexpr size_t kMostLetters = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "null";
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return absl::StrCat("the text '", Printable(text.substr(0, kMostLetters)),
                        "'");
  }
  return value.dump();
}

}  // namespace

absl::StatusOr<Document> ParseJson(const std::string& name,
                                   const std::string& text) {
  // A document of nothing but brackets takes 40 times its size in memory;
  // what is refused here is never built.
  bool too_deep = false;
  const auto keep = [&](int depth, Document::parse_event_t, Document&) {
    too_deep = too_deep || depth > kMostJsonDepth;
    return !too_deep;
  };
  Document value = Document::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": nested deeper than ", kMostJsonDepth, " levels"));
  }
  if (value.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is not JSON, or was cut short"));
  }
  return value;
}

JsonReader::JsonReader(const Document& value, std::string path,
                       absl::Status& status)
    : value_(value.is_object() ? value : kNoFields),
      path_(std::move(path)),
      status_(status) {
  if (!value.is_object() && status_.ok()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, ": expected an object, got ", Describe(value)));
  }
}

std::string JsonReader::PathOf(absl::string_view key) const {
  return absl::StrCat(path_, path_.empty() ? "" : ".", key);
}

std::string JsonReader::ElementPath(absl::string_view key, size_t index) const {
  return absl::StrCat(PathOf(key), "[", index, "]");
}

void JsonReader::Fail(absl::string_view key, absl::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(PathOf(key), ": ", what));
}

const Document* JsonReader::Find(const char* key) {
  const auto found = value_.find(key);
  if (found != value_.end()) return &*found;
  Fail(key, "is missing");
  return nullptr;
}

void JsonReader::Need(const char* key, double& into) {
  const Document* const value = Find(key);
  if (value == nullptr) return;
  if (!value->is_number()) {
    Fail(key, absl::StrCat("expected a number, got ", Describe(*value)));
    return;
  }
  into = value->get<double>();
  if (!std::isfinite(into) || into < 0) {
    Fail(key, absl::StrCat("is ", into,
                           ", need a finite number that is not negative"));
  }
}

int64_t JsonReader::ReadWhole(const Document& value, absl::string_view key,
                              int64_t least, int64_t most) {
  if (!value.is_number_integer()) {
    Fail(key, absl::StrCat("expected a whole number, got ", Describe(value)));
    return 0;
  }
  // Above INT64_MAX a number is kept as unsigned and would come back negative.
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(kMostWhole);
  const int64_t whole = too_large ? kMostWhole : value.get<int64_t>();
  if (whole < least || whole > most || too_large) {
    Fail(key,
         absl::StrCat("is ", value.dump(), ", need ", least, " to ", most));
  }
  return whole;
}

void JsonReader::Need(const char* key, bool& into) {
  const Document* const value = Find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) {
    Fail(key, absl::StrCat("expected true or false, got ", Describe(*value)));
    return;
  }
  into = value->get<bool>();
}

void JsonReader::Need(const char* key, std::string& into) {
  const Document* const value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) {
    Fail(key, absl::StrCat("expected a text, got ", Describe(*value)));
    return;
  }
  into = value->get<std::string>();
}

void JsonReader::Need(const char* key, std::vector<double>& into) {
  const Document* const list = List(key);
  if (list == nullptr) return;
  into.clear();
  for (size_t i = 0; i < list->size(); ++i) {
    const Document& value = (*list)[i];
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!std::isfinite(number) || number < 0) {
      Fail(absl::StrCat(key, "[", i, "]"),
           absl::StrCat("is ", Describe(value),
                        ", need a finite number that is not negative"));
      return;
    }
    into.push_back(number);
  }
}

void JsonReader::Wholes(const char* key, int64_t least, int64_t most,
                        std::vector<int>& into) {
  const Document* const list = List(key);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    into.push_back(static_cast<int>(
        ReadWhole((*list)[i], absl::StrCat(key, "[", i, "]"), least, most)));
  }
}

JsonReader JsonReader::Below(const char* key) {
  const Document* const value = Find(key);
  return JsonReader(value == nullptr ? kNoFields : *value, PathOf(key),
                    status_);
}

const Document* JsonReader::List(const char* key) {
  const Document* const value = Find(key);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return value;
  Fail(key, absl::StrCat("expected a list, got ", Describe(*value)));
  return nullptr;
}

}  // namespace paceline
