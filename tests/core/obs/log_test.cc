#include "core/obs/log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

// Returns the text that `body` writes to stderr through a logger with
// `options`.
template <typename Body>
std::string Written(const LogOptions& options, Body body) {
  StartLogging(options);
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

template <typename Body>
std::string Written(Body body) {
  return Written({.program = "paceline-test"}, body);
}

// A line's text after time, program and level.
std::string TextOf(absl::string_view sentence,
                   const std::vector<LogField>& fields = {}) {
  const std::string line =
      Written([&] { Log(LogLevel::kInfo, sentence, fields); });
  const size_t at = line.find(" info ");
  EXPECT_NE(at, std::string::npos) << line;
  EXPECT_EQ(line.back(), '\n') << line;
  return line.substr(at + 6, line.size() - at - 7);
}

TEST(Log, WritesTimeProgramLevelSentenceAndFields) {
  const std::string line = Written([] {
    Log(LogLevel::kWarn, "worker attached", {{"worker", 3}, {"name", "pi-2"}});
  });

  EXPECT_THAT(line, MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:"
                                 "[0-9]{2}\\.[0-9]{3}Z paceline-test warn "
                                 "worker attached worker=3 name=pi-2\n"));
}

TEST(Log, WritesOnlyTheAskedLevelAndAbove) {
  const std::string lines =
      Written({.program = "p", .level = LogLevel::kWarn}, [] {
        Log(LogLevel::kDebug, "one");
        Log(LogLevel::kInfo, "two");
        Log(LogLevel::kWarn, "three");
        Log(LogLevel::kError, "four");
      });

  EXPECT_THAT(lines, MatchesRegex("[^\n]* warn three\n[^\n]* error four\n"));
}

TEST(Log, QuotesValuesThatWouldNotReadBack) {
  EXPECT_EQ(TextOf("s", {{"a", "two words"}}), "s a=\"two words\"");
  EXPECT_EQ(TextOf("s", {{"a", ""}}), "s a=\"\"");
  EXPECT_EQ(TextOf("s", {{"a", "x=y"}}), "s a=\"x=y\"");
  EXPECT_EQ(TextOf("s", {{"a", "say \"hi\""}}), "s a=\"say \\\"hi\\\"\"");
  EXPECT_EQ(TextOf("s", {{"a", "c:\\d"}}), "s a=\"c:\\\\d\"");
}

TEST(Log, KeepsOneEventOnOneLine) {
  EXPECT_EQ(TextOf("one\ntwo\r", {{"why", "a\tb\nc"}}),
            "one\\ntwo\\r why=\"a\\tb\\nc\"");
}

TEST(Log, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(TextOf("red \x1b[31m and \xC2\x9B"
                   "31m and \x7f"),
            "red \\x1b[31m and \\xc2\\x9b31m and \\x7f");
  EXPECT_EQ(TextOf(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Log, KeepsUtf8AndEscapesWhatIsNone) {
  EXPECT_EQ(TextOf("\xC3\xBC \xE2\x82\xAC \xF0\x9F\x9A\xB2"),
            "\xC3\xBC \xE2\x82\xAC \xF0\x9F\x9A\xB2");
  EXPECT_EQ(TextOf("\xFF\xC3"), "\\xff\\xc3");           // never; cut off
  EXPECT_EQ(TextOf("\xC0\xAF"), "\\xc0\\xaf");           // overlong '/'
  EXPECT_EQ(TextOf("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(TextOf("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // too high
}

TEST(Log, CutsALineAtEightKibibytesBetweenCharacters) {
  std::string huge;
  while (huge.size() < 1'000'000) huge += "\xC3\xBC";

  for (const std::string& text :
       {TextOf(huge), TextOf("x" + huge), TextOf("s", {{"v", huge}}),
        TextOf("s", std::vector<LogField>(10'000, LogField("k", 1)))}) {
    EXPECT_LE(text.size(), 8u << 10);
    EXPECT_GT(text.size(), 8000u);
    EXPECT_TRUE(absl::EndsWith(text, " [cut]"));
    EXPECT_FALSE(absl::StrContains(text, "\\x")) << "cut inside a character";
  }
}

TEST(Log, TakesBracesForBraces) {
  EXPECT_EQ(TextOf("{} {0} %d", {{"a", "{}"}}), "{} {0} %d a={}");
}

TEST(Log, KeepsLinesWholeWhenThreadsLogAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  const std::string lines = Written([] {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("logger", [t] {
        for (int i = 0; i < kLines; ++i) {
          // No line is another one's repetition.
          Log(LogLevel::kInfo, std::string(100 + i, 'a' + t));
        }
      });
    }
  });

  int count = 0;
  for (absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    ++count;
    ASSERT_THAT(std::string(line),
                MatchesRegex("[^ ]*Z paceline-test info (a+|b+|c+|d+)"));
    ASSERT_GE(line.substr(line.rfind(' ')).size(), 101u);
  }
  EXPECT_EQ(count, kThreads * kLines);
}

TEST(LogSink, GetsInfoAndAboveWhateverIsWritten) {
  std::vector<std::pair<LogLevel, std::string>> seen;

  const std::string lines =
      Written({.program = "p", .level = LogLevel::kError}, [&] {
        SetLogSink([&](LogLevel level, const std::string& text) {
          seen.emplace_back(level, text);
        });
        Log(LogLevel::kDebug, "not this");
        Log(LogLevel::kInfo, "plan sent", {{"plan", 7}});
        Log(LogLevel::kError, "lost");
        SetLogSink(nullptr);
        Log(LogLevel::kInfo, "after");
      });

  EXPECT_THAT(
      seen,
      ElementsAre(std::pair(LogLevel::kInfo, std::string("plan sent plan=7")),
                  std::pair(LogLevel::kError, std::string("lost"))));
  EXPECT_THAT(lines, MatchesRegex("[^\n]* p error lost\n"));
}

TEST(Log, CountsWhatRepeatsButForNumbersAndSaysHowOftenInTheEnd) {
  std::vector<std::string> seen;

  const std::string lines = Written([&] {
    SetLogSink(
        [&](LogLevel, const std::string& text) { seen.push_back(text); });
    for (int step = 0; step < 1000; ++step) {
      Log(LogLevel::kWarn, "step skipped", {{"step", step}, {"loss", 0.5}});
    }
    SetLogSink(nullptr);
  });

  ASSERT_EQ(seen.size(), 11u) << "unless this took ten seconds";
  EXPECT_EQ(seen.back(),
            "step skipped step=999 loss=0.5 [repeated 990 times but for "
            "numbers]");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 11);
}

TEST(Log, WritesEveryLineOfLevelDebug) {
  const std::string lines =
      Written({.program = "p", .level = LogLevel::kDebug}, [] {
        for (int i = 0; i < 100; ++i) Log(LogLevel::kDebug, "done", {{"n", i}});
      });

  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 100);
}

TEST(LogSink, IsNotCalledAnyMoreOnceItIsReplaced) {
  StartLogging({.program = "p", .level = LogLevel::kError});
  absl::Notification entered;
  absl::Notification leave;
  bool left = false;
  SetLogSink([&](LogLevel, const std::string&) {
    entered.Notify();
    leave.WaitForNotification();
    left = true;  // a race, for TSan to find, if SetLogSink does not wait
  });
  Thread logger("logger", [] { Log(LogLevel::kInfo, "slow"); });
  entered.WaitForNotification();
  Thread opener("opener", [&] { leave.Notify(); });

  SetLogSink(nullptr);

  EXPECT_TRUE(left);
}

TEST(LogLevel, IsReadAsItIsWritten) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    LogLevel back = LogLevel::kError;
    EXPECT_TRUE(ParseLogLevel(LogLevelName(level), &back));
    EXPECT_EQ(back, level);
  }
  EXPECT_EQ(LogLevelName(LogLevel::kWarn), "warn");
}

TEST(LogLevel, IsLeftAloneByANameThatIsNone) {
  LogLevel level = LogLevel::kWarn;
  for (const char* name : {"", "INFO", "warning", "trace", "info "}) {
    EXPECT_FALSE(ParseLogLevel(name, &level)) << name;
  }
  EXPECT_EQ(level, LogLevel::kWarn);
}

TEST(JournalFields, HaveThePriorityAndWhatTheLineIsAbout) {
  const std::vector<LogField> fields = {
      {"job", 3}, {"stage", 1}, {"step", 40}, {"status", "OK"}};

  EXPECT_THAT(JournalFields({.program = "paceline-worker", .worker = "pi-2"},
                            LogLevel::kWarn, "stage stopped job=3", fields),
              ElementsAre("MESSAGE=stage stopped job=3", "PRIORITY=4",
                          "SYSLOG_IDENTIFIER=paceline-worker", "WORKER=pi-2",
                          "JOB=3", "STAGE=1", "STEP=40"));
}

}  // namespace
}  // namespace paceline
