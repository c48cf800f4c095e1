#include "client/values/document.h"

#include <cmath>
#include <limits>

#include "client/values/text.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace paceline {
namespace {

Document Sample() {
  return Document{
      {"id", 3},
      {"name", "a \"b\"\n\x01"},
      {"none", Document()},
      {"flag", Document(true)},
      {"list", Document::array({1, Document{{"x", 0.5}, {"y", "no"}}})},
      {"empty", Document::array()}};
}

TEST(Document, WritesOneLineOfJson) {
  EXPECT_EQ(ToJson(Sample()),
            R"({"id":3,"name":"a \"b\"\n\u0001","none":null,"flag":true,)"
            R"("list":[1,{"x":0.5,"y":"no"}],"empty":[]})");
}

TEST(Document, PrettyJsonIsTheSameDocument) {
  const std::string pretty = ToJson(Sample(), /*pretty=*/true);

  EXPECT_EQ(nlohmann::json::parse(pretty),
            nlohmann::json::parse(ToJson(Sample())));
  EXPECT_EQ(pretty.substr(0, 13), "{\n  \"id\": 3,\n");
}

TEST(Document, WritesBlockYaml) {
  EXPECT_EQ(ToYaml(Sample()),
            "id: 3\n"
            "name: \"a \\\"b\\\"\\n\\x01\"\n"
            "none: null\n"
            "flag: true\n"
            "list:\n"
            "  - 1\n"
            "  - x: 0.5\n"
            "    \"y\": \"no\"\n"
            "empty: []\n");
}

TEST(Document, YamlReadsBackWhatLooksLikeSomethingElse) {
  EXPECT_EQ(ToYaml(Document(Document{{"a: b\n", "c"}, {"yes", 1}})),
            "\"a: b\\n\": c\n\"yes\": 1\n");

  for (const std::string text :
       {"true", "12", "1e3", "null", "~", "- a", "a: b", "#x", "", " x", "0x10",
        "yes", "[", "multi\nline", "2024-01-01"}) {
    const std::string yaml = ToYaml(Document(Document{{"k", text}}));

    const YAML::Node node = YAML::Load(yaml)["k"];

    EXPECT_EQ(node.Scalar(), text) << yaml;
    EXPECT_FALSE(node.IsNull()) << yaml;
  }
}

TEST(Document, NumbersReadBackAsTheSameDouble) {
  for (const double value :
       {0.1, 1.0, 1e-5, 1e300, -2.5, 1.0 / 3, 123456789.0, 5e-324, 0.0}) {
    const std::string json = ToJson(Document(value));
    // Readers of YAML 1.1 take a number with an exponent but no point for text.
    const std::string yaml = ToYaml(Document(value));

    EXPECT_EQ(nlohmann::json::parse(json).get<double>(), value) << json;
    EXPECT_EQ(YAML::Load(yaml).as<double>(), value) << yaml;
    EXPECT_NE(yaml.find('.'), std::string::npos) << yaml;
  }
}

TEST(Document, WhatJsonLacksIsNullAndBytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(ToJson(Document(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(ToJson(Document(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(ToJson(Document("ok\xff\xc0 \xe2\x82")),
            "\"ok\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\"");
}

TEST(Text, ValidUtf8KeepsCharactersOfAllLengths) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\xB2";

  EXPECT_EQ(ValidUtf8(text), text);
  EXPECT_EQ(DisplayWidth(text), 5);
}

TEST(Text, WhatIsNoNumberHasNoSign) {
  EXPECT_EQ(HumanLoss(-NAN), "nan");
  EXPECT_EQ(HumanNumber(-NAN), "nan");
  EXPECT_EQ(HumanLoss(-0.5), "-0.5000");
}

TEST(Text, PrintableTakesAwayTheCursor) {
  EXPECT_EQ(Printable("a\x1b[31mb\nc\x7f\xC2\x9b"), "a?[31mb c??");
  EXPECT_EQ(Printable("a\u202Eb\xFF"), "a?b\uFFFD") << "turns the text";
}

TEST(Text, TimeoutsMayHaveUnits) {
  absl::Duration timeout;

  EXPECT_TRUE(ParseTimeout("90", &timeout));
  EXPECT_EQ(timeout, absl::Seconds(90));
  EXPECT_TRUE(ParseTimeout("1.5m", &timeout));
  EXPECT_EQ(timeout, absl::Seconds(90));
  for (const char* bad : {"", "x", "-1", "inf", "nan", "5 parsecs", "-3s"}) {
    EXPECT_FALSE(ParseTimeout(bad, &timeout)) << bad;
  }
}

TEST(Text, CountsAndTimesAreShort) {
  EXPECT_EQ(HumanCount(812), "812");
  EXPECT_EQ(HumanCount(13'400), "13.4 k");
  EXPECT_EQ(HumanBytes(1.5 * 1024 * 1024), "1.50 MiB");
  EXPECT_EQ(HumanDuration(absl::Seconds(59.6)), "1 min 0 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(7500)), "2 h 5 min");
  EXPECT_EQ(HumanDuration(-absl::Seconds(5)), "0 s");
}

TEST(Text, RatesBelowOneAreNotRoundedToNothing) {
  EXPECT_EQ(HumanRate(0.0834), "0.083");
  EXPECT_EQ(HumanRate(7.96), "8");
  EXPECT_EQ(HumanRate(9.99), "10");
  EXPECT_EQ(HumanRate(640.4), "640");
  EXPECT_EQ(HumanRate(0), "0");
}

TEST(Text, WideCharactersTakeTwoColumnsAndMarksNone) {
  EXPECT_EQ(DisplayWidth("日本"), 4);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);
  EXPECT_EQ(DisplayWidth("🚲a"), 3);
  EXPECT_EQ(CutToWidth("日本語", 5), "日本");
}

TEST(Text, AWordOfAnyLengthIsShortened) {
  const std::string path = "/" + std::string(250, 'p');
  const std::string text =
      ShortenWords("no job '" + std::string(5000, 'x') + "' at " + path);

  EXPECT_LT(text.size(), 450u);
  EXPECT_NE(text.find("5002 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find(" at " + path), std::string::npos) << text;
}

TEST(ClosedWord, ThatIsNotOnTheListNamesTheNearestAndAll) {
  EXPECT_TRUE(CheckAmong("", "policy", "optimal", {"optimal", "equal"}).ok());
  EXPECT_EQ(WhyNotAmong("schedule", "1f1", {"1f1b", "gpipe"}),
            "there is no schedule '1f1'; did you mean '1f1b'?; there are: "
            "1f1b, gpipe");
  EXPECT_EQ(
      CheckAmong("--policy: ", "policy", "transmogrify", {"optimal", "equal"}),
      absl::InvalidArgumentError("--policy: there is no policy "
                                 "'transmogrify'; there are: optimal, equal"));
}

}  // namespace
}  // namespace paceline
