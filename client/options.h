// The client's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/commands/completion.h"
#include "client/commands/job/export.h"
#include "client/commands/job/jobs_and_nodes.h"
#include "client/commands/job/prune.h"
#include "client/commands/job/report.h"
#include "client/commands/job/study.h"
#include "client/commands/mesh/mesh.h"
#include "client/commands/plan/plan_question.h"
#include "client/commands/plan/predict.h"
#include "client/commands/plan/profile.h"
#include "client/commands/plan/simulate.h"
#include "client/commands/trust/trust.h"

namespace paceline {

enum class Command {
  kUp,
  kJobSubmit,
  kJobList,
  kJobShow,
  kJobLogs,
  kJobEvents,
  kJobWait,
  kJobWatch,
  kJobStop,
  kJobExport,
  kJobResume,
  kJobDelete,
  kJobKeys,
  kNodeList,
  kNodeShow,
  kNodeDrain,
  kNodeUndrain,
  kNodeForget,
  kModelList,
  kModelInspect,
  kModelPrune,
  kProfile,
  kBench,
  kReport,
  kStudy,
  kPlan,
  kPredict,       // --fit: asks no coordinator
  kPredictModel,  // --model
  kSimulate,
  kTokenCreate,
  kTokenList,
  kTokenRevoke,
  kLogin,
  kTlsCheck,
  kTlsRevoke,
  kTop,
  kDoctor,
  kContextList,
  kContextSet,
  kContextUse,
  kContextDelete,
  kCompletion,
  kComplete,  // hidden; what a mesh offers
};

struct ClientOptions {
  Command command = Command::kJobList;
  std::optional<std::string> coordinator;  // --coordinator
  std::optional<std::string> context;      // --context
  std::optional<std::string> output;       // --output
  std::optional<std::string> tls_dir;      // --tls-dir
  std::optional<std::string> secret_file;  // --secret-file
  std::string target;  // job, node, model, job file, context or shell
  std::string host;    // context set: HOST:PORT
  std::vector<std::string> sets;
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
  PredictModelOptions predict_model;
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

}  // namespace paceline
