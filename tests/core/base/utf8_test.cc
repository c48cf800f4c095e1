#include <string>

#include "absl/strings/match.h"
#include "core/base/text.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Characters of 1, 2, 3 and 4 bytes.
const std::string kGood = "a\n\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";

TEST(ToUtf8, LeavesGoodTextAsItIs) {
  EXPECT_EQ(ToUtf8(kGood, 100), kGood);
  EXPECT_EQ(ToUtf8(kGood, kGood.size()), kGood);
  EXPECT_EQ(ToUtf8("", 3), "");
}

TEST(ToUtf8, ShowsEachByteThatIsNoTextByItsNumber) {
  EXPECT_EQ(ToUtf8("/data/caf\xE9/x.png", 100), "/data/caf\\xe9/x.png");
  EXPECT_EQ(ToUtf8("\xC0\xAF", 100), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(ToUtf8("\xED\xA0\x80", 100), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80", 100), "\\xf4\\x90\\x80\\x80")
      << "above U+10FFFF";
  EXPECT_EQ(ToUtf8("x\xE2\x82", 100), "x\\xe2\\x82") << "not finished";
}

TEST(ToUtf8, CutsBetweenTwoCharactersAndSaysSo) {
  EXPECT_EQ(ToUtf8(std::string(20, 'x'), 10), "xxxxxxx...");
  EXPECT_EQ(ToUtf8("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 8),
            "\xC3\xA4\xC3\xA4...");
  EXPECT_EQ(ToUtf8("abc\xFFzz", 8), "abc...") << "no half of an escape";
}

TEST(ToUtf8, BoundsWhatIsNoTextToo) {
  const std::string text = ToUtf8(std::string(1 << 20, '\xFF'), 1000);

  EXPECT_LE(text.size(), 1000u);
  EXPECT_GE(text.size(), 990u);
  EXPECT_TRUE(absl::EndsWith(text, "\\xff..."));
}

TEST(HoldsControl, FindsWhatTerminalsObeyAndWhatTurnsText) {
  EXPECT_FALSE(HoldsControl(""));
  EXPECT_FALSE(HoldsControl("a \xC2\xA0\u061B\u200D\u2010\u2065\U0001F600"));
  for (const std::string& control :
       {std::string(1, '\0'), std::string("\n"), std::string("\x7F"),
        std::string("\xC2\x9B"), std::string("\u061C"), std::string("\u200F"),
        std::string("\u2028"), std::string("\u202E"), std::string("\u2066"),
        std::string("\u2069")}) {
    EXPECT_TRUE(HoldsControl("a" + control + "b")) << ToUtf8(control, 9);
  }
}

TEST(Utf8SequenceLength, IsZeroWhereNoneBegins) {
  EXPECT_EQ(Utf8SequenceLength(""), 0u);
  EXPECT_EQ(Utf8SequenceLength("a"), 1u);
  EXPECT_EQ(Utf8SequenceLength("\xE2\x82\xACx"), 3u);
  EXPECT_EQ(Utf8SequenceLength("\x80"), 0u);
}

}  // namespace
}  // namespace paceline
