#include "client/options.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Parses "paceline WORDS", which have no blanks in them.
std::optional<ParseStop> ParseWords(const std::string& words,
                                    ClientOptions* options) {
  const std::vector<std::string> all =
      absl::StrSplit("paceline " + words, ' ', absl::SkipEmpty());
  std::vector<const char*> arguments;
  for (const std::string& word : all) arguments.push_back(word.c_str());
  return ParseClientOptions(static_cast<int>(arguments.size()),
                            arguments.data(), options);
}

ClientOptions Parsed(const std::string& words) {
  ClientOptions options;
  const auto stop = ParseWords(words, &options);
  EXPECT_FALSE(stop.has_value()) << stop->err;
  return options;
}

ParseStop Stopped(const std::string& words) {
  ClientOptions options;
  const auto stop = ParseWords(words, &options);
  EXPECT_TRUE(stop.has_value());
  return stop.value_or(ParseStop());
}

TEST(Options, GlobalOnesMayStandBeforeAndAfterTheCommand) {
  for (const char* words : {"-o json --coordinator h:1 job show 3",
                            "job show 3 -o json --coordinator=h:1"}) {
    const ClientOptions options = Parsed(words);

    EXPECT_EQ(options.command, Command::kJobShow);
    EXPECT_EQ(options.target, "3");
    EXPECT_EQ(options.output, "json");
    EXPECT_EQ(options.coordinator, "h:1");
  }
}

TEST(Options, SetMayBeRepeatedAndTakesOneWord) {
  const ClientOptions options =
      Parsed("job submit --set a.b=1 job.yaml --set c=[1,2] --timeout 2m");

  EXPECT_EQ(options.command, Command::kJobSubmit);
  EXPECT_EQ(options.target, "job.yaml");
  EXPECT_EQ(options.sets, (std::vector<std::string>{"a.b=1", "c=[1,2]"}));
  EXPECT_EQ(options.timeout, absl::Minutes(2));
}

TEST(Options, AgainStandsForTheFile) {
  const ClientOptions options =
      Parsed("job submit --again last --set train.steps=3 --plan p.json");

  EXPECT_EQ(options.command, Command::kJobSubmit);
  EXPECT_EQ(options.again, "last");
  EXPECT_EQ(options.target, "");
}

TEST(Options, ListTakesStatesAsAListAndWideIsAForm) {
  const ClientOptions options =
      Parsed("job list --state queued,running --name night -o wide");

  EXPECT_THAT(options.filter.states, ElementsAre("queued", "running"));
  EXPECT_EQ(options.filter.name, "night");
  EXPECT_EQ(options.output, "wide");
}

TEST(Options, AContextIsSetUsedAndNamedByAnyCommand) {
  const ClientOptions set = Parsed("context set lab pi-1:7400");
  EXPECT_EQ(set.command, Command::kContextSet);
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

TEST(Options, ResumeTakesWhatSubmitTakesAndAStep) {
  const ClientOptions options =
      Parsed("job resume 3 --from 40 --set pipeline.stages=2 --detach");

  EXPECT_EQ(options.command, Command::kJobResume);
  EXPECT_EQ(options.target, "3");
  EXPECT_EQ(options.from_step, 40);
  EXPECT_THAT(options.sets, ElementsAre("pipeline.stages=2"));
  EXPECT_TRUE(options.detach);
  EXPECT_EQ(Parsed("job resume last").from_step, 0);
  EXPECT_EQ(Stopped("job resume 3 --from 0").exit_code, kExitUsage);
}

// It wrote the weights to a file called json.
TEST(Options, ExportsDashOIsNoForm) {
  for (const char* form : {"json", "jsonl", "yaml", "table"}) {
    const ParseStop stop = Stopped(absl::StrCat("job export 3 -o ", form));

    EXPECT_EQ(stop.exit_code, kExitUsage);
    EXPECT_THAT(stop.err, HasSubstr(std::string("write ./") + form));
  }
  const ClientOptions options = Parsed("job export 3 -o ./json --output json");
  EXPECT_EQ(options.export_file, "./json");
  EXPECT_EQ(options.output, "json");
}

TEST(Options, AStudyIsOfOneFile) {
  const ClientOptions options =
      Parsed("study s.yaml --set a.b=1 --report r.tex --dry-run --yes");

  EXPECT_EQ(options.command, Command::kStudy);
  EXPECT_EQ(options.study.file, "s.yaml");
  EXPECT_THAT(options.study.sets, ElementsAre("a.b=1"));
  EXPECT_EQ(options.study.report, "r.tex");
  EXPECT_TRUE(options.study.dry_run && options.study.yes);
}

TEST(Options, AReportIsOfSeveralJobsAndItsDashOIsAFile) {
  const ClientOptions options = Parsed("report 7 last -o r.csv --format csv");

  EXPECT_EQ(options.command, Command::kReport);
  EXPECT_THAT(options.report.jobs, ElementsAre("7", "last"));
  EXPECT_EQ(options.report.format, "csv");
  EXPECT_EQ(options.report.file, "r.csv");
  EXPECT_EQ(Parsed("report 7").report.format, "html");
}

TEST(Options, UpHasTheContractsDefaults) {
  const ClientOptions options = Parsed("up");

  EXPECT_EQ(options.command, Command::kUp);
  EXPECT_EQ(options.up.mesh.workers, 4);
  EXPECT_EQ(options.up.mesh.port, 7400);
  EXPECT_EQ(options.up.mesh.http_port, 7480);
  EXPECT_EQ(options.up.mesh.lease, absl::Seconds(3));
  EXPECT_EQ(Parsed("up --port 0 --ready-file r").up.ready_file, "r");
  EXPECT_EQ(Parsed("up --lease 500ms").up.mesh.lease, absl::Milliseconds(500));
  EXPECT_EQ(Parsed("up --lease 10").up.mesh.lease, absl::Seconds(10));
}

TEST(Options, MistakesAreUsageErrorsThatSayWhatWouldBeRight) {
  const struct {
    const char* words;
    const char* says;
  } kCases[] = {
      {"", "name a command: up, job"},
      {"job", "name a command: submit, list"},
      {"job show", "JOB is missing: Number of the job, or 'last'"},
      {"job submit", "FILE or --again JOB is required"},
      {"job submit f --again 3", "excludes"},
      {"context set lab", "HOST is missing"},
      {"context", "name a command: list, set, use, delete"},
      {"job list --state done", "done not in {queued,running"},
      {"job list --state queued,running --limit many", "--limit"},
      {"job export 3", "--output-file FILE is missing: The file to write"},
      {"report", "JOB is missing: Numbers of jobs, or 'last'"},
      {"report 7 --format pdf", "pdf"},
      {"study", "FILE is missing: The study file"},
      {"study s.yaml --report r.pdf", ".html, .csv and .tex"},
      {"report 7 -o json", "write ./json"},
      {"profile --model m --batch 4 -f j", "excludes"},
      {"job show 1 2", "not expected: 2"},
      {"job submit f --timeot 3", "did you mean --timeout?"},
      {"bench infer --model lenet --schedule gpipe",
       "there is no option --schedule here"},
      {"bench infer --model lenet --policy mincut", "did you mean 'min-cut'?"},
      {"job list --limit -3", "-3 not in range"},
      {"job list --limit 99999999999", "not in range"},
      {"simulate --devices four", "--devices: 'four' is no number that fits"},
      {"plan --model lenet --seed -1", "-1 not in range"},
      {"job submit f --detach --timeout 5", "excludes"},
      {"profile --model m", "--model requires --batch"},
      {"profile --model m --batch 0", "--batch"},
      {"profile --model m --batch 1 --all --worker w", "excludes"},
      {"plan --model m --policy dpp", "no policy 'dpp'"},
      {"plan --model m --micro-batches 1048577", "--micro-batches"},
      {"plan --model m --micro-batches -1", "--micro-batches"},
      {"plan --model m --stages 0", "--stages"},
      {"plan --model m --reserve -1", "--reserve"},
      {"plan --model m --cost-model other", "--cost-model"},
      {"predict", "--fit or --model is required"},
      {"model prune w -o p --target-macs 0.5", "--file or --model is required"},
      {"model prune w -f j -o p --target-macs 0.5 --score l2", "--score"},
      {"predict --model m", "--batch"},
      {"predict --model m --batch 8 --fit f", "excludes"},
      {"simulate --plan p.json --devices 3", "excludes"},
      {"simulate --devices many", "--devices"},
      {"simulate --speed 1,fast", "--speed"},
      {"simulate --bandwidth 1gbit", "--bandwidth"},
      {"simulate --steps 0", "--steps"},
      {"simulate --credit -1", "--credit"},
      {"simulate --micro-batches 1.5", "--micro-batches"},
      {"simulate --model lenet --layers 3", "--layers"},
      {"simulate --set model.depth=2", "--model"},
      {"simulate --flops 1e9", "--model"},
      {"nothing", "'nothing' is no command"},
      {"job list -o xml", "xml"},
      {"job submit f --timeout soon", "'soon' is no time"},
      {"up --workers 0", "--workers"},
      {"up --port 70000", "--port"},
      {"completion tcsh", "tcsh"},
      {"job submit f --nope", "--nope"},
  };
  for (const auto& one : kCases) {
    const ParseStop stop = Stopped(one.words);

    EXPECT_EQ(stop.exit_code, kExitUsage) << one.words;
    EXPECT_EQ(stop.out, "") << one.words;
    EXPECT_THAT(stop.err, Says(one.says, "--help'"));
  }
}

TEST(Options, ProfileTakesWorkersLinksAndSets) {
  const ClientOptions options = Parsed(
      "profile --model lenet --batch 8 --worker w1 --worker w2 "
      "--no-links --set model.depth=2 --timeout 90");

  EXPECT_EQ(options.command, Command::kProfile);
  EXPECT_EQ(options.profile.model, "lenet");
  EXPECT_EQ(options.profile.batch, 8);
  EXPECT_EQ(options.profile.workers, (std::vector<std::string>{"w1", "w2"}));
  EXPECT_EQ(options.profile.links, false);
  EXPECT_EQ(Parsed("profile --model m --batch 1").profile.links, std::nullopt);
  EXPECT_EQ(Parsed("profile --model m --batch 1 --links").profile.links, true);
  EXPECT_EQ(options.profile.sets, (std::vector<std::string>{"model.depth=2"}));
  EXPECT_EQ(options.timeout, absl::Seconds(90));
}

TEST(Options, PlanTakesAMeshAJobOrAProfile) {
  const ClientOptions mesh = Parsed(
      "plan --model lenet --batch 16 --policy soft "
      "--micro-batches 0 --stages 3 --seed 9");
  EXPECT_EQ(mesh.command, Command::kPlan);
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
  EXPECT_EQ(fit.command, Command::kPredict);
  EXPECT_THAT(fit.predict.files, ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(fit.predict.at, ElementsAre("op=x,bytes=1"));
  const ClientOptions model =
      Parsed("predict --model vit --batch 8 --device w2 --set a=1");
  EXPECT_EQ(model.command, Command::kPredictModel);
  EXPECT_EQ(model.predict_model.model, "vit");
  EXPECT_EQ(model.predict_model.batch, 8);
  EXPECT_EQ(model.predict_model.device, "w2");
}

TEST(Options, AMistypedCommandIsShownTheLikelyOne) {
  EXPECT_THAT(Stopped("-o json job submitt f").err,
              HasSubstr("'submitt' is no command; did you mean 'submit'?"));
  EXPECT_LT(Stopped(std::string(5000, 'x')).err.size(), 1000u);
  EXPECT_THAT(Stopped("qqqqqq").err, HasSubstr("there are: up, job, node"));
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

// Calls visit(path, node) for every command.
template <typename Visit>
void Walk(const CommandNode& node, const std::string& path,
          const Visit& visit) {
  visit(path, node);
  for (const CommandNode& child : node.commands) {
    Walk(child, path.empty() ? child.name : path + " " + child.name, visit);
  }
}

// A command without examples had those of the program.
TEST(Options, EachCommandsHelpHasItsOwnExamplesOnly) {
  Walk(DescribeCommandLine(), "",
       [](const std::string& path, const CommandNode& node) {
         if (path.empty()) return;
         const std::string help = Stopped(path + " --help").out;
         EXPECT_EQ(absl::StrContains(help, "Example"), node.commands.empty())
             << help;
         for (const absl::string_view line : absl::StrSplit(help, '\n')) {
           if (!absl::StartsWith(line, "  paceline ")) continue;
           EXPECT_THAT(std::string(line), HasSubstr("paceline " + path));
         }
       });
}

TEST(Completion, TheTreeHasTheWholeContract) {
  std::string paths;
  Walk(DescribeCommandLine(), "",
       [&](const std::string& path, const CommandNode&) {
         paths += path + ";";
       });

  for (const char* command :
       {"up",          "job submit", "job list",  "job show",   "job logs",
        "job events",  "job wait",   "job stop",  "job export", "job resume",
        "job delete",  "node list",  "node show", "model list", "model inspect",
        "model prune", "profile",    "plan",      "predict",    "simulate",
        "report",      "completion"}) {
    EXPECT_THAT(paths, HasSubstr(std::string(";") + command + ";"));
  }
}

TEST(Completion, KnowsEveryCommandAndOptionInEveryShell) {
  const CommandNode root = DescribeCommandLine();
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = RenderCompletion(root, shell).value();

    Walk(root, "", [&](const std::string& path, const CommandNode& node) {
      EXPECT_THAT(script, HasSubstr(path)) << shell;
      for (const CommandOption& option : node.options) {
        // fish writes options without their dashes.
        const std::string& name = option.names.back();
        EXPECT_THAT(script, HasSubstr(name.substr(name.find_first_not_of('-'))))
            << shell << " " << path;
      }
    });
    EXPECT_THAT(script, HasSubstr("table wide json jsonl yaml")) << shell;
    EXPECT_THAT(script, HasSubstr("bash")) << shell;
  }
}

TEST(Completion, AnExportsDashOIsNotAFormat) {
  const auto script = RenderCompletion(DescribeCommandLine(), "bash").value();

  EXPECT_THAT(script, HasSubstr("\"job export:-o\"|\"job export:--output-"
                                "file\") COMPREPLY=($(compgen -f"));
  EXPECT_THAT(script, Not(HasSubstr("\"job export:-o\"|\"job export:--"
                                    "output\")")));
}

// Answers as a mesh would; another one in the context lab.
constexpr char kFakeProgram[] =
    "paceline() { case \"$*\" in "
    "\"completion jobs\") printf \"12\\tfirst, running\\n7\\tx\\n\";; "
    "\"completion nodes\") printf \"pi-1\\tidle\\npi-2\\tbusy\\n\";; "
    "\"--context lab completion nodes\") printf \"lab-1\\tidle\\n\";; "
    "*\"completion contexts\") printf \"home\\nlab\\n\";; "
    "*) echo not reachable >&2; return 4;; esac; }";

// Returns the words that bash offers for the last of `words`.
std::vector<std::string> Offered(const std::string& words) {
  // Tests run beside each other, in processes of their own.
  const std::string path =
      absl::StrCat(testing::TempDir(), "/completion.", getpid(), ".bash");
  std::ofstream(path) << *RenderCompletion(DescribeCommandLine(), "bash");
  const std::string script =
      absl::StrCat(". ", path, "; ", kFakeProgram, "; COMP_WORDS=(", words,
                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _paceline; "
                   "printf '%s\\n' \"${COMPREPLY[@]}\"");
  FILE* const bash =
      popen(absl::StrCat("bash -c '",
                         absl::StrReplaceAll(script, {{"'", "'\\''"}}), "'")
                .c_str(),
            "r");
  std::string output;
  for (int c = 0; (c = fgetc(bash)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(pclose(bash), 0);
  return absl::StrSplit(output, '\n', absl::SkipEmpty());
}

TEST(Completion, OffersClosedWordsAndGoesOnBehindTheLastCommaOfAList) {
  const std::pair<const char*, const char*> kCases[] = {
      {"bench train --schedule z", "zero-bubble"},
      {"bench infer --policy min", "min-cut"},
      {"bench infer --model lene", "lenet"},
      {"bench infer --policy equal,optimal,min", "equal,optimal,min-cut"},
      {"plan --policy optimal,min", ""},
      {"job list --state failed,run", "failed,running"},
  };
  for (const auto& [words, offered] : kCases) {
    EXPECT_EQ(absl::StrJoin(Offered(absl::StrCat("paceline ", words)), " "),
              offered);
  }
}

TEST(Completion, OffersTheJobsNodesAndContextsThatThereAre) {
  const std::pair<const char*, const char*> kCases[] = {
      {"job show 1", "12"},
      {"job resume l", "last"},
      {"job submit --again 7", "7"},
      {"node show pi", "pi-1 pi-2"},
      {"profile --worker pi-2", "pi-2"},
      {"--context lab node drain l", "lab-1"},
      {"--context gone node drain l", ""},
      {"--context l", "lab"},
      {"context use h", "home"},
  };
  for (const auto& [words, offered] : kCases) {
    EXPECT_EQ(absl::StrJoin(Offered(absl::StrCat("paceline ", words)), " "),
              offered)
        << words;
  }
  for (const char* shell : {"zsh", "fish"}) {
    EXPECT_THAT(RenderCompletion(DescribeCommandLine(), shell).value(),
                Says("ask jobs", "ask nodes", "ask contexts"));
  }
}

TEST(Completion, AnswersAScriptWithALineForEach) {
  CommandBed bed;
  *bed.client.jobs.add_jobs() = RunningJob(1, 20);
  bed.client.workers = IdleWorkers({"w1", "w2"});

  EXPECT_EQ(AnswerCompletion(bed.context, "jobs"), kExitOk);
  EXPECT_EQ(AnswerCompletion(bed.context, "nodes"), kExitOk);

  EXPECT_EQ(bed.out.str(), "7\tfirst, running\nw1\tidle\nw2\tidle\n");
  bed.client.workers = absl::UnavailableError("down");
  EXPECT_EQ(AnswerCompletion(bed.context, "nodes"), kExitUnreachable);
}

TEST(SimulateOptions, AreReadAsTheyAreGiven) {
  const ClientOptions options = Parsed(
      "simulate --speed 1,0.5 --bandwidth 1e9 --schedule gpipe "
      "--micro-batches 8 --slow d0@1=2 --slow d1@2=3 --fail d1@9 "
      "--stages 2 --steps 3 --inference --trace t.json -o json");

  const SimulateFlags& flags = options.simulate;
  EXPECT_EQ(options.command, Command::kSimulate);
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
