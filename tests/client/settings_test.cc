#include "client/files/settings.h"

#include <sys/stat.h>

#include <cstdlib>

#include "client/commands/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;

SettingsSource From(const std::string& where,
                    std::optional<std::string> coordinator,
                    std::optional<std::string> output = std::nullopt) {
  return {.where = where, .coordinator = coordinator, .output = output};
}

TEST(Settings, AreDefaultsWhenNobodySaysOtherwise) {
  const auto settings = ResolveSettings({}).value();

  EXPECT_EQ(settings.coordinator, "127.0.0.1:7400");
  EXPECT_EQ(settings.output, OutputFormat::kTable);
}

TEST(Settings, TheFirstSourceThatSpeaksDecidesEachByItself) {
  const auto settings =
      ResolveSettings({From("flags", std::nullopt, "json"),
                       From("environment", "e:1"), From("file", "f:1", "yaml")})
          .value();

  EXPECT_EQ(settings.coordinator, "e:1");
  EXPECT_EQ(settings.output, OutputFormat::kJson);
  EXPECT_FALSE(settings.coordinator_from_flag);
  EXPECT_TRUE(ResolveSettings({From("flags", "a:1")})->coordinator_from_flag);
}

TEST(Settings, MistakesNameTheirSource) {
  for (const auto& [bad, says] : {std::pair{"nohost", "FILE:3"},
                                  {":7400", "FILE:3"},
                                  {"h:0", "FILE:3"},
                                  {"h:65536", "FILE:3"},
                                  {"h:x", "FILE:3"},
                                  {"a b:1", "FILE:3"},
                                  {"http://h:7400", "no scheme"},
                                  {"h:", "FILE:3"},
                                  // Without its brackets it was taken for host
                                  // ::1, which gRPC read as another address.
                                  {"::1:7411", "[::1]:7411"}}) {
    const auto settings = ResolveSettings({From("FILE:3", bad)});
    EXPECT_EQ(ExitCodeFor(settings.status()), kExitUsage) << bad;
    EXPECT_THAT(settings.status().message(), Says("FILE:3", says));
  }
  EXPECT_EQ(ResolveSettings({From("F", "[::1]:7411")})->coordinator,
            "[::1]:7411");
  EXPECT_EQ(ResolveSettings({From("F", "auto")})->coordinator, "auto");
  EXPECT_THAT(
      ResolveSettings({From("F", std::nullopt, "xml")}).status().message(),
      HasSubstr("none of table, json, jsonl, yaml"));
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

TEST(SettingsFile, MayBeEmptyOrMissing) {
  EXPECT_TRUE(ParseSettingsFile("p.yaml", "# nothing\n").ok());
  const auto missing = ReadSettingsFile("/nowhere/paceline.yaml").value();
  EXPECT_FALSE(missing.has_value());
}

TEST(SettingsFile, GivesItsTwoKeysAndIsReadFromItsPath) {
  const TemporaryFolder folder;

  const auto source =
      ReadSettingsFile(
          folder.Write("p.yaml", "coordinator: h:7400\noutput: json\n"))
          .value();

  EXPECT_EQ(source->coordinator, "h:7400");
  EXPECT_EQ(source->output, "json");
  EXPECT_EQ(source->where, folder.Path("p.yaml") + ":2");
}

// It was meant to be one, or it is not; both are worth a word.
TEST(SettingsFile, WhatIsThereAndCannotBeReadIsAnError) {
  const TemporaryFolder folder;
  const std::string pipe = folder.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, says] :
       {std::pair{folder.path(), ": it is no regular file"},
        {pipe, ": it is no regular file"},
        {folder.Write("large", std::string(1 << 17, '#')),
         "are read; settings are"}}) {
    const auto source = ReadSettingsFile(path);
    EXPECT_EQ(ExitCodeFor(source.status()), kExitUsage);
    EXPECT_THAT(source.status().message(), HasSubstr(says));
  }
}

TEST(SettingsFile, MistakesNameTheLine) {
  for (const auto& [text, says] :
       {std::pair{"output: json\ncoordinater: h:1\n",
                  "p.yaml:2: coordinater: unknown key; did you mean "
                  "'coordinator'?"},
        {"colour: blue\n", "p.yaml:1: colour: unknown key; known here:"},
        {"output: json\noutput: yaml\n", "p.yaml:2: output: duplicate key"},
        {"output: [json]\n", "expected text"},
        {"- a\n", "p.yaml:1: expected the keys"},
        {"a: [\n", "is not YAML"}}) {
    const auto source = ParseSettingsFile("p.yaml", text);
    EXPECT_EQ(ExitCodeFor(source.status()), kExitUsage) << text;
    EXPECT_THAT(source.status().message(), HasSubstr(says));
  }
}

}  // namespace
}  // namespace paceline
