// Checks the name of a worker, and names of other things that look the same.
#pragma once

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace paceline {

inline constexpr size_t kMaxWorkerNameBytes = 63;  // a host name's label

// Says why `name` is no name of a worker, or of another `thing`; empty: it is
// one.  The text repeats at most 64 bytes of a bad name, and no byte that a
// terminal would obey.
inline std::string WhyNoWorkerName(absl::string_view name,
                                   absl::string_view thing = "worker") {
  if (!name.empty() && name.size() <= kMaxWorkerNameBytes &&
      absl::c_all_of(name, [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      })) {
    return "";
  }
  constexpr size_t kRepeatedBytes = 64;
  // Escapes are up to four bytes each: cut behind them, too.
  std::string text = absl::CHexEscape(name.substr(0, kRepeatedBytes));
  const bool cut = name.size() > kRepeatedBytes || text.size() > kRepeatedBytes;
  text.resize(std::min(text.size(), kRepeatedBytes));
  return absl::StrCat("a ", thing, "'s name is 1 to ", kMaxWorkerNameBytes,
                      " of a-z A-Z 0-9 . _ -, got '", text, cut ? "..." : "",
                      "' (", name.size(), name.size() == 1 ? " byte" : " bytes",
                      ")");
}

}  // namespace paceline
