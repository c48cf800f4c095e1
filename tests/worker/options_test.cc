#include "worker/options.h"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

class WorkerOptionsTest : public ::testing::Test {
 protected:
  WorkerOptionsTest() { Configure(""); }
  ~WorkerOptionsTest() override {
    for (const std::string& variable : set_) unsetenv(variable.c_str());
  }

  void Configure(const std::string& text) { std::ofstream(file_) << text; }
  void SetEnvironment(const std::string& name, const std::string& value) {
    set_.push_back("PACELINE_WORKER_" + name);
    setenv(set_.back().c_str(), value.c_str(), /*overwrite=*/1);
  }

  // Parses a command line that names the configuration file.
  std::optional<WorkerOptions> Parse(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"--config", file_};
    words.insert(words.end(), flags.begin(), flags.end());
    return ParseAsIs(words);
  }
  std::optional<WorkerOptions> ParseAsIs(std::vector<std::string> words) {
    // Given, so that none is drawn and kept.
    words.insert(words.begin(), {"paceline-worker", "--machine-id", "m"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    WorkerOptions options;
    const bool go_on = ParseWorkerOptions(static_cast<int>(argv.size()),
                                          argv.data(), &options, &exit_code_);
    return go_on ? std::optional<WorkerOptions>(options) : std::nullopt;
  }

  const TempFolder folder_;
  const std::string file_ = folder_.Path("worker.toml");
  std::vector<std::string> set_;
  int exit_code_ = -1;
};

TEST_F(WorkerOptionsTest, AFlagIsAboveTheEnvironmentWhichIsAboveTheFile) {
  Configure(
      "listen = \"file:1\"\nname = \"n1\"\ninsecure = true\n"
      "http = \"file:9\"\nstate = \"/file\"\n");
  SetEnvironment("LISTEN", "environment:2");
  SetEnvironment("INSECURE", "false");
  SetEnvironment("HTTP", "environment:9");
  SetEnvironment("STATE", "");  // says nothing

  const auto options = Parse({"--http=flag:4"});

  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->http, "flag:4");
  EXPECT_EQ(options->listen, "environment:2");
  EXPECT_FALSE(options->insecure);
  EXPECT_EQ(options->name, "n1");
  EXPECT_EQ(options->state, "/file");
  EXPECT_EQ(options->advertise, WorkerOptions().advertise);
}

TEST_F(WorkerOptionsTest, JobsMayReadPublicDataAndWhatIsNamed) {
  using Folders = std::vector<std::string>;
  EXPECT_EQ(ReadAccessOf(*Parse({})).folders, Folders{"/usr/share/datasets"});
  const auto flags = Parse({"--data-dir", "/a", "--data-dir=/b:/c", "--state",
                            "/s", "--data-hidden"});
  ASSERT_TRUE(flags.has_value());
  EXPECT_EQ(ReadAccessOf(*flags).folders,
            (Folders{"/a", "/b", "/c", "/usr/share/datasets"}));
  EXPECT_EQ(ReadAccessOf(*flags).never, (Folders{"/s", "/s/tls", file_}));
  EXPECT_TRUE(ReadAccessOf(*flags).hidden);
  EXPECT_EQ(ReadAccessOf(*Parse({"--secret-file", "/x"})).never.back(), "/x");

  Configure("data-dir = \"/f:/g\"\nno-scripts = true\n");
  EXPECT_EQ(Parse({})->data_dirs, (Folders{"/f", "/g", kPublicData}));
  EXPECT_TRUE(Parse({})->no_scripts);
  EXPECT_FALSE(Parse({"--no-scripts=false"})->no_scripts);
  SetEnvironment("DATA_DIR", "/h:/i");
  EXPECT_EQ(Parse({})->data_dirs, (Folders{"/h", "/i", kPublicData}));
  EXPECT_FALSE(Parse({"--data-dir", "relative"}).has_value());
  EXPECT_EQ(exit_code_, 78);
}

TEST_F(WorkerOptionsTest, TheEnvironmentOrAFlagNamesTheFile) {
  Configure("listen = \"file:1\"\n");
  SetEnvironment("CONFIG", "/nowhere.toml");
  EXPECT_EQ(Parse({})->listen, "file:1") << "the flag";

  SetEnvironment("CONFIG", file_);
  EXPECT_EQ(ParseAsIs({})->listen, "file:1");
}

TEST_F(WorkerOptionsTest, AFileThatIsNamedAndMissingIsAMistake) {
  EXPECT_FALSE(ParseAsIs({"--config", "/nowhere.toml"}).has_value());
  EXPECT_EQ(exit_code_, 78);

  SetEnvironment("CONFIG", "/nowhere.toml");
  EXPECT_FALSE(ParseAsIs({}).has_value());
  EXPECT_EQ(exit_code_, 78);
}

// The check of the name once ran a regular expression over all of it.
TEST_F(WorkerOptionsTest, ANameOfAnyLengthIsRefusedWithTheRule) {
  ::testing::internal::CaptureStderr();

  EXPECT_FALSE(Parse({"--name", std::string(100'000, 'w')}).has_value());

  const std::string errors = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(exit_code_, 78);
  EXPECT_NE(errors.find("1 to 63 of a-z A-Z 0-9 . _ -"), std::string::npos);
  EXPECT_LT(errors.size(), 400u);
}

TEST_F(WorkerOptionsTest, ABadValueOrKeyIsAMistakeWhereverItStands) {
  for (const char* bad : {"name = \"a b\"\n", "lisen = \"h:1\"\n"}) {
    Configure(bad);
    EXPECT_FALSE(Parse({}).has_value()) << bad;
  }
  Configure("");
  EXPECT_FALSE(Parse({"--name", ""}).has_value());
  EXPECT_FALSE(Parse({"--lisen", "h:1"}).has_value());
  SetEnvironment("LOG_LEVEL", "loud");
  EXPECT_FALSE(Parse({}).has_value());

  EXPECT_EQ(exit_code_, 78);
}

}  // namespace
}  // namespace paceline
