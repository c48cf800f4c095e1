// One event, one line: a sentence, then key=value pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/clock.h"

namespace paceline {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

struct LogField {
  absl::string_view key;
  std::string value;

  LogField(absl::string_view k, const absl::AlphaNum& v)
      : key(k), value(v.data(), v.size()) {}
};

struct LogOptions {
  std::string program;  // "paceline-worker"
  LogLevel level = LogLevel::kInfo;
  std::string worker = {};  // its name; empty: the program is none
};

// Called once by main, before any thread.  Lines go to stderr; where that is
// systemd's journal, they go there with JournalFields().
void StartLogging(const LogOptions& options);

// Fields of a line's entry in the journal: MESSAGE, PRIORITY and, where the
// line or the options name them, JOB, STAGE, STEP and WORKER.
//   text  the line without time, program and level
std::vector<std::string> JournalFields(const LogOptions& options,
                                       LogLevel level, const std::string& text,
                                       absl::Span<const LogField> fields);

// Lines of lower levels are dropped from then on.  Thread-safe.
void SetLogLevel(LogLevel level);

// Thread-safe; a line is whole even when threads log at once.
//   Log(LogLevel::kInfo, "worker attached", {{"worker", 3}, {"name", name}});
// gives: "... info worker attached worker=3 name=pi-2".  A value with blanks
// is quoted; line breaks are escaped.  Lines of level info and above that
// repeat but for numbers are counted after the first ten, and one in ten
// seconds is written: "... [repeated 57 times but for numbers]"
// (RepeatedLines).
void Log(LogLevel level, absl::string_view sentence,
         absl::Span<const LogField> fields = {});

// Whether lines of `level` are printed; ask before building costly fields.
bool LogEnabled(LogLevel level);

// As Log, from an initializer list.
inline void Log(LogLevel level, absl::string_view sentence,
                std::initializer_list<LogField> fields) {
  Log(level, sentence, absl::MakeConstSpan(fields.begin(), fields.size()));
}

// Also gives every line of level info and above to `sink` (level, text after
// the level).  The sink must be quick and must not log.  Null ends this.  The
// old sink first gets the counts of the lines that were repeated until now.
// Thread-safe; returns after any running call of the old sink.
using LogSink = std::function<void(LogLevel, const std::string&)>;
void SetLogSink(LogSink sink);

// "info"; and back: false when there is no such level.
absl::string_view LogLevelName(LogLevel level);
bool ParseLogLevel(absl::string_view name, LogLevel* level);

// Counts lines that differ by numbers alone, and writes few of them: a job that
// has diverged logs the same at each step.

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
