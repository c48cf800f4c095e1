#include "client/options.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/command.h"
#include "client/dispatch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/command_line.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Options, GlobalOnesMayStandBeforeAndAfterTheCommand) {
  for (const char* words : {"-o json --coordinator h:1 job show 3",
                            "job show 3 -o json --coordinator=h:1"}) {
    const ClientOptions options = Parsed(words);

    EXPECT_EQ(options.command, "job show");
    EXPECT_EQ(options.target, "3");
    EXPECT_EQ(options.output, "json");
    EXPECT_EQ(options.coordinator, "h:1");
  }
}

TEST(Options, AContextIsSetUsedAndNamedByAnyCommand) {
  const ClientOptions set = Parsed("context set lab pi-1:7400");
  EXPECT_EQ(set.command, "context set");
  EXPECT_EQ(set.target, "lab");
  EXPECT_EQ(set.host, "pi-1:7400");
  EXPECT_EQ(Parsed("context use").target, "");
  EXPECT_EQ(Parsed("job list --context lab").context, "lab");
}

TEST(Options, ABenchOfInferenceIsLengthenedUnlessItsLengthIsGiven) {
  EXPECT_TRUE(Parsed("bench infer --model lenet").bench.lengthen);
  EXPECT_FALSE(
      Parsed("bench infer --model lenet --micro-batches 96").bench.lengthen);
  EXPECT_FALSE(Parsed("bench train --model lenet").bench.lengthen);
}

TEST(Options, StandardInputIsADash) {
  EXPECT_EQ(Parsed("job submit -").target, "-");
  EXPECT_EQ(Parsed("job submit -f -").target, "-");
}

TEST(Options, ExportsDashOIsAFile) {
  const ClientOptions options = Parsed("job export 3 -o w.safetensors");

  EXPECT_EQ(options.export_file, "w.safetensors");
  EXPECT_FALSE(options.output.has_value());
}

// It wrote the weights to a file called json.
TEST(Options, ExportsDashOIsNoForm) {
  const ClientOptions options = Parsed("job export 3 -o ./json --output json");
  EXPECT_EQ(options.export_file, "./json");
  EXPECT_EQ(options.output, "json");
}

TEST(Options, AReportIsOfSeveralJobsAndItsDashOIsAFile) {
  const ClientOptions options = Parsed("report 7 last -o r.csv --format csv");

  EXPECT_EQ(options.command, "report");
  EXPECT_THAT(options.report.jobs, ElementsAre("7", "last"));
  EXPECT_EQ(options.report.format, "csv");
  EXPECT_EQ(options.report.file, "r.csv");
  EXPECT_EQ(Parsed("report 7").report.format, "html");
}

TEST(Options, UpHasTheContractsDefaults) {
  const ClientOptions options = Parsed("up");

  EXPECT_EQ(options.command, "up");
  EXPECT_EQ(options.up.mesh.workers, 4);
  EXPECT_EQ(options.up.mesh.port, 7400);
  EXPECT_EQ(options.up.mesh.http_port, 7480);
  EXPECT_EQ(options.up.mesh.lease, absl::Seconds(3));
  EXPECT_EQ(Parsed("up --port 0 --ready-file r").up.ready_file, "r");
  EXPECT_EQ(Parsed("up --lease 500ms").up.mesh.lease, absl::Milliseconds(500));
  EXPECT_EQ(Parsed("up --lease 10").up.mesh.lease, absl::Seconds(10));
}

TEST(Options, MistakesAreUsageErrorsThatSayWhatWouldBeRight) {
  ExpectAnswers("client/usage", [](const std::string& words) {
    const ParseStop stop = Stopped(words);
    EXPECT_EQ(stop.exit_code, kExitUsage) << words;
    EXPECT_EQ(stop.out, "") << words;
    EXPECT_THAT(stop.err, HasSubstr("--help'"));
    return stop.err;
  });
  EXPECT_LT(Stopped(std::string(5000, 'x')).err.size(), 1000u);
}

TEST(Options, PlanTakesAMeshAJobOrAProfile) {
  const ClientOptions mesh = Parsed(
      "plan --model lenet --batch 16 --policy soft "
      "--micro-batches 0 --stages 3 --seed 9");
  EXPECT_EQ(mesh.command, "plan");
  EXPECT_EQ(mesh.plan.batch, 16);
  EXPECT_EQ(mesh.plan.policy, "soft");
  EXPECT_EQ(mesh.plan.micro_batches, 0);
  EXPECT_EQ(mesh.plan.stages, 3);
  EXPECT_EQ(mesh.plan.seed, 9u);

  const ClientOptions job = Parsed(
      "plan -f job.yaml --set train.steps=3 --compare --save p.json "
      "--no-replicas --reserve 1e9");
  EXPECT_EQ(job.plan.job_file, "job.yaml");
  EXPECT_TRUE(job.plan.compare);
  EXPECT_TRUE(job.plan.no_replicas);
  EXPECT_EQ(job.plan.save, "p.json");
  EXPECT_EQ(job.plan.reserve_bytes, 1e9);

  const ClientOptions profile = Parsed(
      "plan --profile vgg16.txt --machines 4x4 --bandwidth "
      "1e10,1.25e9 --memory 16e9 --speed 1,1,0.5 --cost-model "
      "pipedream --count-transfers");
  EXPECT_EQ(profile.plan.machines, "4x4");
  EXPECT_EQ(profile.plan.bandwidth, "1e10,1.25e9");
  EXPECT_EQ(profile.plan.speed, "1,1,0.5");
  EXPECT_EQ(profile.plan.memory, "16e9");
  EXPECT_EQ(profile.plan.cost_model, "pipedream");
  EXPECT_TRUE(profile.plan.count_transfers);
}

TEST(Options, PlanFilesAreTakenBySubmitAndSimulate) {
  EXPECT_EQ(Parsed("job submit j.yaml --plan p.json").plan_file, "p.json");
  EXPECT_EQ(Parsed("simulate --plan p.json").plan_file, "p.json");
}

TEST(Options, PredictIsOfAFileOrOfAModel) {
  const ClientOptions fit =
      Parsed("predict --fit a.csv --fit b.csv --at op=x,bytes=1");
  EXPECT_EQ(fit.command, "predict --fit");
  EXPECT_THAT(fit.predict.files, ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(fit.predict.at, ElementsAre("op=x,bytes=1"));
  const ClientOptions model =
      Parsed("predict --model vit --batch 8 --device w2 --set a=1");
  EXPECT_EQ(model.command, "predict --model");
  EXPECT_EQ(model.source.model, "vit");
  EXPECT_EQ(model.source.batch, 8);
  EXPECT_EQ(model.device, "w2");
}

TEST(Options, HelpAndVersionEndWell) {
  for (const char* flag : {"--help", "--version"}) {
    const ParseStop stop = Stopped(flag);

    EXPECT_EQ(stop.exit_code, 0);
    EXPECT_NE(stop.out, "");
    EXPECT_EQ(stop.err, "");
  }
  EXPECT_THAT(Stopped("--help").out, HasSubstr("Examples:"));
  EXPECT_THAT(Stopped("job submit --help").out,
              HasSubstr("paceline job submit job.yaml"));
}

// A line for every option of the group, thirteen times.
TEST(Options, HelpOfSimulateSaysOnceWhatAPlanExcludes) {
  const std::string help = Stopped("simulate --help").out;

  EXPECT_THAT(help, Not(HasSubstr("Excludes")));
  EXPECT_THAT(help, HasSubstr("Machines and model, without --plan:"));
  EXPECT_THAT(Stopped("job submit --help").out, HasSubstr("Excludes"));
}

TEST(Options, HelpMarksNothingAsRequiredThatHasAnotherForm) {
  EXPECT_THAT(Stopped("job submit --help").out, Not(HasSubstr("REQUIRED")));
  EXPECT_THAT(Stopped("job show --help").out, HasSubstr("REQUIRED"));
}

// The lines that a shell gets for `line`, whose last word is being typed.
std::string Offered(const std::string& line) {
  ClientOptions options;
  return CompletionText(
      CompleteCommandLine(absl::StrSplit(line, ' '), &options));
}

// The words of these lines, with commas between.
std::string WordsOffered(const std::string& line) {
  std::vector<std::string> words;
  for (const auto offer : absl::StrSplit(Offered(line), '\n')) {
    if (!absl::StrContains(offer, '\t')) continue;
    words.emplace_back(offer.substr(0, offer.find('\t')));
  }
  return absl::StrJoin(words, " ");
}

// Calls visit(path, help, has_commands) for every command at `path` and below.
template <typename Visit>
void Walk(const std::string& path, const Visit& visit) {
  const std::string help = Stopped(path + " --help").out;
  const bool has_commands = absl::StrContains(help, "\nSubcommands:\n");
  visit(path, help, has_commands);
  if (!has_commands) return;
  const std::string begin = path.empty() ? "" : path + " ";
  for (const auto child : absl::StrSplit(WordsOffered(begin), ' ')) {
    Walk(absl::StrCat(begin, child), visit);
  }
}

// A command without examples had those of the program.  Each is a command line
// that the table of commands knows.
TEST(Options, EachCommandsHelpHasItsOwnExamplesOnly) {
  Walk("",
       [](const std::string& path, const std::string& help, bool has_commands) {
         if (path.empty()) return;
         EXPECT_EQ(absl::StrContains(help, "Example"), !has_commands) << help;
         for (const absl::string_view line : absl::StrSplit(help, '\n')) {
           if (!absl::StartsWith(line, "  paceline ")) continue;
           EXPECT_THAT(std::string(line), HasSubstr("paceline " + path));
           const auto words = line.substr(11, line.find_first_of("<>|") - 11);
           const ClientOptions options = Parsed(std::string(words));
           EXPECT_EQ(RowOf(options).name.substr(0, path.size()), path);
         }
       });
}

TEST(Completion, OffersEveryCommandAndOption) {
  std::string paths;
  Walk("", [&](const std::string& path, const std::string& help, bool) {
    absl::StrAppend(&paths, path, ";");
    const std::string options = WordsOffered(path.empty() ? "-" : path + " -");
    for (const absl::string_view line : absl::StrSplit(help, '\n')) {
      if (!absl::StartsWith(line, "  -")) continue;
      const absl::string_view names = line.substr(2, line.find(' ', 2) - 2);
      for (const absl::string_view name : absl::StrSplit(names, ',')) {
        EXPECT_THAT(options, HasSubstr(std::string(name))) << path;
      }
    }
  });
  EXPECT_EQ(paths,
            ";up;job;job submit;job list;job show;job logs;job events;"
            "job wait;job watch;job stop;job export;job resume;job delete;"
            "job keys;node;node list;node show;node drain;node undrain;"
            "node forget;model;model list;model inspect;model prune;report;"
            "study;profile;bench;bench infer;bench train;plan;predict;"
            "simulate;token;token create;token list;token revoke;login;tls;"
            "tls revoke;tls check;doctor;context;context list;context set;"
            "context use;context delete;top;completion;");
}

TEST(Completion, GoesOnBehindTheLastCommaOfAList) {
  const std::pair<const char*, const char*> kCases[] = {
      {"bench train --schedule z", "zero-bubble"},
      {"bench infer --policy min", "min-cut"},
      {"bench infer --model lene", "lenet"},
      {"bench infer --policy equal,optimal,min", "equal,optimal,min-cut"},
      {"plan --policy optimal,min", ""},
      {"job list --state failed,run", "failed,running"},
      {"job submit --set train.batc", "train.batch="},
      {"-o ", "table wide json jsonl yaml"},
      {"job export last -o ", ""},  // not a format
      {"completion ", "bash zsh fish"},
      {"--coordinator job no", "node"},
      {"job show --wat", "--watch"},
  };
  for (const auto& [line, offered] : kCases) {
    EXPECT_EQ(WordsOffered(line), offered) << line;
  }
  EXPECT_EQ(Offered("job export last -o x"), ":files\n");
  EXPECT_THAT(Offered("job list --state q"), StartsWith(":nospace\nqueued\t"));
}

TEST(Completion, AsksTheMeshThatTheWordsBeforeName) {
  ClientOptions options;
  const auto asked = [&](const std::string& line) {
    options = {};
    return CompleteCommandLine(absl::StrSplit(line, ' '), &options).ask;
  };

  EXPECT_EQ(asked("job resume l"), "JOB");
  EXPECT_EQ(asked("job submit --again 7"), "JOB");
  EXPECT_EQ(asked("profile --worker pi-2"), "NODE");
  EXPECT_EQ(asked("--context l"), "CONTEXT");
  EXPECT_EQ(asked("context use h"), "CONTEXT");
  EXPECT_EQ(asked("--context lab node --coordinator pi:7400 drain l"), "NODE");
  EXPECT_EQ(options.context, "lab");
  EXPECT_EQ(options.coordinator, "pi:7400");
  EXPECT_EQ(asked("--output no-format node drain l"), "")
      << "this command line fails";
}

TEST(Completion, PrintsALineForEachJobOrNode) {
  CommandBed bed;
  *bed.client.jobs.add_jobs() = RunningJob(1, 20);
  bed.client.workers = IdleWorkers({"w1", "w2", "x"});
  const auto complete = [&bed](const Completion& completion) {
    ClientOptions options;
    options.command = std::string(kCompleteCommand);
    options.completion = completion;
    return bed.Code(RowOf(options).run(
        {options, {}, bed.console, bed.clock, {}, &bed.context}));
  };

  EXPECT_EQ(complete({.ask = "JOB"}), kExitOk);
  EXPECT_EQ(complete({.word = "w", .ask = "NODE"}), kExitOk);

  EXPECT_EQ(bed.out.str(), "7\tfirst, running\nw1\tidle\nw2\tidle\n");
  bed.client.workers = absl::UnavailableError("down");
  EXPECT_EQ(complete({.ask = "NODE"}), kExitUnreachable);
}

// The script runs with a program that answers with its own words.
TEST(Completion, BashTakesTheWordsAndTheFiles) {
  const std::string folder =
      absl::StrCat(testing::TempDir(), "/completion.", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/script") << CompletionScript("bash");
  std::ofstream(folder + "/jo b.yaml") << "";
  std::ofstream(folder + "/test") << R"(cd "${0%/*}"
. ./script
paceline() { local IFS=' '; printf ':files\n:nospace\n*\tany\n%s\tsaid\n' "$*"; }
COMP_WORDS=(paceline job submit jo)
COMP_CWORD=3
_paceline
printf '%s;' "${COMPREPLY[@]}"
)";
  FILE* const bash = popen(("bash " + folder + "/test").c_str(), "r");
  std::string output;
  for (int c = 0; (c = fgetc(bash)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(pclose(bash), 0);

  EXPECT_EQ(output, "jo b.yaml;*;__complete job submit jo;");
}

TEST(SimulateOptions, AreReadAsTheyAreGiven) {
  const ClientOptions options = Parsed(
      "simulate --speed 1,0.5 --bandwidth 1e9 --schedule gpipe "
      "--micro-batches 8 --slow d0@1=2 --slow d1@2=3 --fail d1@9 "
      "--stages 2 --steps 3 --inference --trace t.json -o json");

  const SimulateFlags& flags = options.simulate;
  EXPECT_EQ(options.command, "simulate");
  EXPECT_THAT(flags.machines.speeds, ElementsAre(1, 0.5));
  EXPECT_THAT(flags.machines.bandwidths, ElementsAre(1e9));
  EXPECT_EQ(flags.schedule, "gpipe");
  EXPECT_EQ(flags.micro_batches, 8);
  EXPECT_THAT(flags.slow, ElementsAre("d0@1=2", "d1@2=3"));
  EXPECT_THAT(flags.fail, ElementsAre("d1@9"));
  EXPECT_EQ(flags.machines.stages, 2);
  EXPECT_EQ(flags.steps, 3);
  EXPECT_TRUE(flags.inference);
  EXPECT_EQ(flags.trace_file, "t.json");
  EXPECT_EQ(options.output, "json");
}

}  // namespace
}  // namespace paceline
