// Documents: the tree of values that -o json, jsonl and yaml print, and structs
// as JSON objects.  Keys keep the order in which they were added.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/types.pb.h"

namespace paceline {

using Document = nlohmann::ordered_json;

// One line, or with `pretty` lines indented by two blanks; neither ends with a
// line break.  NaN and infinities, which JSON lacks, are null.  Bytes that are
// not UTF-8 become U+FFFD.
std::string ToJson(const Document& document, bool pretty = false);

// Block style, with a line break at the end.  What a reader of YAML 1.1 would
// not take for a text without quotes has them.
std::string ToYaml(const Document& document);

// The fields of `message` under their names, in the order of the proto: absent
// messages as null, 64-bit numbers as numbers.  (protobuf's own printer writes
// these as texts, which would break those who read our documents.)
Document MessageDocument(const google::protobuf::Message& message);

// Null for an empty text, and for a number that is not above 0.
template <typename T>
Document OrNull(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value > 0 ? Document(value) : Document();
  } else {
    return value.empty() ? Document() : Document(value);
  }
}

// make(element) of each element, as a list.
template <typename Elements, typename Make>
Document ListOf(const Elements& elements, const Make& make) {
  Document list = Document::array();
  for (const auto& element : elements) list.push_back(make(element));
  return list;
}

// JSON nested no deeper than kMostJsonDepth; `name` is the file's, for errors.
// Errors: InvalidArgument  not JSON, or nested deeper
inline constexpr int kMostJsonDepth = 16;
absl::StatusOr<Document> ParseJson(const std::string& name,
                                   const std::string& text);

inline constexpr int64_t kMostWhole = std::numeric_limits<int64_t>::max();

// A field that is missing or of another type makes an error that names its path
// ("profiles[2].layers[0].forward_seconds"), kept in a status that all readers
// of a document share: the first one stays, and what is read afterwards does
// not count.  A missing field of May and the Optional methods leaves its value
// as it is. Unknown keys are ignored.  Thread-compatible; value and status
// outlive it.
class JsonReader {
 public:
  JsonReader(const Document& value, std::string path, absl::Status& status);

  // A number must be finite and not negative, in a list too.
  void Need(const char* key, double& into);
  void Need(const char* key, bool& into);
  void Need(const char* key, std::string& into);
  void Need(const char* key, std::vector<double>& into);
  // A list of such lists.  null, JSON's nearest to infinity, reads as
  // `null_is`; NaN: it may not stand there.
  void Rows(const char* key, double null_is,
            std::vector<std::vector<double>>& into);
  template <typename T>
  void May(const char* key, T& into) {
    if (Has(key)) Need(key, into);
  }
  // A whole number in [least, most].
  template <typename T>
  void Whole(const char* key, int64_t least, int64_t most, T& into) {
    const Document* const value = Find(key);
    if (value != nullptr) into = ReadWhole(*value, key, least, most);
  }
  template <typename T>
  void OptionalWhole(const char* key, int64_t least, int64_t most, T& into) {
    if (Has(key)) Whole(key, least, most, into);
  }
  void Wholes(const char* key, int64_t least, int64_t most,
              std::vector<int>& into);

  // visit(JsonReader&, T&) reads an element of a list of objects.
  template <typename T, typename Visit>
  void Each(const char* key, std::vector<T>& into, const Visit& visit) {
    const Document* const list = List(key);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if (!status_.ok()) return;
      JsonReader element((*list)[i], ElementPath(key, i), status_);
      visit(element, into.emplace_back());
    }
  }
  template <typename T, typename Visit>
  void OptionalEach(const char* key, std::vector<T>& into, const Visit& visit) {
    if (Has(key)) Each(key, into, visit);
  }
  // visit(JsonReader&) reads the object under `key`.
  template <typename Visit>
  void Object(const char* key, const Visit& visit) {
    JsonReader object = Below(key);
    visit(object);
  }

  bool Has(const char* key) const { return value_.contains(key); }
  // The list under `key`; null when it is missing or no list.
  const Document* List(const char* key);
  // Notes what is wrong with `key`.
  void Fail(absl::string_view key, absl::string_view what);

 private:
  const Document* Find(const char* key);
  JsonReader Below(const char* key);
  void ReadNumbers(const Document& list, const std::string& key, double null_is,
                   std::vector<double>& into);
  int64_t ReadWhole(const Document& value, absl::string_view key, int64_t least,
                    int64_t most);
  std::string PathOf(absl::string_view key) const;
  std::string ElementPath(absl::string_view key, size_t index) const;

  const Document& value_;
  const std::string path_;
  absl::Status& status_;
};

// Writes what JsonReader reads; arguments that say what is allowed are ignored.
// Thread-compatible; `into` outlives it.
class JsonWriter {
 public:
  explicit JsonWriter(Document& into) : into_(into) {
    into_ = Document::object();
  }

  template <typename T>
  void Need(const char* key, const T& value) {
    into_[key] = value;
  }
  template <typename T>
  void May(const char* key, const T& value) {
    into_[key] = value;
  }
  void Whole(const char* key, int64_t, int64_t, int64_t value) {
    into_[key] = value;
  }
  void OptionalWhole(const char* key, int64_t, int64_t, int64_t value) {
    into_[key] = value;
  }
  void Wholes(const char* key, int64_t, int64_t,
              const std::vector<int>& values) {
    into_[key] = values;
  }
  template <typename T, typename Visit>
  void Each(const char* key, std::vector<T>& values, const Visit& visit) {
    Document& list = into_[key] = Document::array();
    for (T& value : values) {
      JsonWriter element(list.emplace_back());
      visit(element, value);
    }
  }
  template <typename T, typename Visit>
  void OptionalEach(const char* key, std::vector<T>& values,
                    const Visit& visit) {
    Each(key, values, visit);
  }
  template <typename Visit>
  void Object(const char* key, const Visit& visit) {
    JsonWriter object(into_[key]);
    visit(object);
  }

  Document& document() { return into_; }

 private:
  Document& into_;
};

}  // namespace paceline
