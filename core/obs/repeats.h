// Lines of a log that repeat, but for their numbers, are counted and not
// written: a job that has diverged says the same at each step.
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
  // So many lines of a kind are written as they come, then one in each kPace,
  // which says how many were not.
  static constexpr int kAtOnce = 10;
  static constexpr absl::Duration kPace = absl::Seconds(10);

  using Line = std::pair<LogLevel, std::string>;  // the text after the level

  // Returns what is to be written now that `line` has come.  Empty: it is only
  // counted.  Otherwise it is the last one; the newest lines of other kinds of
  // which some were counted come before it.
  std::vector<Line> OnLine(Line line, Instant now);

  // The newest line of each kind of which some were only counted since one was
  // written.
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
