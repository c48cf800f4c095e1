#include "client/files/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::HasSubstr;

SettingsSource Source(const std::string& where,
                      std::optional<std::string> coordinator,
                      std::optional<std::string> output = std::nullopt) {
  return {.where = where, .coordinator = coordinator, .output = output};
}

TEST(Settings, AreDefaultsWhenNobodySaysOtherwise) {
  const auto settings = ResolveSettings({});

  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->coordinator, "127.0.0.1:7400");
  EXPECT_EQ(settings->output, OutputFormat::kTable);
}

TEST(Settings, TheFirstSourceThatSpeaksDecidesEachByItself) {
  const auto settings = ResolveSettings({Source("flags", std::nullopt, "json"),
                                         Source("environment", "e:1"),
                                         Source("file", "f:1", "yaml")});

  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->coordinator, "e:1");
  EXPECT_EQ(settings->output, OutputFormat::kJson);
  EXPECT_FALSE(settings->coordinator_from_flag);
}

TEST(Settings, KnowWhetherTheFlagNamedTheCoordinator) {
  const auto settings = ResolveSettings({Source("flags", "a:1")});

  ASSERT_TRUE(settings.ok());
  EXPECT_TRUE(settings->coordinator_from_flag);
}

TEST(Settings, MistakesNameTheirSource) {
  for (const char* bad : {"nohost", ":7400", "h:0", "h:65536", "h:x", "a b:1",
                          "http://h:7400", "h:"}) {
    const auto settings = ResolveSettings({Source("FILE:3", bad)});
    EXPECT_EQ(ExitCodeFor(settings.status()), kExitUsage) << bad;
    EXPECT_THAT(settings.status().message(), HasSubstr("FILE:3")) << bad;
  }
  EXPECT_THAT(
      ResolveSettings({Source("F", std::nullopt, "xml")}).status().message(),
      HasSubstr("none of table, json, jsonl, yaml"));
}

// Without them ::1:7411 was taken for host ::1, which gRPC then read as an
// address of its own.
TEST(Settings, AnIpv6AddressNeedsItsBrackets) {
  EXPECT_THAT(ResolveSettings({Source("F", "::1:7411")}).status().message(),
              HasSubstr("[::1]:7411"));
  EXPECT_EQ(ResolveSettings({Source("F", "[::1]:7411")})->coordinator,
            "[::1]:7411");
  EXPECT_THAT(ResolveSettings({Source("F", "http://h:1")}).status().message(),
              HasSubstr("no scheme"));
}

TEST(Settings, FilesAreLookedForFromNearToFar) {
  setenv("XDG_CONFIG_HOME", "/xdg", 1);
  EXPECT_EQ(SettingsFiles(), (std::vector<std::string>{
                                 "paceline.yaml", "/xdg/paceline/paceline.yaml",
                                 "/etc/paceline/paceline.yaml"}));

  unsetenv("XDG_CONFIG_HOME");
  setenv("HOME", "/home/u", 1);
  EXPECT_EQ(SettingsFiles()[1], "/home/u/.config/paceline/paceline.yaml");
}

TEST(Settings, TheEnvironmentSpeaksUnlessEmpty) {
  setenv("PACELINE_COORDINATOR", "h:1", 1);
  setenv("PACELINE_OUTPUT", "", 1);

  const SettingsSource source = EnvironmentSettings();

  EXPECT_EQ(source.coordinator, "h:1");
  EXPECT_FALSE(source.output.has_value());
  unsetenv("PACELINE_COORDINATOR");
  unsetenv("PACELINE_OUTPUT");
}

TEST(SettingsFile, GivesItsTwoKeys) {
  const auto source =
      ParseSettingsFile("p.yaml", "coordinator: h:7400\noutput: json\n");

  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->coordinator, "h:7400");
  EXPECT_EQ(source->output, "json");
}

TEST(SettingsFile, MayBeEmptyOrMissing) {
  EXPECT_TRUE(ParseSettingsFile("p.yaml", "# nothing\n").ok());
  const auto missing = ReadSettingsFile("/nowhere/paceline.yaml");
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->has_value());
}

TEST(SettingsFile, IsReadFromItsPath) {
  const std::string path = absl::StrCat(testing::TempDir(), "/p", getpid());
  std::ofstream(path) << "output: json\n";

  const auto source = ReadSettingsFile(path);
  std::filesystem::remove(path);

  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE(source->has_value());
  EXPECT_EQ((*source)->output, "json");
  EXPECT_EQ((*source)->where, path + ":1");
}

// It was meant to be one, or it is not; both are worth a word.
TEST(SettingsFile, WhatIsThereAndCannotBeReadIsAnError) {
  const std::string path = absl::StrCat(testing::TempDir(), "/p", getpid());
  const auto complaint = [&path] {
    const auto source = ReadSettingsFile(path);
    EXPECT_EQ(ExitCodeFor(source.status()), kExitUsage);
    std::filesystem::remove(path);
    return std::string(source.status().message());
  };

  std::filesystem::create_directory(path);
  EXPECT_THAT(complaint(), HasSubstr(path + ": it is no regular file"));

  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(complaint(), HasSubstr(path + ": it is no regular file"));

  std::ofstream(path) << std::string(1 << 17, '#');
  EXPECT_THAT(complaint(), HasSubstr("are read; settings are"));
}

TEST(SettingsFile, MistakesNameTheLine) {
  const auto complaint = [](const std::string& text) {
    const auto source = ParseSettingsFile("p.yaml", text);
    EXPECT_EQ(ExitCodeFor(source.status()), kExitUsage) << text;
    return std::string(source.status().message());
  };

  EXPECT_EQ(complaint("output: json\ncoordinater: h:1\n"),
            "p.yaml:2: coordinater: unknown key; did you mean 'coordinator'?");
  EXPECT_EQ(complaint("colour: blue\n"),
            "p.yaml:1: colour: unknown key; known here: coordinator, output");
  EXPECT_THAT(complaint("output: json\noutput: yaml\n"),
              HasSubstr("p.yaml:2: output: duplicate key"));
  EXPECT_THAT(complaint("output: [json]\n"), HasSubstr("expected text"));
  EXPECT_THAT(complaint("- a\n"), HasSubstr("p.yaml:1: expected the keys"));
  EXPECT_THAT(complaint("a: [\n"), HasSubstr("is not YAML"));
}

}  // namespace
}  // namespace paceline
