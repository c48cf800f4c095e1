// `paceline job ...`, `node ...`, `top`, `model prune`, `study`, `bench` and
// `report`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/plan/plan.h"
#include "client/commands/reference.h"
#include "client/files/job_file.h"
#include "client/files/plan_file.h"
#include "client/render/console.h"
#include "client/render/mesh_view.h"
#include "client/render/report.h"
#include "client/study/study.h"
#include "core/base/clock.h"
#include "core/job/spec/job_spec.h"
#include "core/weights/safetensors_layout.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// --- jobs and nodes ----------------------------------------------------------

// `paceline job ...`, but for submit, export and keys, and `paceline node ...`.

// A job's number, or "last" for the newest.
// Errors: InvalidArgument  neither of them
//         NotFound         "last", and there are no jobs
//         and those of ControlClient::ListJobs
absl::StatusOr<int64_t> ResolveJob(ControlClient& client,
                                   const std::string& word);

// Which jobs `job list` shows; what is empty, or 0, leaves none out.
struct JobFilter {
  std::vector<std::string> states = {};
  std::string model = {};
  std::string name = {};  // a part of it
  int limit = 0;          // the newest of those that the rest leaves
};

// Takes the others out.
void KeepWanted(const JobFilter& filter, v1::ListJobsResponse& listed);
// watch, here and below: goes on and shows what changes, until Ctrl-C
Outcome ListJobsCommand(const CommandContext& context, const JobFilter& filter,
                        bool watch);
Outcome ShowJobCommand(const CommandContext& context, int64_t id, bool watch);

// follow: goes on until the job has ended or Ctrl-C.
Outcome JobEventsCommand(const CommandContext& context, int64_t id,
                         bool follow);
Outcome JobLogsCommand(const CommandContext& context, int64_t id, bool follow);

struct WaitJobOptions {
  std::optional<absl::Duration> timeout = {};
  bool events = false;  // tells them as they happen, as `job watch` does
  Document extra = Document::object();  // added to what -o json prints
};
// Ends with the exit code of the job, or kExitTimedOut, kExitInterrupted.
Outcome WaitJobCommand(const CommandContext& context, int64_t id,
                       const WaitJobOptions& options);

Outcome StopJobCommand(const CommandContext& context, int64_t id);
Outcome DeleteJobCommand(const CommandContext& context, int64_t id);

Outcome ListNodesCommand(const CommandContext& context, bool watch);

// word: a worker's name or its number.
Outcome ShowNodeCommand(const CommandContext& context, const std::string& word);

// The worker gets nothing new, and leaves its round group; or is taken back.
Outcome DrainNodeCommand(const CommandContext& context, const std::string& word,
                         bool drain);

// A worker that is gone leaves the list.
Outcome ForgetNodeCommand(const CommandContext& context,
                          const std::string& word);

// --- watch -------------------------------------------------------------------

// Progress of a job while somebody waits for it; and the mesh as it changes:
// `paceline top`, and --watch of other commands.

// Time until the last step at the present speed; nothing when either is not
// known.
std::optional<absl::Duration> TimeLeft(const v1::Job& job);

struct ProgressStyle {
  bool bar = false;      // for a line that is redrawn
  bool unicode = false;  // of the bar
  int columns = 0;       // that the line may have; 0: any number
};

// One line: "job 3  step 120/938  3.9 k samples/s  loss 0.4321  12 s left";
// what is not known is left out, and a step that was skipped says so instead of
// its loss.  Of a reason it has the first clause.  The bar is as long as there
// is room.  newest: the curve's last point.
std::string ProgressLine(const v1::Job& job,
                         std::optional<v1::StepRecord> newest,
                         const ProgressStyle& style);

// When a plain line is due where none can be redrawn: at a change of state or
// phase, at every tenth of the steps, and after 10 s with a further step.
// Thread-compatible.
class PlainProgress {
 public:
  // Says whether to print now; counts as printed when it does.
  bool OnProgress(const v1::Job& job, Instant now);

 private:
  bool printed_ = false;
  Instant printed_at_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string phase_;
  std::string why_;  // as it was said, without numbers
  int64_t step_ = 0;
  int64_t tenth_ = 0;
};

// Watching a job until it ends.

// Polls job `id` and shows its progress on the console's error side: one
// redrawn line on a terminal, else a line now and then; with `events` also what
// has happened to it so far and what happens.  A coordinator that goes away is
// given kPatience to come back.
//   last  the job as last seen; without a full curve
//
// Errors: those of WaitUntil(), ControlClient::GetJob and GetEvents.
absl::Status WatchJob(const CommandContext& context, int64_t id,
                      std::optional<absl::Duration> timeout, bool events,
                      v1::Job& last);

// Until Ctrl-C (kExitInterrupted), and through restarts of the coordinator.  On
// a terminal a screen; else what there is, and then a line for each change.
// Other formats than a table print what there is as one document, and end.
Outcome TopCommand(const CommandContext& context);

// --watch of other commands: on a terminal in place, else one after the other
// where it differs; until Ctrl-C.
Outcome WatchJobsCommand(const CommandContext& context,
                         const JobFilter& filter);
Outcome WatchNodesCommand(const CommandContext& context);
Outcome WatchOneJobCommand(const CommandContext& context, int64_t id);

// --- submit ------------------------------------------------------------------

// `paceline job submit`: what a job will need, a job that follows a plan file,
// and its submission.

// Makes spec.pipeline cut as `plan` does, on the same workers when it was made
// for a mesh; `name` is the file's, for errors.  The schedule stays the job's.
// Returns what a person should know of that, or nothing: that only its cuts are
// followed, that it does not count what layers share.
//
// Errors: InvalidArgument  the plan is of another model than the job (names
//         both) or of another number of layers, has stages of several workers
//         where the job trains or they are no mesh's, the job has cuts of its
//         own, or its spec does not allow these cuts (CheckJobSpec: under
//         pipedream layers that share parameters must be on one stage)
absl::StatusOr<std::string> FollowPlan(const std::string& name,
                                       const PlanFile& plan, JobSpec& spec);

// The keys among these settings (KEY=VALUE) that a plan decides.
std::vector<std::string> KeysOfAPlan(const std::vector<std::string>& sets);

// As the real run would be simulated, where the plan knows its devices.
SimulatedPlan SimulationOf(const PlanFile& plan);

// The job that `word` names (a number, or "last") as it was submitted, changed
// by `sets`.  Of a script: what is in the file is to be asked anew.
// Errors: those of ResolveJob(), ControlClient::GetJob() and ChangeJob()
absl::StatusOr<ParsedJob> JobAgain(ControlClient& client,
                                   const std::string& word,
                                   const std::vector<std::string>& sets);

// Says of a job that goes on as `now` what its writer may not have meant:
// another learning rate than the job `before` would have had (a cosine is
// stretched), weights that are not read.
//   step  of the checkpoint; 0: the newest one
//   sets  what --set has changed
std::vector<std::string> ResumeNotes(const v1::Job& before, const JobSpec& now,
                                     int64_t step,
                                     const std::vector<std::string>& sets);

struct SubmitOptions : ParsedJob {
  std::string request_id;  // random; repeats of this call carry the same
  // The job goes on from a checkpoint; step 0: the newest one.
  std::optional<v1::ResumedFrom> resume = {};
  bool detach = false;
  bool dry_run = false;
  std::optional<absl::Duration> timeout;  // of the wait; the job goes on
};

// Submits, then waits as `job wait` does unless `detach`.  A coordinator that
// cannot be reached is tried again for a moment, under one request_id, so that
// a repeat never makes a second job.
Outcome SubmitCommand(const CommandContext& context,
                      const SubmitOptions& options);

// --- export ------------------------------------------------------------------

// `paceline job export`: the weights of a job into a file.

// Says why an export must not go to `path`; empty: it may.  In other commands
// -o names the form of the output.  A user who types `-o json` here means that
// form, and would get a file of weights called json.
std::string WhyNoExportFile(const std::string& path);

// The file that is written; all but kWhole are for jobs with adapters
// (model.lora).
enum class ExportForm {
  kWhole,     // all weights, adapters among them; the result as it is
  kMerged,    // all weights, of a model without adapters that computes the same
  kAdapters,  // what trained, as Hugging Face's PEFT loads it
};

struct ExportRequest {
  int64_t id = 0;
  // "-": standard output.  kAdapters: a folder, made where there is none, for
  // adapter_model.safetensors and adapter_config.json.
  std::string path;
  ExportForm form = ExportForm::kWhole;
};

// Reads all tensors of a weights file.  Real: ReadSafetensors of core/weights.
using ReadTensors = std::function<absl::StatusOr<std::vector<NamedTensor>>(
    const std::string& path)>;

// Writes a weights file.  What was there before stays until the new file is
// whole.
// Errors: FailedPrecondition  it cannot be written; says why
absl::Status WriteWeightsFile(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata);

// Writes a new file beside its path, reads it back, compares it with the
// job's hash, and only then renames it.  So the old file stays until the
// new one is good.  A device or a pipe is written as it is.
//   read_tensors  used for kMerged and kAdapters
Outcome ExportJobCommand(const CommandContext& context, const ReadWeights& read,
                         const ReadTensors& read_tensors,
                         const ExportRequest& request);

// --- prune -------------------------------------------------------------------

// `paceline model prune`: a smaller model out of the weights of a larger one.

// The job says which model the weights belong to.
struct PruneOptions : JobSource {
  std::string weights;  // the file
  std::string out;      // the new one
  double target_macs = 0;
  std::string score = "l1";  // or "taylor"
  int batches = 0;           // taylor: as many jobs; 0: 8
};

// Reads what a weights file's metadata has for a key; empty: nothing.  Real:
// ReadSafetensorsMetadata of core/weights.
using ReadMetadata = std::function<absl::StatusOr<std::string>(
    const std::string& path, const std::string& key)>;

// Sets model.sizes to those of the pruned file that the job begins with, where
// it names none and the file is on this machine.
// Errors: InvalidArgument  they are no sizes
absl::Status FillInSizes(const ReadMetadata& read, ModelSpec& spec);

// Writes the pruned weights, says what is left, and prints model.sizes; the
// file's metadata has these too, and what the whole one's has.
//   spec  the job of options.weights
//   mesh  for the score taylor: its workers find options.weights where it is
//         here, and run a job of one step for each batch, which is deleted
Outcome PruneModelCommand(Console& console, const LoadModelWeights& load,
                          const JobSpec& spec, const PruneOptions& options,
                          const CommandContext* mesh = nullptr);

// --- study -------------------------------------------------------------------

// `paceline study` and `paceline bench`: submit the jobs of a study, wait for
// them, and print what came out.
//
// Nothing is kept beside the coordinator: a job of a study is found again by
// its request id.  So a study that was killed goes on where it was, and one
// that has ended prints its results once more.

struct StudyOptions {
  std::string file;
  std::vector<std::string> sets;  // KEY=VALUE, for all trials
  std::string report;             // a file as WhyNoStudyReport() takes it
  bool dry_run = false;
  bool yes = false;  // also more than kManyJobs jobs
};

// Says why no report can go to `file`: it ends with none of .html, .csv and
// .tex, or WhyNoExportFile().  Empty where one can.
std::string WhyNoStudyReport(const std::string& file);

// A job that begins with a pruned file gets its sizes from `read`; `load` as
// LookForFiles() has it.  Ends with kExitFailed where a job has no result,
// kExitInterrupted after Ctrl-C (jobs go on); after a dry run with kExitFailed
// where a trial is refused.
Outcome StudyCommand(const CommandContext& context, const StudyOptions& options,
                     const ReadMetadata& read = {},
                     const LoadModelWeights& load = nullptr);

// `paceline bench`: a study of its own (client/study/study.h).  spec: of the
// model, with --set's keys.  Its files are looked for first.  Prints rows as
// they come, then the table or the document.
//
// Ends with kExitFailed where a job failed, kExitUnplaceable without workers,
// kExitTimedOut, kExitInterrupted; the rows that there are are printed.
Outcome BenchCommand(const CommandContext& context, const JobSpec& spec,
                     const BenchOptions& options,
                     const LoadModelWeights& load = nullptr);

// --- report ------------------------------------------------------------------

// `paceline report`: what jobs did, side by side, as a page, tables or a trace.

struct ReportOptions {
  std::vector<std::string> jobs;  // numbers, or "last"; at least one
  std::string format = "html";    // one of ReportFormats()
  std::string file;               // empty or "-": standard output
};

// html, csv, latex, perfetto.
std::vector<std::string> ReportFormats();

// Columns are named as in the documents of client/README.md.  A file is written
// beside `options.file` and renamed.
//
// No record is kept of when a worker computed what: a step is what the
// simulator makes of the times that the job's stages took.
Outcome ReportCommand(const CommandContext& context,
                      const ReportOptions& options);

}  // namespace paceline
