#include "coordinator/options.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

class CoordinatorOptionsTest : public ::testing::Test {
 protected:
  CoordinatorOptionsTest()
      : file_(::testing::TempDir() + "/coordinator-" +
              std::to_string(getpid()) + ".toml") {
    Configure("");
  }
  ~CoordinatorOptionsTest() override {
    unlink(file_.c_str());
    for (const std::string& variable : set_) unsetenv(variable.c_str());
  }

  void Configure(const std::string& text) { std::ofstream(file_) << text; }
  void SetEnvironment(const std::string& name, const std::string& value) {
    set_.push_back("PACELINE_COORDINATOR_" + name);
    setenv(set_.back().c_str(), value.c_str(), /*overwrite=*/1);
  }

  // Parses a command line that names the configuration file.
  std::optional<CoordinatorOptions> Parse(
      const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"--config", file_};
    words.insert(words.end(), flags.begin(), flags.end());
    return ParseAsIs(words);
  }
  std::optional<CoordinatorOptions> ParseAsIs(std::vector<std::string> words) {
    words.insert(words.begin(), "paceline-coordinator");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return ParseOptions(static_cast<int>(argv.size()), argv.data(),
                        &exit_code_);
  }

  const std::string file_;
  std::vector<std::string> set_;
  int exit_code_ = -1;
};

TEST_F(CoordinatorOptionsTest, TheStatesFolderIsNamedFromTheRoot) {
  EXPECT_EQ(Parse({"--state", "here"})->state,
            std::filesystem::current_path() / "here");
}

TEST_F(CoordinatorOptionsTest, AFlagIsAboveTheEnvironmentAndThatAboveTheFile) {
  Configure("listen = \"file:1\"\nlease = 7.5\ninsecure = true\n");
  EXPECT_EQ(Parse({})->listen, "file:1");
  EXPECT_EQ(Parse({})->lease, absl::Seconds(7.5));
  EXPECT_TRUE(Parse({})->insecure);
  EXPECT_EQ(Parse({})->http, CoordinatorOptions().http);

  SetEnvironment("LISTEN", "environment:2");
  SetEnvironment("INSECURE", "false");
  EXPECT_EQ(Parse({})->listen, "environment:2");
  EXPECT_FALSE(Parse({})->insecure);
  EXPECT_EQ(Parse({})->lease, absl::Seconds(7.5));

  EXPECT_EQ(Parse({"--listen", "flag:3"})->listen, "flag:3");
  SetEnvironment("LISTEN", "");  // says nothing
  EXPECT_EQ(Parse({})->listen, "file:1");
}

TEST_F(CoordinatorOptionsTest, AFlagOrTheEnvironmentNamesTheFile) {
  Configure("listen = \"file:1\"\n");
  SetEnvironment("CONFIG", file_);
  EXPECT_EQ(ParseAsIs({})->listen, "file:1");

  SetEnvironment("CONFIG", "/nowhere.toml");
  EXPECT_EQ(Parse({})->listen, "file:1");
}

TEST_F(CoordinatorOptionsTest, CheckpointsLieWhereSomebodySays) {
  EXPECT_EQ(Parse({})->checkpoint_dir, "") << "with all else";

  Configure("checkpoint-dir = \"/file\"\n");
  EXPECT_EQ(Parse({})->checkpoint_dir, "/file");
  SetEnvironment("CHECKPOINT_DIR", "/environment");
  EXPECT_EQ(Parse({})->checkpoint_dir, "/environment");
  EXPECT_EQ(Parse({"--checkpoint-dir", "/flag"})->checkpoint_dir, "/flag");
}

TEST_F(CoordinatorOptionsTest, AFileThatIsNamedAndMissingIsAMistake) {
  EXPECT_FALSE(ParseAsIs({"--config", "/nowhere.toml"}).has_value());
  EXPECT_EQ(exit_code_, 78);

  SetEnvironment("CONFIG", "/nowhere.toml");
  EXPECT_FALSE(ParseAsIs({}).has_value());
  EXPECT_EQ(exit_code_, 78);
}

TEST_F(CoordinatorOptionsTest, ABadValueOrKeyIsAMistakeWhereverItStands) {
  Configure("lease = 0.1\n");
  EXPECT_FALSE(Parse({}).has_value());
  Configure("lisen = \"h:1\"\n");
  EXPECT_FALSE(Parse({}).has_value());
  Configure("");
  EXPECT_FALSE(Parse({"--lease", "nan"}).has_value());
  EXPECT_FALSE(Parse({"--lisen", "h:1"}).has_value());
  SetEnvironment("LOG_LEVEL", "loud");
  EXPECT_FALSE(Parse({}).has_value());

  EXPECT_EQ(exit_code_, 78);
}

}  // namespace
}  // namespace paceline
