#include "client/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline {
namespace {

// Length of the UTF-8 character at the start of `text`, 0 when there is none
// (RFC 3629, section 4: no overlong forms, no surrogates, at most U+10FFFF).
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (b == 0xE0 && byte(1) < 0xA0) return 0;
    if (b == 0xED && byte(1) > 0x9F) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (b == 0xF0 && byte(1) < 0x90) return 0;
    if (b == 0xF4 && byte(1) > 0x8F) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::string WithUnit(double value, double base,
                     const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(std::round(value), units[0]);
  const int decimals = std::abs(value) >= 100  ? 0
                       : std::abs(value) >= 10 ? 1
                                               : 2;
  return absl::StrFormat("%.*f%s", decimals, value, units[unit]);
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      result.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return result;
}

std::string Printable(absl::string_view text) {
  std::string result;
  const std::string valid = ValidUtf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto c = static_cast<unsigned char>(valid[i]);
    const bool c1_control = c == 0xC2 && i + 1 < valid.size() &&
                            static_cast<unsigned char>(valid[i + 1]) < 0xA0;
    if (c == '\n' || c == '\t') {
      result += ' ';
    } else if (c < 0x20 || c == 0x7F) {
      result += '?';
    } else if (c1_control) {
      result += '?';
      ++i;
    } else {
      result += static_cast<char>(c);
    }
  }
  return result;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  for (const char c : text) width += (c & 0xC0) != 0x80;
  return width;
}

std::string HumanCount(double count) {
  return WithUnit(count, 1000, {"", " k", " M", " G", " T"});
}

std::string HumanRate(double per_second) {
  return std::abs(per_second) < 10 ? HumanNumber(per_second, 2)
                                   : HumanCount(per_second);
}

std::string HumanBytes(double bytes) {
  return WithUnit(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string HumanDuration(absl::Duration duration) {
  const int64_t seconds = std::llround(
      absl::ToDoubleSeconds(std::max(duration, absl::ZeroDuration())));
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) {
    return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  }
  return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
}

std::string HumanSeconds(double seconds) {
  if (!(seconds < 1)) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  return absl::StrFormat("%.3g ms", seconds * 1e3);
}

std::string HumanTime(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string HumanNumber(double value, int digits) {
  return absl::StrFormat("%.*g", digits, value);
}

bool ParseTimeout(const std::string& text, absl::Duration* timeout) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    if (!std::isfinite(seconds)) return false;
    *timeout = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, timeout)) {
    return false;
  }
  return *timeout >= absl::ZeroDuration() &&
         *timeout < absl::InfiniteDuration();
}

}  // namespace paceline
