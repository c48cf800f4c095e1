// A tree of values with one order of keys, and its JSON and YAML forms: what
// -o json|jsonl|yaml prints.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// A value type.  Thread-compatible.
class Document {
 public:
  using List = std::vector<Document>;
  using Map = std::vector<std::pair<std::string, Document>>;

  Document() = default;  // null
  // Out of line: g++ 12 warns of uninitialised members when it inlines the
  // moves of a variant into a list of initialisers.
  Document(const Document& other);
  Document(Document&& other) noexcept;
  Document& operator=(const Document& other);
  Document& operator=(Document&& other) noexcept;
  ~Document();

  Document(bool value) : value_(value) {}
  template <std::integral T>
  Document(T value) : value_(static_cast<int64_t>(value)) {}
  Document(double value) : value_(value) {}
  Document(const char* value) : value_(std::string(value)) {}
  Document(std::string value) : value_(std::move(value)) {}
  Document(List value) : value_(std::move(value)) {}
  Document(Map value) : value_(std::move(value)) {}

  // Adds an entry to a map; this must be one.
  void Add(std::string key, Document value);

  // One line, without a line break at its end.  Numbers read back as the same
  // double; NaN and infinities, which JSON lacks, are null.  Bytes that are not
  // UTF-8 become U+FFFD.
  std::string ToJson() const;

  // Indented by two spaces, with a line break at the end.
  std::string ToPrettyJson() const;

  // Block style, with a line break at the end.  What reads differently without
  // quotes has them.
  std::string ToYaml() const;

 private:
  void WriteJson(std::string& out, int indent, bool pretty) const;
  void WriteYaml(std::string& out, int indent, bool in_list) const;
  bool IsEmptyOrScalar() const;

  std::variant<std::monostate, bool, int64_t, double, std::string, List, Map>
      value_;
};

Document TextList(const std::vector<std::string>& texts);

// Null where nothing was measured: at 0 and below.
Document SecondsOrNull(double seconds);

// Null for an empty text.
Document TextOrNull(const std::string& text);

}  // namespace paceline
