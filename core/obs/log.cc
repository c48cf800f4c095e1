#include "core/obs/log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/base/text.h"
#include "core/os/thread.h"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace paceline {
namespace {

// The limit of a line's text, without its time and program.
constexpr size_t kMaxTextBytes = 8 << 10;
constexpr absl::string_view kCutMark = " [cut]";

struct Level {
  absl::string_view name;
  spdlog::level::level_enum spdlog;
  int priority;  // as syslog(3) numbers them
};
constexpr std::array<Level, 4> kLevels = {{{"debug", spdlog::level::debug, 7},
                                           {"info", spdlog::level::info, 6},
                                           {"warn", spdlog::level::warn, 4},
                                           {"error", spdlog::level::err, 3}}};

const Level& Of(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }

// Keys of a line that the journal can be searched for.
constexpr absl::string_view kJournalKeys[] = {"job", "stage", "step", "worker"};

// systemd names the journal's stream, which it has made stderr.
bool StderrIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat own = {};
  return stream != nullptr && fstat(STDERR_FILENO, &own) == 0 &&
         absl::StrCat(own.st_dev, ":", own.st_ino) == stream;
}

std::unique_ptr<spdlog::logger> MakeLogger(const LogOptions& options) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_unique<spdlog::logger>(options.program, sink);
  // The level is part of the text, so that its name is ours and not spdlog's.
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      "%Y-%m-%dT%H:%M:%S.%eZ %n %v", spdlog::pattern_time_type::utc));
  logger->set_level(Of(options.level).spdlog);
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

struct Logging {
  // Constant after StartLogging().
  std::unique_ptr<spdlog::logger> logger =
      MakeLogger(LogOptions{.program = "paceline"});
  bool uses_journal = false;
  LogOptions options;

  // Held while the sink runs: so SetLogSink() can promise that no call of the
  // old one runs any more, and the lines keep their order.
  absl::Mutex sink_mutex;
  LogSink sink ABSL_GUARDED_BY(sink_mutex);

  absl::Mutex repeats_mutex;
  RepeatedLines repeats ABSL_GUARDED_BY(repeats_mutex);
};

// Never destroyed: threads may still log while the process ends.
Logging& TheLogging() {
  static auto& logging = *new Logging;
  return logging;
}

// Builds a line of at most kMaxTextBytes of well-formed UTF-8 without control
// characters, whatever a peer has put into it.
class LineBuilder {
 public:
  void Append(absl::string_view text, bool quoted = false) {
    // Each byte of text gives at least one of the line.
    text = text.substr(0, kMaxTextBytes + 4);
    while (!text.empty() && !full()) {
      const size_t length = Utf8SequenceLength(text);
      const absl::string_view sequence =
          text.substr(0, length == 0 ? 1 : length);
      if (length == 0 || HoldsControl(sequence)) {
        for (const char c : sequence) AppendEscaped(c);
      } else if (quoted && (sequence == "\"" || sequence == "\\")) {
        Put(absl::StrCat("\\", sequence));
      } else {
        Put(sequence);
      }
      text.remove_prefix(sequence.size());
    }
  }

  void AppendField(const LogField& field) {
    Append(" ");
    Append(field.key);
    Append("=");
    if (!NeedsQuotes(field.value)) return Append(field.value);
    Append("\"");
    Append(field.value, /*quoted=*/true);
    Append("\"");
  }

  bool full() const { return cut_; }
  std::string Take() && { return std::move(line_); }

 private:
  static bool NeedsQuotes(absl::string_view value) {
    return value.empty() || std::ranges::any_of(value, [](unsigned char c) {
             return c <= ' ' || c >= 0x7F || c == '"' || c == '=' || c == '\\';
           });
  }

  void AppendEscaped(char c) {
    if (c == '\n') return Put("\\n");
    if (c == '\r') return Put("\\r");
    if (c == '\t') return Put("\\t");
    Put(absl::StrCat(
        "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2)));
  }

  void Put(absl::string_view piece) {
    if (cut_) return;
    if (line_.size() + piece.size() > kMaxTextBytes - kCutMark.size()) {
      cut_ = true;
      piece = kCutMark;
    }
    line_.append(piece.data(), piece.size());
  }

  std::string line_;
  bool cut_ = false;
};

void WriteToJournal(LogLevel level, const std::string& text,
                    absl::Span<const LogField> fields) {
  const std::vector<std::string> entry =
      JournalFields(TheLogging().options, level, text, fields);
  std::vector<iovec> parts;
  for (const std::string& field : entry) {
    parts.push_back({const_cast<char*>(field.data()), field.size()});
  }
  if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) == 0) {
    return;
  }
  // The journal also reads the priority from the beginning of a line.
  std::fprintf(stderr, "<%d>%s\n", Of(level).priority, text.c_str());
}

void Write(LogLevel level, const std::string& text,
           absl::Span<const LogField> fields) {
  Logging& logging = TheLogging();
  const bool printed = LogEnabled(level);
  if (printed && logging.uses_journal) {
    WriteToJournal(level, text, fields);
  } else if (printed) {
    logging.logger->log(Of(level).spdlog, spdlog::string_view_t(absl::StrCat(
                                              Of(level).name, " ", text)));
  }
  if (level < LogLevel::kInfo) return;
  absl::MutexLock lock(&logging.sink_mutex);
  if (logging.sink) logging.sink(level, text);
}

// Writes how often lines were repeated, and forgets them.
void EndRepeats() {
  std::vector<RepeatedLines::Line> counted;
  {
    Logging& logging = TheLogging();
    absl::MutexLock lock(&logging.repeats_mutex);
    counted = logging.repeats.TakeCounted();
    logging.repeats = RepeatedLines();
  }
  for (const auto& [level, text] : counted) Write(level, text, {});
}

std::string FormatText(absl::string_view sentence,
                       absl::Span<const LogField> fields) {
  LineBuilder line;
  line.Append(sentence);
  for (const LogField& field : fields) {
    if (line.full()) break;
    line.AppendField(field);
  }
  return std::move(line).Take();
}

// Nothing where none were counted.
void AppendCount(int64_t counted, RepeatedLines::Line& line) {
  if (counted == 0) return;
  absl::StrAppend(&line.second, " [repeated ", counted,
                  counted == 1 ? " time" : " times", " but for numbers]");
}

}  // namespace

void StartLogging(const LogOptions& options) {
  EndRepeats();
  Logging& logging = TheLogging();
  logging.logger = MakeLogger(options);
  logging.uses_journal = StderrIsJournal();
  logging.options = options;
}

std::vector<std::string> JournalFields(const LogOptions& options,
                                       LogLevel level, const std::string& text,
                                       absl::Span<const LogField> fields) {
  std::vector<std::string> entry = {
      absl::StrCat("MESSAGE=", text),
      absl::StrCat("PRIORITY=", Of(level).priority),
      absl::StrCat("SYSLOG_IDENTIFIER=", options.program)};
  if (!options.worker.empty()) {
    entry.push_back(absl::StrCat("WORKER=", options.worker));
  }
  for (const LogField& field : fields) {
    if (std::ranges::count(kJournalKeys, field.key) == 0) continue;
    entry.push_back(
        absl::StrCat(absl::AsciiStrToUpper(field.key), "=", field.value));
  }
  return entry;
}

void SetLogLevel(LogLevel level) {
  TheLogging().logger->set_level(Of(level).spdlog);
  Log(LogLevel::kInfo, absl::StrCat("the log level is ", LogLevelName(level)));
}

bool LogEnabled(LogLevel level) {
  return TheLogging().logger->should_log(Of(level).spdlog);
}

void Log(LogLevel level, absl::string_view sentence,
         absl::Span<const LogField> fields) {
  if (level < LogLevel::kInfo && !LogEnabled(level)) return;
  std::vector<RepeatedLines::Line> lines = {
      {level, FormatText(sentence, fields)}};
  // A reader who wants lines of level debug wants each of them.
  if (level >= LogLevel::kInfo) {
    Logging& logging = TheLogging();
    absl::MutexLock lock(&logging.repeats_mutex);
    lines = logging.repeats.OnLine(std::move(lines[0]), SteadyNow());
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    // Those before the last one are of other kinds.
    Write(lines[i].first, lines[i].second,
          i + 1 == lines.size() ? fields : absl::Span<const LogField>());
  }
}

void SetLogSink(LogSink sink) {
  EndRepeats();  // a new sink has heard of nothing
  absl::MutexLock lock(&TheLogging().sink_mutex);
  TheLogging().sink.swap(sink);
}

absl::string_view LogLevelName(LogLevel level) { return Of(level).name; }

bool ParseLogLevel(absl::string_view name, LogLevel* level) {
  const auto found = std::ranges::find(kLevels, name, &Level::name);
  if (found == kLevels.end()) return false;
  *level = static_cast<LogLevel>(found - kLevels.begin());
  return true;
}

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
    kinds_.erase(
        std::ranges::min_element(kinds_, [](const auto& a, const auto& b) {
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
