#include "core/cluster/worker_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr size_t kRepeatedBytes = 64;

bool IsNameByte(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
}

}  // namespace

std::string WhyNoWorkerName(absl::string_view name) {
  if (!name.empty() && name.size() <= kMaxWorkerNameBytes &&
      std::all_of(name.begin(), name.end(), IsNameByte)) {
    return "";
  }
  // Escapes are up to four bytes each: cut behind them, too.
  std::string text = absl::CHexEscape(name.substr(0, kRepeatedBytes));
  const bool cut = name.size() > kRepeatedBytes || text.size() > kRepeatedBytes;
  text.resize(std::min(text.size(), kRepeatedBytes));
  return absl::StrCat("a worker's name is 1 to ", kMaxWorkerNameBytes,
                      " of a-z A-Z 0-9 . _ -, got '", text, cut ? "..." : "",
                      "' (", name.size(), name.size() == 1 ? " byte" : " bytes",
                      ")");
}

}  // namespace paceline
