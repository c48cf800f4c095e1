#include "core/obs/repeats.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// Nothing where none were counted.
void AppendCount(int64_t counted, RepeatedLines::Line& line) {
  if (counted == 0) return;
  absl::StrAppend(&line.second, " [repeated ", counted,
                  counted == 1 ? " time" : " times", " but for numbers]");
}

}  // namespace

uint64_t RepeatedLines::KindOf(const Line& line) {
  const absl::string_view text = line.second;
  std::string kind = absl::StrCat(static_cast<int>(line.first));
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    bool is_number = false;
    while (end < text.size() &&
           (absl::ascii_isalnum(text[end]) ||
            absl::StrContains("_.:+-", text.substr(end, 1)))) {
      is_number = absl::ascii_isdigit(text[end++]) || is_number;
    }
    if (end == at) ++end;
    absl::StrAppend(&kind, is_number ? "#" : text.substr(at, end - at));
  }
  return std::hash<std::string>()(kind);
}

std::vector<RepeatedLines::Line> RepeatedLines::OnLine(Line line, Instant now) {
  Kind& kind =
      kinds_.try_emplace(KindOf(line), Kind{.seen = now}).first->second;
  const absl::Duration silence = now - std::exchange(kind.seen, now);
  kind.left =
      std::min<double>(kAtOnce, kind.left + absl::FDivDuration(silence, kPace));
  if (kind.left < 1) {
    ++kind.counted;
    kind.newest = std::move(line);
    return {};
  }
  kind.left -= 1;
  AppendCount(std::exchange(kind.counted, 0), line);
  std::vector<Line> written = TakeCounted();
  // A new kind is written at once: all that were counted have been told.
  if (kinds_.size() > kMostKinds) {
    kinds_.erase(std::min_element(kinds_.begin(), kinds_.end(),
                                  [](const auto& a, const auto& b) {
                                    return a.second.seen < b.second.seen;
                                  }));
  }
  written.push_back(std::move(line));
  return written;
}

std::vector<RepeatedLines::Line> RepeatedLines::TakeCounted() {
  std::vector<Line> counted;
  for (auto& [key, one] : kinds_) {
    if (one.counted == 0) continue;
    AppendCount(std::exchange(one.counted, 0), one.newest);
    counted.push_back(std::move(one.newest));
  }
  return counted;
}

}  // namespace paceline
