// Counts lines of a log that differ by numbers alone, and writes few of them: a
// job that has diverged logs the same at each step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/obs/log.h"

namespace paceline {

// Thread-compatible.  Its memory is bounded.
class RepeatedLines {
 public:
  // The first kAtOnce lines of a kind are written as they come, then one in
  // each kPace, with the number of those that were not written.
  static constexpr int kAtOnce = 10;
  static constexpr absl::Duration kPace = absl::Seconds(10);

  using Line = std::pair<LogLevel, std::string>;  // the text after the level

  // Takes a line, and returns the lines to write now.  Empty: `line` is only
  // counted.  Otherwise it comes last, after the newest line of each other kind
  // that has counted lines.
  std::vector<Line> OnLine(Line line, Instant now);

  // Returns the newest line of each kind that has counted lines since its last
  // written one.
  std::vector<Line> TakeCounted();

  // A word with a digit in it counts as a number: worker names, files and
  // addresses too.
  static uint64_t KindOf(const Line& line);

 private:
  struct Kind {
    double left = kAtOnce;  // lines that may be written
    Instant seen;           // the newest line
    int64_t counted = 0;    // since one was written
    Line newest = {};       // where some were counted
  };

  static constexpr size_t kMostKinds = 128;

  std::map<uint64_t, Kind> kinds_;
};

}  // namespace paceline
