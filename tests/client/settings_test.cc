#include "client/files/settings.h"

#include <sys/stat.h>

#include <cstdlib>

#include "absl/strings/str_split.h"
#include "client/commands/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::HasSubstr;

SettingsSource From(const std::string& where,
                    std::optional<std::string> coordinator,
                    std::optional<std::string> output = std::nullopt) {
  return {.where = where, .coordinator = coordinator, .output = output};
}

TEST(Settings, ASecretIsShownToItsOwnMeshOnly) {
  SettingsSource file = From("file", "mesh:1");
  file.secret_file = "/secret";

  EXPECT_EQ(ResolveSettings({file})->secret_file, "/secret");
  EXPECT_EQ(ResolveSettings({From("flag", "mesh:1"), file})->secret_file,
            "/secret");
  EXPECT_EQ(ResolveSettings({From("flag", "other:1"), file})->secret_file, "");
  // A file that names no mesh means each one.
  file.coordinator.reset();
  EXPECT_EQ(ResolveSettings({From("flag", "other:1"), file})->secret_file,
            "/secret");
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
}

// "coordinator" and "output" are settings of the source FILE:3; "file" is a
// whole file.
TEST(Settings, MistakesNameTheirSourceAndLine) {
  ExpectAnswers("client/settings", [](const std::string& question) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(question, absl::MaxSplits(absl::ByAnyChar(" \n"), 1));
    const auto& [kind, text] = parts;
    const absl::Status status =
        kind == "file" ? ParseSettingsFile("p.yaml", text + "\n").status()
        : kind == "output"
            ? ResolveSettings({From("FILE:3", std::nullopt, text)}).status()
            : ResolveSettings({From("FILE:3", text)}).status();
    EXPECT_EQ(ExitCodeFor(status), kExitUsage) << question;
    return std::string(status.message());
  });
  EXPECT_EQ(ResolveSettings({From("F", "[::1]:7411")})->coordinator,
            "[::1]:7411");
  EXPECT_EQ(ResolveSettings({From("F", "auto")})->coordinator, "auto");
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

// A home of its own for the user of the test.
class Contexts : public testing::Test {
 protected:
  Contexts() {
    setenv("XDG_CONFIG_HOME", home_.path().c_str(), 1);
    EXPECT_TRUE(SetContext("home", "home:1").ok());
    EXPECT_TRUE(SetContext("lab", "[::1]:2").ok());
  }
  ~Contexts() override {
    for (const char* name :
         {"XDG_CONFIG_HOME", "PACELINE_COORDINATOR", "PACELINE_CONTEXT"}) {
      unsetenv(name);
    }
  }
  static std::string Coordinator(std::optional<std::string> flag = {},
                                 std::optional<std::string> context = {}) {
    const auto settings = GatherSettings(From("flags", flag), context);
    return settings.ok() ? settings->coordinator
                         : std::string(settings.status().message());
  }

  const TemporaryFolder home_;
};

TEST_F(Contexts, HoldInTheOrderOfTheirRank) {
  EXPECT_EQ(Coordinator(), kDefaultCoordinator);
  home_.Write("paceline/paceline.yaml", "coordinator: user:1\n");
  EXPECT_EQ(Coordinator(), "user:1");

  ASSERT_TRUE(UseContext("home").ok());
  EXPECT_EQ(Coordinator(), "home:1");

  setenv("PACELINE_CONTEXT", "lab", 1);
  EXPECT_EQ(Coordinator(), "[::1]:2");

  setenv("PACELINE_COORDINATOR", "variable:1", 1);
  EXPECT_EQ(Coordinator(), "variable:1");
  EXPECT_EQ(Coordinator({}, "home"), "home:1");
  EXPECT_EQ(Coordinator("flag:1", "home"), "flag:1");
}

TEST_F(Contexts, AreListedAndTheOneInUseGoesWithItsFile) {
  EXPECT_EQ(ContextNames(), (std::vector<std::string>{"home", "lab"}));
  ASSERT_TRUE(UseContext("lab").ok());
  EXPECT_EQ(CurrentContext(), "lab");

  EXPECT_TRUE(DeleteContext("lab").ok());

  EXPECT_EQ(CurrentContext(), "");
  EXPECT_EQ(ContextNames(), std::vector<std::string>{"home"});
  EXPECT_TRUE(UseContext("home").ok());
  EXPECT_TRUE(UseContext("").ok());
  EXPECT_EQ(CurrentContext(), "");
}

TEST_F(Contexts, ThatDoNotExistOrHaveNoNameAreRefused) {
  EXPECT_THAT(Coordinator({}, "work"),
              Says("no context 'work'", "home, lab", "context set work"));
  EXPECT_EQ(ExitCodeFor(UseContext("work")), kExitNotFound);
  EXPECT_EQ(ExitCodeFor(DeleteContext("work")), kExitNotFound);
  for (const std::string& name :
       {std::string("../x"), std::string("a/b"), std::string(64, 'x'),
        std::string("a b"), std::string()}) {
    const absl::Status set = SetContext(name, "h:1");
    EXPECT_EQ(ExitCodeFor(set), kExitUsage) << name;
    EXPECT_THAT(set.message(), HasSubstr("a context's name is 1 to 63"));
  }
  EXPECT_THAT(SetContext("x", "nohost").message(), HasSubstr("HOST:PORT"));
  home_.Write("paceline/contexts/bad.yaml", "colour: blue\n");
  EXPECT_THAT(Coordinator({}, "bad"), HasSubstr("bad.yaml:1: colour"));
}

TEST_F(Contexts, AreNotWrittenWhereTheUserHasNoHome) {
  const std::string home = Environment("HOME");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");

  EXPECT_THAT(SetContext("x", "h:1").message(), HasSubstr("set HOME"));
  EXPECT_THAT(UseContext("").message(), HasSubstr("set HOME"));

  if (!home.empty()) setenv("HOME", home.c_str(), 1);
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

}  // namespace
}  // namespace paceline
