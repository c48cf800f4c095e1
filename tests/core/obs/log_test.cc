#include "core/obs/log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

class RepeatedLinesTest : public testing::Test {
 protected:
  // The texts that are written when this line comes.
  std::vector<std::string> On(const std::string& text,
                              LogLevel level = LogLevel::kWarn) {
    std::vector<std::string> texts;
    for (auto& line : lines_.OnLine({level, text}, now_)) {
      texts.push_back(std::move(line.second));
    }
    return texts;
  }
  void Flood(const std::string& text, int count) {
    for (int i = 0; i < count; ++i) On(absl::StrCat(text, i));
  }

  Instant now_{absl::Hours(1)};
  RepeatedLines lines_;
};

TEST_F(RepeatedLinesTest, TheFirstOfAKindAreWrittenAndThenOneAtAPace) {
  for (int i = 0; i < RepeatedLines::kAtOnce; ++i) {
    const std::string text =
        absl::StrCat("skipped step=", i, " loss=", 0.5 * i);
    EXPECT_THAT(On(text), ElementsAre(text));
  }
  for (int i = 0; i < 57; ++i) {
    EXPECT_THAT(On(absl::StrCat("skipped step=", i, " loss=1e+20")), IsEmpty());
  }

  now_ = now_ + RepeatedLines::kPace;

  EXPECT_THAT(On("skipped step=99 loss=3"),
              ElementsAre("skipped step=99 loss=3 [repeated 57 times but for "
                          "numbers]"));
  EXPECT_THAT(On("skipped step=100 loss=3"), IsEmpty());
}

TEST_F(RepeatedLinesTest, AnHourOfAHundredLinesASecondIsAFewHundredLines) {
  int written = 0;
  int64_t counted = 0;
  for (int i = 0; i < 360'000; ++i, now_ = now_ + absl::Milliseconds(10)) {
    for (const std::string& text : On(absl::StrCat("diverged step=", i))) {
      ++written;
      const size_t at = text.find("[repeated ");
      if (at != std::string::npos) counted += std::stoll(text.substr(at + 10));
    }
  }
  const std::vector<std::string> end = On("the job has ended");
  ASSERT_EQ(end.size(), 2u);
  counted += std::stoll(
      end[0].substr(absl::StrCat("diverged step=359999 [repeated ").size()));

  EXPECT_LT(written, 400);
  EXPECT_EQ(written + counted, 360'000);
}

TEST_F(RepeatedLinesTest, AnotherLineSaysHowOftenTheLastOnesWereRepeated) {
  Flood("skipped step=", RepeatedLines::kAtOnce + 3);

  EXPECT_THAT(On("the job ended"),
              ElementsAre("skipped step=12 [repeated 3 times but for numbers]",
                          "the job ended"));
  EXPECT_THAT(On("and again"), ElementsAre("and again"));
}

TEST_F(RepeatedLinesTest, NoisyKindsDoNotMakeEachOtherNoisier) {
  int written = 0;
  for (int i = 0; i < 10'000; ++i, now_ = now_ + absl::Milliseconds(1)) {
    written += static_cast<int>(On(absl::StrCat("one n=", i)).size());
    written += static_cast<int>(On(absl::StrCat("other n=", i)).size());
  }

  EXPECT_LT(written, 2 * RepeatedLines::kAtOnce + 6);
}

TEST_F(RepeatedLinesTest, LinesThatComeSlowlyAreAllWritten) {
  for (int i = 0; i < 100; ++i, now_ = now_ + RepeatedLines::kPace) {
    EXPECT_THAT(On(absl::StrCat("attached worker=", i)),
                ElementsAre(absl::StrCat("attached worker=", i)));
  }
}

TEST_F(RepeatedLinesTest, WordsAndLevelsMakeAKind) {
  Flood("lost worker=", 100);

  EXPECT_THAT(On("lost member=1"), testing::Contains("lost member=1"));
  EXPECT_THAT(On("lost worker=1", LogLevel::kError),
              testing::Contains("lost worker=1"));
}

TEST_F(RepeatedLinesTest, ANumberIsAnyWordWithADigit) {
  const auto kind = [](absl::string_view text) {
    return RepeatedLines::KindOf({LogLevel::kInfo, std::string(text)});
  };

  for (const char* text :
       {"loss=1", "loss=-1", "loss=0.25", "loss=1e-05", "loss=2.5e+20"}) {
    EXPECT_EQ(kind(text), kind("loss=7")) << text;
  }
  EXPECT_EQ(kind("at 127.0.0.1:7400"), kind("at 10.0.0.12:41"));
  EXPECT_EQ(kind("file a/b1.png"), kind("file a/c22.png"));
  EXPECT_NE(kind("loss=nan"), kind("loss=7"));
  EXPECT_NE(kind("file x/b1.png"), kind("file a/b1.png"));
  EXPECT_NE(kind("a=1 b=2"), kind("a=1"));
}

// Words without an end are no way to its memory either.
TEST_F(RepeatedLinesTest, KindsAreForgottenWhenThereAreTooMany) {
  Flood("first n=", RepeatedLines::kAtOnce + 4);
  std::vector<std::string> said;
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      for (std::string& text : On(std::string{a, b})) {
        said.push_back(std::move(text));
      }
    }
  }

  EXPECT_THAT(said, testing::Contains(HasSubstr("repeated 4 times")));
  EXPECT_EQ(said.size(), 26u * 26 + 1);
}

TEST_F(RepeatedLinesTest, OtherKindsDoNotMakeOneNoisyAgain) {
  Flood("diverged step=", RepeatedLines::kAtOnce);

  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      now_ = now_ + absl::Milliseconds(1);
      On(absl::StrCat("cannot be read file=cat/", std::string{a, b}, ".jpg"));
      now_ = now_ + absl::Milliseconds(1);
      EXPECT_THAT(On("diverged step=1"), IsEmpty()) << a << b;
    }
  }
}

}  // namespace
}  // namespace paceline
