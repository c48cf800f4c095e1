// Documents: the tree of values that -o json, jsonl and yaml print, and structs
// as JSON objects.  Keys keep the order in which they were added.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/types.pb.h"

namespace paceline {

using Document = nlohmann::ordered_json;

// How a command prints its document.
enum class OutputFormat { kTable, kJson, kJsonLines, kYaml, kWide };
inline constexpr const char* kOutputFormats[] = {"table", "json", "jsonl",
                                                 "yaml", "wide"};

// False for a word that names no format.
bool ParseOutputFormat(const std::string& word, OutputFormat* format);

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

// Those of its fields that `names` names, with blanks between; one whose name
// ends with '?' is null where it is empty or not above 0.
Document FieldsDocument(const google::protobuf::Message& message,
                        absl::string_view names);

// Null for an empty text, and for a number that is not above 0.
template <typename T>
Document OrNull(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value > 0 ? Document(value) : Document();
  } else {
    return value.empty() ? Document() : Document(value);
  }
}

// The value, or null where it is not known.
template <typename T>
Document NullUnless(bool known, const T& value) {
  return known ? Document(value) : Document();
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

// The values that a field may hold.
struct JsonBounds {
  int64_t least = 0;  // of a whole number
  int64_t most = kMostWhole;
  // null, JSON's nearest to infinity, reads as this; NaN: it may not stand
  // there.
  double null_is = std::numeric_limits<double>::quiet_NaN();
};

// Reads the fields of a JSON object into a struct, or writes them from it: one
// function says which fields a struct has, and serves both.
//
// When reading, a field that is missing or of another type makes an error that
// names its path ("profiles[2].layers[0].forward_seconds"), kept in a status
// that all fields of a document share: the first one stays, and what is read
// afterwards does not count.  A missing field of May leaves its value as it is.
// Unknown keys are ignored.  When writing, a field is written as it is.
// Thread-compatible; document and status outlive it.
class JsonFields {
 public:
  // Reads `value`.
  JsonFields(const Document& value, std::string path, absl::Status& status);
  // Makes `into` an object and writes to it.
  explicit JsonFields(Document& into);

  bool reads() const { return into_ == nullptr; }

  // how: nothing, or JsonBounds; of a struct, and of those in a list, the
  // function visit(JsonFields&, T&) that visits it.
  // A number must be finite and not negative, a whole one in its bounds, in a
  // list too.
  template <typename T, typename... How>
  void Need(const char* key, T& value, const How&... how) {
    if (!reads()) {
      Write(value, (*into_)[key], how...);
    } else if (const Document* const found = Find(key); found != nullptr) {
      Read(*found, key, value, how...);
    }
  }
  template <typename T, typename... How>
  void May(const char* key, T& value, const How&... how) {
    if (!reads() || Has(key)) Need(key, value, how...);
  }

  // Only when reading.
  bool Has(const char* key) const { return value_->contains(key); }
  // Notes what is wrong with `key`, from parts that are joined; when writing it
  // does nothing.
  template <typename... Parts>
  void Fail(absl::string_view key, const Parts&... what) {
    if (!reads() || !status_->ok()) return;
    *status_ = InvalidArgument(PathOf(key), ": ", what...);
  }

 private:
  // Null when it is missing.
  const Document* Find(const char* key);

  template <typename T>
  static void Write(const T& value, Document& into, const JsonBounds& = {}) {
    into = value;
  }
  template <typename T, std::invocable<JsonFields&, T&> Visit>
  static void Write(T& value, Document& into, const Visit& visit) {
    JsonFields fields(into);
    visit(fields, value);
  }
  template <typename T, std::invocable<JsonFields&, T&> Visit>
  static void Write(std::vector<T>& list, Document& into, const Visit& visit) {
    into = Document::array();
    for (T& element : list) Write(element, into.emplace_back(), visit);
  }

  void Read(const Document& value, const std::string& key, double& into,
            const JsonBounds& bounds = {});
  void Read(const Document& value, const std::string& key, bool& into) {
    if (Expect(value.is_boolean(), value, key, "true or false")) {
      value.get_to(into);
    }
  }
  void Read(const Document& value, const std::string& key, std::string& into) {
    if (Expect(value.is_string(), value, key, "a text")) value.get_to(into);
  }
  template <std::integral T>
  void Read(const Document& value, const std::string& key, T& into,
            const JsonBounds& bounds = {}) {
    into = static_cast<T>(ReadWhole(value, key, bounds));
  }
  template <typename T, std::invocable<JsonFields&, T&> Visit>
  void Read(const Document& value, const std::string& key, T& into,
            const Visit& visit) {
    JsonFields fields(value, PathOf(key), *status_);
    visit(fields, into);
  }
  template <typename T, typename... How>
  void Read(const Document& list, const std::string& key, std::vector<T>& into,
            const How&... how) {
    into.clear();
    ForElements(list, key, [&](const Document& element, std::string path) {
      Read(element, path, into.emplace_back(), how...);
    });
  }
  int64_t ReadWhole(const Document& value, const std::string& key,
                    const JsonBounds& bounds);
  // Calls take(element, "KEY[0]") and so on until something is wrong.
  void ForElements(const Document& list, const std::string& key,
                   absl::FunctionRef<void(const Document&, std::string)> take);
  // Whether the value `is` what is expected; notes that it is not.
  bool Expect(bool is, const Document& value, absl::string_view key,
              const char* what);
  std::string PathOf(absl::string_view key) const;

  Document* const into_ = nullptr;         // null: reads
  const Document* const value_ = nullptr;  // these three only when reading
  const std::string path_;
  absl::Status* const status_ = nullptr;
};

}  // namespace paceline
