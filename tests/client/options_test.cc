#include "client/options.h"

#include "client/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::Not;

std::optional<ParseStop> Parse(std::vector<const char*> words,
                               ClientOptions* options) {
  words.insert(words.begin(), "paceline");
  return ParseClientOptions(static_cast<int>(words.size()), words.data(),
                            options);
}

ClientOptions Parsed(const std::vector<const char*>& words) {
  ClientOptions options;
  const auto stop = Parse(words, &options);
  EXPECT_FALSE(stop.has_value()) << stop->err;
  return options;
}

ParseStop Stopped(const std::vector<const char*>& words) {
  ClientOptions options;
  const auto stop = Parse(words, &options);
  EXPECT_TRUE(stop.has_value());
  return stop.value_or(ParseStop());
}

TEST(Options, GlobalOnesMayStandBeforeAndAfterTheCommand) {
  for (const auto& words : std::vector<std::vector<const char*>>{
           {"-o", "json", "--coordinator", "h:1", "job", "show", "3"},
           {"job", "show", "3", "-o", "json", "--coordinator=h:1"}}) {
    const ClientOptions options = Parsed(words);

    EXPECT_EQ(options.command, Command::kJobShow);
    EXPECT_EQ(options.target, "3");
    EXPECT_EQ(options.output, "json");
    EXPECT_EQ(options.coordinator, "h:1");
  }
}

TEST(Options, SetMayBeRepeatedAndTakesOneWord) {
  const ClientOptions options =
      Parsed({"job", "submit", "--set", "a.b=1", "job.yaml", "--set", "c=[1,2]",
              "--timeout", "2m"});

  EXPECT_EQ(options.command, Command::kJobSubmit);
  EXPECT_EQ(options.target, "job.yaml");
  EXPECT_EQ(options.sets, (std::vector<std::string>{"a.b=1", "c=[1,2]"}));
  EXPECT_EQ(options.timeout, absl::Minutes(2));
}

TEST(Options, StandardInputIsADash) {
  EXPECT_EQ(Parsed({"job", "submit", "-"}).target, "-");
  EXPECT_EQ(Parsed({"job", "submit", "-f", "-"}).target, "-");
}

TEST(Options, ExportsDashOIsAFile) {
  const ClientOptions options =
      Parsed({"job", "export", "3", "-o", "w.safetensors"});

  EXPECT_EQ(options.export_file, "w.safetensors");
  EXPECT_FALSE(options.output.has_value());
}

TEST(Options, UpHasTheContractsDefaults) {
  const ClientOptions options = Parsed({"up"});

  EXPECT_EQ(options.command, Command::kUp);
  EXPECT_EQ(options.up.mesh.workers, 4);
  EXPECT_EQ(options.up.mesh.port, 7400);
  EXPECT_EQ(options.up.mesh.http_port, 7480);
  EXPECT_EQ(Parsed({"up", "--port", "0", "--ready-file", "r"}).up.ready_file,
            "r");
}

TEST(Options, MistakesAreUsageErrorsThatSayWhere) {
  for (const auto& words : std::vector<std::vector<const char*>>{
           {},
           {"job"},
           {"nothing"},
           {"job", "show"},
           {"job", "show", "1", "2"},
           {"job", "list", "-o", "xml"},
           {"job", "submit", "f", "--timeout", "soon"},
           {"up", "--workers", "0"},
           {"up", "--port", "70000"},
           {"job", "export", "3"},
           {"completion", "tcsh"},
           {"job", "submit", "f", "--nope"}}) {
    const ParseStop stop = Stopped(words);

    EXPECT_EQ(stop.exit_code, kExitUsage);
    EXPECT_EQ(stop.out, "");
    EXPECT_THAT(stop.err, HasSubstr("--help'"));
  }
}

TEST(Options, AMistypedCommandIsShownTheLikelyOne) {
  EXPECT_THAT(Stopped({"-o", "json", "job", "submitt", "f"}).err,
              HasSubstr("'submitt' is no command; did you mean 'submit'?"));
  EXPECT_THAT(Stopped({"qqqqqq"}).err, HasSubstr("there are: up, job, node"));
}

TEST(Options, HelpAndVersionEndWell) {
  for (const char* flag : {"--help", "--version"}) {
    const ParseStop stop = Stopped({flag});

    EXPECT_EQ(stop.exit_code, 0);
    EXPECT_NE(stop.out, "");
    EXPECT_EQ(stop.err, "");
  }
  EXPECT_THAT(Stopped({"--help"}).out, HasSubstr("Examples:"));
  EXPECT_THAT(Stopped({"job", "submit", "--help"}).out,
              HasSubstr("paceline job submit job.yaml"));
}

// Calls visit(path, node) for every command.
template <typename Visit>
void Walk(const CommandNode& node, const std::string& path,
          const Visit& visit) {
  visit(path, node);
  for (const CommandNode& child : node.commands) {
    Walk(child, path.empty() ? child.name : path + " " + child.name, visit);
  }
}

TEST(Completion, TheTreeHasTheWholeContract) {
  std::string paths;
  Walk(DescribeCommandLine(), "",
       [&](const std::string& path, const CommandNode&) {
         paths += path + ";";
       });

  for (const char* command :
       {"up", "job submit", "job list", "job show", "job logs", "job events",
        "job wait", "job stop", "job export", "job delete", "node list",
        "node show", "model list", "model inspect", "completion"}) {
    EXPECT_THAT(paths, HasSubstr(std::string(";") + command + ";"));
  }
}

TEST(Completion, KnowsEveryCommandAndOptionInEveryShell) {
  const CommandNode root = DescribeCommandLine();
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = RenderCompletion(root, shell);

    ASSERT_TRUE(script.ok());
    Walk(root, "", [&](const std::string& path, const CommandNode& node) {
      EXPECT_THAT(*script, HasSubstr(path)) << shell;
      for (const CommandOption& option : node.options) {
        // fish writes options without their dashes.
        const std::string& name = option.names.back();
        EXPECT_THAT(*script,
                    HasSubstr(name.substr(name.find_first_not_of('-'))))
            << shell << " " << path;
      }
    });
    EXPECT_THAT(*script, HasSubstr("table json jsonl yaml")) << shell;
    EXPECT_THAT(*script, HasSubstr("bash")) << shell;
  }
}

TEST(Completion, AnExportsDashOIsNotAFormat) {
  const auto script = RenderCompletion(DescribeCommandLine(), "bash");

  ASSERT_TRUE(script.ok());
  EXPECT_THAT(*script, HasSubstr("\"job export:-o\"|\"job export:--output-"
                                 "file\") COMPREPLY=($(compgen -f"));
  EXPECT_THAT(*script, Not(HasSubstr("\"job export:-o\"|\"job export:--"
                                     "output\")")));
}

TEST(Completion, RefusesAnotherShell) {
  EXPECT_FALSE(RenderCompletion(DescribeCommandLine(), "tcsh").ok());
}

}  // namespace
}  // namespace paceline
