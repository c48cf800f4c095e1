// The client's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/commands/job/job.h"
#include "client/commands/mesh/mesh.h"
#include "client/commands/plan/plan.h"
#include "client/files/settings.h"

namespace paceline {

// Completion of command lines.  A shell calls the hidden command `paceline
// __complete WORDS...` with the words up to the one that is being typed, and
// gets a line for each word that may stand there.
inline constexpr absl::string_view kCompleteCommand = "__complete";

struct Offer {
  std::string word;
  std::string help = {};
};

// The words that may stand in place of the last one of a command line.
struct Completion {
  std::string word = {};  // as far as it is typed, behind the last comma
  std::string head = {};  // what stands before that comma, with the comma
  std::vector<Offer> offers = {};
  std::string ask = {};  // a mesh knows more: its JOBs, NODEs or CONTEXTs
  bool files = false;
  bool goes_on = false;             // no blank follows an offered word
  std::vector<std::string> mesh{};  // the options that name the mesh
};

// The flags that are settings too are those of SettingsSource.
struct ClientOptions : SettingsSource {
  // Words as they are typed, without the program: "job list"; with the option
  // that decides what a command needs: "predict --fit".
  std::string command;
  std::optional<std::string> context;  // --context
  std::optional<std::string> tls_dir;  // --tls-dir
  std::string target;  // job, node, model, job file, context or shell
  std::string host;    // context set, login, tls check: HOST:PORT
  JobSource source;    // for commands without a structure of their own
  bool detach = false;
  bool dry_run = false;
  bool follow = false;
  bool watch = false;  // job list, job show, node list
  std::optional<absl::Duration> timeout;
  JobFilter filter;                  // job list
  std::string again;                 // job submit: a job's number, or "last"
  int64_t from_step = 0;             // job resume; 0: the newest checkpoint
  bool accept_changed_data = false;  // job resume
  std::string export_file;           // job export
  ExportForm export_form = ExportForm::kWhole;
  std::string plan_file;  // job submit, simulate
  UpOptions up;
  PredictFitOptions predict;
  std::string device;  // predict --model; empty: all
  ProfileOptions profile;
  BenchOptions bench;
  ReportOptions report;
  PruneOptions prune;
  StudyOptions study;
  PlanOptions plan;
  SimulateFlags simulate;
  TokenOptions token;
  std::string login_token;
  std::string user;  // login: in the certificate
  Completion completion;
};

// The output and exit code of a command line that runs no command.
struct ParseStop {
  int exit_code = 0;
  std::string out;  // for standard output: help, version
  std::string err;  // for standard error: what is wrong
};

// Fills `options` and returns nothing, or says how to end: 0 after --help and
// --version, kExitUsage after a mistake.
std::optional<ParseStop> ParseClientOptions(int argc, const char* const* argv,
                                            ClientOptions* options);

// Returns the words that may stand in place of the last of `words`, which
// follow the program's name.  Fills those of `options` that say which mesh
// knows more.
Completion CompleteCommandLine(const std::vector<std::string>& words,
                               ClientOptions* options);

// A line for each offer that begins with the typed word: the word, a tabulator,
// its help.  Before them `:files` where files may stand too, and `:nospace`.
std::string CompletionText(const Completion& completion);

// The script for bash, zsh or fish that calls the hidden command.
std::string CompletionScript(const std::string& shell);

}  // namespace paceline
