#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/obs/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
