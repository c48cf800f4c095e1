#include "core/base/text.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace {

constexpr absl::string_view kCutMark = "...";

// First and last; UTF-8 has the order of code points.
constexpr absl::string_view kControls[][2] = {
    {"", "\x1F"},         {"\x7F", "\x7F"},     {"\xC2\x80", "\xC2\x9F"},
    {"\u061C", "\u061C"}, {"\u200E", "\u200F"}, {"\u2028", "\u202E"},
    {"\u2066", "\u2069"},
};

std::string EscapedByte(char byte) {
  return absl::StrCat(
      "\\x", absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
}

}  // namespace

std::string Counted(int64_t count, absl::string_view noun) {
  if (count == 1) return absl::StrCat("1 ", noun);
  if (absl::ConsumeSuffix(&noun, "y"))
    return absl::StrCat(count, " ", noun, "ies");
  const bool hisses = absl::EndsWith(noun, "s") || absl::EndsWith(noun, "ch");
  return absl::StrCat(count, " ", noun, hisses ? "es" : "s");
}

size_t Utf8SequenceLength(absl::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i, unsigned low = 0x80,
                           unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    const unsigned high = first == 0xED ? 0x9F : 0xBF;  // no surrogates
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;  // at most U+10FFFF
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

absl::string_view TakeCharacter(absl::string_view& text) {
  const absl::string_view character =
      text.substr(0, std::max<size_t>(Utf8SequenceLength(text), 1));
  text.remove_prefix(character.size());
  return character;
}

uint32_t Utf8CodePoint(absl::string_view sequence) {
  uint32_t point = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() > 1) point &= 0xFF >> (sequence.size() + 1);
  for (const char c : sequence.substr(1)) point = point << 6 | (c & 0x3F);
  return point;
}

bool HoldsControl(absl::string_view text) {
  while (!text.empty()) {
    const absl::string_view character = TakeCharacter(text);
    if (std::any_of(std::begin(kControls), std::end(kControls),
                    [character](const auto& range) {
                      return range[0] <= character && character <= range[1];
                    })) {
      return true;
    }
  }
  return false;
}

std::string ToUtf8(absl::string_view text, size_t most_bytes) {
  std::string clean;
  size_t before_mark = 0;  // of `clean`, so that the mark fits behind it
  while (!text.empty()) {
    const absl::string_view character = TakeCharacter(text);
    const std::string piece = Utf8SequenceLength(character) == 0
                                  ? EscapedByte(character[0])
                                  : std::string(character);
    if (clean.size() + piece.size() > most_bytes) {
      clean.resize(before_mark);
      return absl::StrCat(clean, kCutMark);
    }
    clean += piece;
    if (clean.size() + kCutMark.size() <= most_bytes) {
      before_mark = clean.size();
    }
  }
  return clean;
}

std::string JsonQuoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(c, absl::kZeroPad4));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace paceline
