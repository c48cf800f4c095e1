// The tree of values that -o json, jsonl and yaml print.  Keys keep the order
// in which they were added.
#pragma once

#include <string>
#include <type_traits>

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

}  // namespace paceline
