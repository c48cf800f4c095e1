#include "client/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/command.h"
#include "client/commands/export.h"
#include "client/commands/options.h"
#include "client/render/text.h"
#include "core/base/version.h"
#include "core/model/job_spec.h"

namespace paceline {
namespace {

// Marks an argument as a file's name for completion.
constexpr char kFile[] = "FILE";

// Help as CLI11 writes it, but for options that may also stand without their
// name: one of the two forms is enough, so neither is marked as required.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return option->get_positional() && option->nonpositional()
               ? absl::StrReplaceAll(text, {{" REQUIRED", ""}})
               : text;
  }
};

// The parser and where it writes.  Thread-compatible.
class Parser {
 public:
  explicit Parser(ClientOptions& options);

  std::optional<ParseStop> Parse(int argc, const char* const* argv);
  CommandNode Describe() const { return Describe(app_); }

 private:
  CLI::App* Add(CLI::App* parent, const std::string& name,
                const std::string& help, std::optional<Command> command);
  void AddTarget(CLI::App* command, const std::string& name,
                 const std::string& type, const std::string& help);
  void AddSets(CLI::App* command) { AddSets(command, options_.sets); }
  void AddSets(CLI::App* command, std::vector<std::string>& sets);
  void AddTimeout(CLI::App* command);
  void AddUp();
  void AddJobs();
  void AddNodes();
  void AddModels();
  void AddProfile();
  void AddBench();
  void AddPlan();
  void AddPredict();
  void AddSimulate();
  void AddCompletion();

  std::optional<std::string> UnknownWord(int argc,
                                         const char* const* argv) const;
  static CommandNode Describe(const CLI::App& app);
  static CommandOption Describe(const CLI::Option& option);

  ClientOptions& options_;
  CLI::App app_;
  std::string timeout_;
};

Parser::Parser(ClientOptions& options)
    : options_(options),
      app_("Trains neural networks over a file of small machines.",
           "paceline") {
  app_.formatter(std::make_shared<HelpFormatter>());  // for commands too
  app_.set_version_flag("--version", absl::StrCat("paceline ", kVersion));
  app_.add_option("--coordinator", options_.coordinator,
                  "Where the coordinator is (default 127.0.0.1:7400; or "
                  "$PACELINE_COORDINATOR, paceline.yaml)")
      ->type_name("HOST:PORT");
  app_.add_option("-o,--output", options_.output,
                  "How the result is printed: table, json, jsonl or yaml")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"table", "json", "jsonl", "yaml"}));
  app_.require_subcommand(1);
  app_.fallthrough();
  app_.footer(
      "Examples:\n"
      "  paceline up --workers 4\n"
      "  paceline profile --model lenet --batch 16\n"
      "  paceline plan -f job.yaml --compare\n"
      "  paceline bench infer --model vit --stages 1,2,4\n"
      "  paceline job submit job.yaml --set train.epochs=3\n"
      "  paceline job show last\n"
      "  paceline node list -o json\n"
      "\n"
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 unreachable,\n"
      "5 no room, 6 stopped, 7 not permitted, 124 timed out, 130 interrupted");
  AddUp();
  AddJobs();
  AddNodes();
  AddModels();
  AddProfile();
  AddBench();
  AddPlan();
  AddPredict();
  AddSimulate();
  AddCompletion();
}

CLI::App* Parser::Add(CLI::App* parent, const std::string& name,
                      const std::string& help, std::optional<Command> command) {
  CLI::App* app = parent->add_subcommand(name, help);
  app->footer("");  // CLI11 would repeat the parent's
  if (command.has_value()) {
    app->callback([this, command] { options_.command = *command; });
  } else {
    app->require_subcommand(1);
  }
  return app;
}

void Parser::AddTarget(CLI::App* command, const std::string& name,
                       const std::string& type, const std::string& help) {
  command->add_option(name, options_.target, help)->required()->type_name(type);
}

void Parser::AddSets(CLI::App* command, std::vector<std::string>& sets) {
  AddValue(command, "--set", sets, "KEY=VALUE",
           "Overrides one value of the job: KEY=VALUE, as in "
           "train.steps=60; may be given again")
      ->allow_extra_args(false);
}

void Parser::AddTimeout(CLI::App* command) {
  AddValue(command, "--timeout", timeout_, "TIME",
           "Waits no longer than this (seconds, or 90s, 5m, 2h); the "
           "job goes on")
      ->check([this](const std::string& text) -> std::string {
        absl::Duration timeout;
        if (!ParseTimeout(text, &timeout)) {
          return absl::StrCat("'", text, "' is no time, as 90, 90s, 5m or 2h");
        }
        options_.timeout = timeout;
        return "";
      });
}

void Parser::AddUp() {
  MeshOptions& mesh = options_.up.mesh;
  mesh.state = DefaultUpState();
  CLI::App* up = Add(&app_, "up",
                     "Runs a coordinator and workers on this machine until "
                     "Ctrl-C",
                     Command::kUp);
  AddValue(up, "--workers", mesh.workers, "N", "How many workers")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  AddValue(up, "--port", mesh.port, "P", "The coordinator's port; 0: any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  AddValue(up, "--http-port", mesh.http_port, "P",
           "The port of the coordinator's /metrics; 0: any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  AddValue(up, "--state", mesh.state, "DIR",
           "Folder for jobs, weights and logs")
      ->check([](const std::string& text) {
        return text.empty() ? "need the name of a folder" : "";
      })
      ->capture_default_str();
  AddValue(up, "--log-level", mesh.log_level, "LEVEL", "What the daemons log")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  AddValue(up, "--ready-file,--port-file", options_.up.ready_file, kFile,
           "Writes this file, as JSON, once all workers have registered");
  up->footer(
      "Examples:\n"
      "  paceline up\n"
      "  paceline up --workers 2 --port 0 --http-port 0 --state /tmp/mesh");
}

void Parser::AddJobs() {
  CLI::App* job = Add(&app_, "job", "Submits and watches jobs", std::nullopt);
  CLI::App* submit = Add(job, "submit", "Submits a job and waits for its end",
                         Command::kJobSubmit);
  submit
      ->add_option("file,-f,--file", options_.target,
                   "The job, as YAML, with or without -f; - reads standard "
                   "input")
      ->required()
      ->type_name(kFile);
  AddSets(submit);
  AddTimeout(submit);
  submit
      ->add_flag("--detach", options_.detach,
                 "Returns at once instead of waiting for the end")
      ->excludes("--timeout");
  submit->add_flag("--dry-run", options_.dry_run,
                   "Prints the plan and what it needs, and submits nothing");
  AddValue(submit, "--plan", options_.plan_file, kFile,
           "Follows this plan file of 'plan --save': its cuts and workers");
  submit->footer(
      "Examples:\n"
      "  paceline job submit job.yaml\n"
      "  paceline job submit job.yaml --set pipeline.stages=2 --dry-run\n"
      "  paceline job submit - < job.yaml");

  CLI::App* list =
      Add(job, "list", "Lists jobs, newest first", Command::kJobList);
  AddValue(list, "--limit", options_.limit, "N",
           "Lists at most so many; 0: all")
      ->check(CLI::Range(0, 1'000'000'000));
  list->footer("Example:\n  paceline job list --limit 10");

  const auto with_job = [&](const char* name, const char* help,
                            Command command) {
    CLI::App* app = Add(job, name, help, command);
    AddTarget(app, "job", "JOB", "Number of the job, or 'last'");
    app->footer(absl::StrCat("Example:\n  paceline job ", name, " last"));
    return app;
  };
  with_job("show", "Shows a job: progress, loss, accuracy, time split",
           Command::kJobShow);
  with_job("logs", "Prints what the job's workers logged", Command::kJobLogs)
      ->add_flag("--follow", options_.follow, "Goes on until the job ends");
  with_job("events", "Prints what happened to the job", Command::kJobEvents)
      ->add_flag("--follow", options_.follow, "Goes on until the job ends");
  AddTimeout(with_job("wait", "Waits for the job's end", Command::kJobWait));
  with_job("stop", "Stops the job", Command::kJobStop);
  CLI::App* weights = with_job(
      "export", "Fetches the job's weights or predictions (safetensors)",
      Command::kJobExport);
  weights
      ->add_option("-o,--output-file", options_.export_file,
                   "The file to write; - writes to standard output")
      ->required()
      ->type_name(kFile)
      ->check(WhyNoExportFile, "");
  weights->footer("Example:\n  paceline job export last -o model.safetensors");
  with_job("delete", "Deletes an ended job and its weights",
           Command::kJobDelete);
  CLI::App* keys =
      Add(job, "keys", "Explains the keys of a job file; needs no coordinator",
          Command::kJobKeys);
  AddValue(keys, "section", options_.target, "SECTION",
           "Explains one section only, as train or train.optimizer");
  keys->footer(
      "Examples:\n  paceline job keys\n  paceline job keys train.optimizer");
}

void Parser::AddNodes() {
  CLI::App* node = Add(&app_, "node", "Shows and drains workers", std::nullopt);
  Add(node, "list", "Lists all workers", Command::kNodeList)
      ->footer("Example:\n  paceline node list -o json");
  const auto with_node = [&](const char* name, const char* help,
                             Command command) {
    CLI::App* app = Add(node, name, help, command);
    AddTarget(app, "node", "NODE", "Name or number of the worker");
    app->footer(absl::StrCat("Example:\n  paceline node ", name, " w1"));
  };
  with_node("show", "Shows one worker", Command::kNodeShow);
  with_node(
      "drain",
      "Gives a worker nothing new; it leaves its round group, and finishes "
      "the pipeline that it is in",
      Command::kNodeDrain);
  with_node("undrain", "Gives a drained worker work again",
            Command::kNodeUndrain);
  with_node("forget", "Takes a lost or stopped worker off the list",
            Command::kNodeForget);
}

void Parser::AddModels() {
  CLI::App* model =
      Add(&app_, "model",
          "Shows models and weights files; needs no coordinator", std::nullopt);
  Add(model, "list", "Lists all models", Command::kModelList)
      ->footer("Example:\n  paceline model list");
  CLI::App* inspect =
      Add(model, "inspect",
          "Layers and sizes of a model, or what a weights file holds",
          Command::kModelInspect);
  AddTarget(inspect, "model", kFile,
            "Name of a model, or of a .safetensors file");
  AddSets(inspect);
  inspect->footer(
      "Examples:\n"
      "  paceline model inspect vit --set model.depth=2\n"
      "  paceline model inspect weights.safetensors");
}

void Parser::AddProfile() {
  CLI::App* profile = Add(
      &app_, "profile", "Measures a model's layers on workers, and their links",
      Command::kProfile);
  AddProfileOptions(profile, options_.profile);
  AddSets(profile, options_.profile.sets);
  AddTimeout(profile);
}

void Parser::AddBench() {
  CLI::App* bench = Add(
      &app_, "bench", "Compares this mesh with one worker of it", std::nullopt);
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, bool trains) {
    CLI::App* app = Add(bench, name, help, Command::kBench);
    AddBenchOptions(app, trains, options_.bench);
    AddSets(app, options_.bench.sets);
    AddTimeout(app);
    return app;
  };
  add("infer",
      "Runs a model forward over 1, 2, ... stages: samples a second, "
      "latency, and where the rest goes",
      /*trains=*/false);
  CLI::App* train =
      add("train",
          "Trains for some steps over 1, 2, ... stages: samples a second, and "
          "where the rest goes",
          /*trains=*/true);
  train->preparse_callback([this](size_t) { options_.bench.train = true; });
}

void Parser::AddPlan() {
  CLI::App* plan =
      Add(&app_, "plan",
          "Plans which layers go where, says why, and how good it is",
          Command::kPlan);
  AddPlanOptions(plan, options_.plan);
  AddSets(plan, options_.plan.sets);
}

void Parser::AddPredict() {
  CLI::App* predict = Add(&app_, "predict",
                          "Predicts times from measured ones: of a file, and "
                          "says how far off it is (--fit), or of a model's "
                          "layers (--model)",
                          std::nullopt);
  predict->require_subcommand(0);
  CLI::Option* const fit =
      AddValue(predict, "--fit", options_.predict.files, kFile,
               "Measured times: comma separated, a header line, one size "
               "column (elements, bytes, flops or size), one called "
               "seconds, all others features; may be given again")
          ->allow_extra_args(false);
  AddValue(predict, "--at", options_.predict.at, "COLUMN=VALUE,...",
           "Predicts one time, with an interval: the features and the "
           "size; may be given again")
      ->allow_extra_args(false)
      ->needs(fit);
  AddPredictModelOptions(predict, options_.predict_model);
  CLI::Option* const model = predict->get_option("--model")->excludes(fit);
  for (const char* name : {"--batch", "--device"}) {
    predict->get_option(name)->needs(model);
  }
  AddSets(predict, options_.predict_model.sets);
  predict->callback([this, fit, model] {
    if (!*fit && !*model) throw CLI::RequiredError("--fit or --model");
    if (*model && options_.predict_model.batch == 0) {
      throw CLI::RequiredError("--batch, beside --model,");
    }
    options_.command = *fit ? Command::kPredict : Command::kPredictModel;
  });
  predict->footer(
      "Examples:\n"
      "  paceline predict --model vit --batch 8\n"
      "  paceline predict --fit collectives.csv --fit dot.csv\n"
      "  paceline predict --fit collectives.csv "
      "--at op=all_reduce,dtype=f16,group_size=4,elements=100000");
}

void Parser::AddSimulate() {
  CLI::App* simulate =
      Add(&app_, "simulate",
          "Simulates a pipeline, event by event; needs no coordinator",
          Command::kSimulate);
  AddSimulateOptions(simulate, options_.simulate, options_.plan_file);
}

void Parser::AddCompletion() {
  CLI::App* completion =
      Add(&app_, "completion", "Prints a completion script for a shell",
          Command::kCompletion);
  AddTarget(completion, "shell", "SHELL", "bash, zsh or fish");
  completion->get_option("shell")->check(
      CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("Example:\n  source <(paceline completion bash)");
}

// The innermost command that was named.
const CLI::App* Innermost(const CLI::App* app) {
  for (;;) {
    const std::vector<CLI::App*> named = app->get_subcommands();
    if (named.empty()) return app;
    app = named.front();
  }
}

std::string FullName(const CLI::App* app) {
  return app->get_parent() == nullptr
             ? app->get_name()
             : absl::StrCat(FullName(app->get_parent()), " ", app->get_name());
}

using Apps = std::vector<const CLI::App*>;

Apps CommandsOf(const CLI::App* app) {
  return app->get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> NamesOf(const Apps& apps) {
  std::vector<std::string> names;
  for (const CLI::App* app : apps) names.push_back(app->get_name());
  return names;
}

// The options that hold at `here`: its own and those of the commands above.
std::vector<const CLI::Option*> OptionsAt(const CLI::App* here) {
  std::vector<const CLI::Option*> options;
  for (const CLI::App* app = here; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      options.push_back(option);
    }
  }
  return options;
}

std::vector<std::string> FlagsOf(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) {
    flags.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    flags.push_back("--" + name);
  }
  return flags;
}

std::string ExplainMissing(const CLI::App* here, const char* what) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : OptionsAt(here)) {
    if (!option->get_required() || option->count() > 0) continue;
    // Without what a check has appended: "B:INT in [1 - 256]".
    const std::string type =
        option->get_type_name().substr(0, option->get_type_name().find(':'));
    missing.push_back(absl::StrCat(
        option->get_positional() ? "" : absl::StrJoin(FlagsOf(*option), ","),
        option->get_positional() ? "" : " ", type,
        " is missing: ", option->get_description()));
  }
  if (!missing.empty()) return absl::StrJoin(missing, "; ");
  const Apps commands = CommandsOf(here);
  return commands.empty()
             ? what
             : absl::StrCat("name a command: ",
                            absl::StrJoin(NamesOf(commands), ", "));
}

// words: those that no option or command takes, in the order given.
std::string ExplainUnexpected(const CLI::App* here,
                              const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!absl::StartsWith(word, "-")) continue;
    std::vector<std::string> known;
    for (const CLI::Option* option : OptionsAt(here)) {
      const std::vector<std::string> flags = FlagsOf(*option);
      known.insert(known.end(), flags.begin(), flags.end());
    }
    const std::string flag = word.substr(0, word.find('='));
    const std::string meant = DidYouMean(flag, known);
    return absl::StrCat(
        "there is no option ", Printable(flag), " here",
        meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"));
  }
  return absl::StrCat("not expected: ", Printable(absl::StrJoin(words, " ")));
}

// what: "Could not convert: --devices = abc", for a number too great as well.
std::string ExplainConversion(absl::string_view what) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripPrefix(what, "Could not convert: "),
                     absl::MaxSplits(" = ", 1));
  if (parts.size() < 2) return std::string(what);
  return absl::StrCat(parts[0], ": '", Printable(parts[1]),
                      "' is no number that fits here");
}

// One line: what is wrong with the command line, and what would be right.
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error) {
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::RequiredError:
      return ExplainMissing(Innermost(&app), error.what());
    case CLI::ExitCodes::ExtrasError:
      return ExplainUnexpected(Innermost(&app),
                               app.remaining(/*recurse=*/true));
    case CLI::ExitCodes::ConversionError:
      return ExplainConversion(error.what());
    default:
      return Printable(error.what());
  }
}

// The first word that should have been a command and is none, with what was
// probably meant.
std::optional<std::string> Parser::UnknownWord(int argc,
                                               const char* const* argv) const {
  const CLI::App* here = &app_;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const Apps children = CommandsOf(here);
    if (children.empty()) return std::nullopt;
    if (absl::StartsWith(word, "-")) {
      const CLI::Option* option = app_.get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_min() > 0) ++i;
      continue;
    }
    const auto next = std::find_if(
        children.begin(), children.end(),
        [&](const CLI::App* child) { return child->get_name() == word; });
    if (next == children.end()) {
      const std::vector<std::string> names = NamesOf(children);
      const std::string close = DidYouMean(word, names);
      return absl::StrCat(
          "'", Printable(word), "' is no command; ",
          close.empty()
              ? absl::StrCat("there are: ", absl::StrJoin(names, ", "))
              : absl::StrCat("did you mean '", close, "'?"));
    }
    here = *next;
  }
  return std::nullopt;
}

std::optional<ParseStop> Parser::Parse(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    ParseStop stop;
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream out, err;
      app_.exit(error, out, err);
      stop.out = out.str();
      return stop;
    }
    const auto unknown = UnknownWord(argc, argv);
    stop.exit_code = kExitUsage;
    stop.err = absl::StrCat(
        "paceline: ",
        ShortenWords(unknown.has_value() ? *unknown
                                         : ExplainUsage(app_, error)),
        "\nsee '", FullName(Innermost(&app_)), " --help'\n");
    return stop;
  }
}

CommandOption Parser::Describe(const CLI::Option& option) {
  CommandOption described;
  described.names = FlagsOf(option);
  described.help = option.get_description();
  described.takes_value = option.get_items_expected_min() > 0;
  described.values = WordsOfType(option.get_type_name());
  described.is_list = IsListType(option.get_type_name());
  described.takes_file =
      option.get_type_name() == kFile || option.get_type_name() == "DIR";
  return described;
}

CommandNode Parser::Describe(const CLI::App& app) {
  CommandNode node;
  node.name = app.get_name();
  node.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      node.takes_file = node.takes_file || option->get_type_name() == kFile;
      node.words = WordsOfType(option->get_type_name());
    }
    CommandOption described = Describe(*option);
    if (!described.names.empty()) node.options.push_back(std::move(described));
  }
  for (const CLI::App* child : CommandsOf(&app)) {
    node.commands.push_back(Describe(*child));
  }
  return node;
}

}  // namespace

std::optional<ParseStop> ParseClientOptions(int argc, const char* const* argv,
                                            ClientOptions* options) {
  return Parser(*options).Parse(argc, argv);
}

CommandNode DescribeCommandLine() {
  ClientOptions options;
  return Parser(options).Describe();
}

}  // namespace paceline
