// Texts of messages: numbers with what they count; any text as well-formed
// UTF-8, which a string of a proto must be: the receiver cannot read a message
// with any other text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace paceline {

// "1 worker", "2 workers", "0 batches", "3 copies".
//   noun  in the singular; its plural is a regular one
std::string Counted(int64_t count, absl::string_view noun);

// text(element) of each element, with `separator` between.
//   text  a function or a method
template <typename Elements, typename Text>
std::string Joined(const Elements& elements, absl::string_view separator,
                   const Text& text) {
  return absl::StrJoin(elements, separator,
                       [&](std::string* out, const auto& element) {
                         absl::StrAppend(out, std::invoke(text, element));
                       });
}

// The names of a table's rows.
//   name_of  a member, or a function of a row
template <typename Rows, typename Name>
std::vector<std::string> NamesOf(const Rows& rows, const Name& name_of) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(std::invoke(name_of, row));
  return names;
}

// The table's row of this name; null where there is none.
template <typename Rows, typename Name>
auto* FindNamed(const Rows& rows, absl::string_view name, const Name& name_of) {
  for (const auto& row : rows) {
    if (std::invoke(name_of, row) == name) return &row;
  }
  return static_cast<decltype(&*std::begin(rows))>(nullptr);
}

// Bytes of the well-formed UTF-8 sequence that `text` starts with (RFC 3629,
// section 4); 0 when it starts with none.
size_t Utf8SequenceLength(absl::string_view text);

// Takes the first sequence off `text`, which is not empty, or the byte that no
// sequence starts with.
absl::string_view TakeCharacter(absl::string_view& text);

// The code point of a well-formed sequence.
uint32_t Utf8CodePoint(absl::string_view sequence);

// Whether `text` has a character that a terminal obeys (C0, DEL, C1), that
// turns the direction of other text (Unicode's Bidi_Control) or that begins a
// line.
bool HoldsControl(absl::string_view text);

// Returns `text` with each byte that belongs to no sequence written as in
// "\xff", as a line of the log has it.  The result has at most `most_bytes`, 3
// or more: longer text is cut between two characters and ends with "...".
// Short text in good UTF-8 is returned unchanged.  Reads no more of `text` than
// it returns.
std::string ToUtf8(absl::string_view text, size_t most_bytes);

// Returns `text` as a JSON string with its quotes.  Bytes above ASCII pass
// through: they are to be UTF-8, as JSON is.
std::string JsonQuoted(absl::string_view text);

}  // namespace paceline
