// A study: one job with several settings, several times each.  The trials that
// a file asks for, which of them to submit next, and when one cannot be placed.
// A study of plans has questions of `paceline plan` in place of jobs.  Pure.
//
// A race is a study by successive halving (Jamieson and Talwalkar 2016).  All
// trials train for a while, the better part goes on, and so forth until one is
// left, which trains on.  All of them together take as many samples as one
// trial that is trained to the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/files/job_file.h"
#include "client/render/report.h"
#include "client/render/sections.h"
#include "client/values/document.h"
#include "core/base/clock.h"
#include "core/cluster/job_state.h"
#include "core/job/spec/job_spec.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// --- measures ----------------------------------------------------------------

// The numbers of a job that has ended: those in its document, and where the
// time of its pipeline went.

// How several numbers become one, where a path goes through a list.
enum class Fold { kSum, kMost, kMean, kLast, kTail };

// kText: not a number, "13-2-1".
enum class Unit { kNumber, kShare, kSeconds, kBytes, kText };

// Takes a number from the document of a job.
struct Measure {
  std::string name;
  Fold fold = Fold::kSum;
  Unit unit = Unit::kNumber;
  // Keys with dots between, "workers.seconds.wall"; their values are added.
  std::vector<std::string> paths = {};
  bool more_is_better = false;
  std::string per = {};  // the path of what the value is a share of; or empty
};

// The document of `job show`, and in it the `seconds` that the job ran.
Document JobDocument(const v1::Job& job);

// A short name ("accuracy", "memory"), a part of the workers' time ("forward"),
// or the path of a number in a JobDocument().  "max ", "mean " or "last "
// before a path says what becomes of lists; without one their numbers are
// added. Errors: InvalidArgument  neither; names what is like it
absl::StatusOr<Measure> FindMeasure(const std::string& name);

// The same for the document of a plan, client/commands/job/study.cc:
// "speed_up".
absl::StatusOr<Measure> FindPlanMeasure(const std::string& name);

// Nothing where the document has no such number; infinity for a NaN.
std::optional<double> ValueIn(const Document& job, const Measure& measure);

std::string ValueText(double value, Unit unit);

struct ValueSpread {
  double median = 0;
  double least = 0;
  double most = 0;
  int count = 0;
};
// values: at least one.
ValueSpread SpreadOf(const std::vector<double>& values);

// "7.2 ms", or with several "7.2 ms (7.1..7.5)".
std::string SpreadText(const ValueSpread& spread, Unit unit);

// --- speed-up, bound and losses, from what a pipeline's workers measured ----

// The losses that kept a pipeline of n workers from n times the speed of one:
// shares of the workers' time, each measured. 1 = speedup / n + fill +
// imbalance + transfer + slowdown + unexplained.
struct BenchLosses {
  // Before a worker's first micro-batch was there, and after its last one.
  // Training: waits before its first backward of a batch, and for the step
  // gate.
  double fill = 0;
  // Waits for stages that compute longer, and the loader.
  double imbalance = 0;
  // Waits for frames on their way, and compute that threads which move frames
  // took the CPU from.
  double transfer = 0;
  // The layers took this much longer than on the one worker alone: slower CPUs,
  // a smaller share of one, shared caches and memory, neighbours on a shared
  // box. Below 0 where they took less.
  double slowdown = 0;
  double unexplained = 0;  // what no part measured; may be below 0
};

struct BenchRow {
  int stages = 0;
  std::string policy;
  std::string schedule;  // of training; empty: inference
  int workers = 0;
  std::string plan;       // "[0,7) a, [7,12) b"
  double seconds = 0;     // of the whole run, or of a step
  double throughput = 0;  // samples a second
  double speedup = 0;     // against one worker
  double bound = 0;       // the most that this plan can reach
  double drift = 0;       // of the one worker: BenchBaseline
  // Seconds, of a micro-batch: from the first stage's taking it in to its
  // result, in training to the end of its backward there.  0: not known.
  double latency_p50 = 0;
  double latency_p99 = 0;
  BenchLosses losses;
};

// How long one worker alone takes for a micro-batch; in training with its part
// of the update.
struct BenchBaseline {
  double seconds = 0;  // measured, a micro-batch
  double data = 0;     // of these it waited for the loader
  double layers = 0;   // as the profile has them; a micro-batch
  double cpu = 0;      // CPU seconds of its layers; 0: not known
  // By what part of itself the time changed between the two measurements that
  // this is the mean of: how steady the CPU was meanwhile.  One: 0.
  double drift = 0;
  std::string worker = "";  // its name; empty: not known
};

// Returns the mean of a measurement before and one after something.
BenchBaseline MeanOf(const BenchBaseline& a, const BenchBaseline& b);

// By worker: the share of a CPU that its compute thread gets when nothing else
// runs, below 1 where a quota stops it.
using CpuShares = std::map<std::string, double>;

// Reads the times of a job that one worker ran with the whole model; job:
// ended, of any kind.
// Errors: FailedPrecondition  the job has no times, or none from a profile
absl::StatusOr<BenchBaseline> BaselineOf(const v1::Job& job);

// job: ended, of any kind.
// Errors: FailedPrecondition  the job has no times, or none from a profile
absl::StatusOr<BenchRow> RowOf(const v1::Job& job, const BenchBaseline& one,
                               const CpuShares& shares);

Document RowDocument(const BenchRow& row);

// Returns how much of a micro-batch's pass a schedule leaves the busiest worker
// without work: the bubbles of core/schedule/README.md. The pass is through the
// stages that are not this worker's; a backward counts twice its forward.
//   schedule  of JobSpec; empty: inference
double BubblePart(const std::string& schedule, int stages, int workers);

// The bound of a plan for M micro-batches: one worker's time over
// M max(load) + bubble_part (sum(t) - max(load)), with t a stage's seconds and
// load those of all stages of a worker.
//   stage_seconds, worker_of  [stages]; of the layers alone: what a pipeline
//                             adds to them is no part of a bound
//   micro_batches             of a batch; infinity: nothing runs empty
double PipelineBound(double one_seconds,
                     const std::vector<double>& stage_seconds,
                     const std::vector<int64_t>& worker_of,
                     double micro_batches, double bubble_part);

// --- trials and jobs ---------------------------------------------------------

// As --set KEY=VALUE.
struct Setting {
  std::string key;
  std::string value;
};

struct Axis {
  std::string key;
  std::vector<std::string> values;  // at least one
};

struct Trial {
  std::string label;  // for people; no other trial of the study has it
  std::vector<Setting> settings;
};

// Successive halving.
struct Race {
  int64_t halving = 2;  // one in `halving` trials goes on
  Measure on;
  int64_t budget = 0;  // steps of the first trial; 0: train.steps
  double share = 0.5;  // of the budget, for all rungs but the winner's
  double plateau = 0;  // the winner stops when a rung improves it by less than
                       // this part; 0: never
};

// Plans in place of jobs.
struct PlanBase {
  std::vector<Setting> settings;  // for all trials; SetPlanOption()
  std::string folder;             // of the profiles
  int64_t micro_batches = 32;     // of a simulated step
};

// Published results of trials, to stand beside ours.
struct PublishedResult {
  std::vector<Setting> where;  // trials that have all of these
  std::vector<Setting> says;   // by names of measures
  std::string note;
};

// A study file as it was read.
struct Study {
  std::string name;
  JobFile base;  // its sets hold for all trials
  std::optional<PlanBase> plan = {};
  std::vector<Axis> vary;     // a trial for each combination
  std::vector<Trial> trials;  // or these; a label may be empty
  int64_t repeat = 1;         // each with another seed
  std::vector<Measure> measure;
  bool exclusive = false;  // one job at a time
  // The label of the trial that all are compared with: one worker with the
  // whole model.  Empty: none.
  std::string against = {};
  std::optional<Race> race = {};
  std::vector<PublishedResult> published = {};
};

// More jobs want --yes.
inline constexpr int64_t kManyJobs = 1000;
inline constexpr int64_t kMostJobs = 100'000;

// Trials times repeats; at most kMostJobs + 1.
int64_t JobCount(const Study& study);

// In a grid the last axis changes fastest.  Without axes and trials: the base
// alone.
// Errors: InvalidArgument  two trials have the same label; none has that of
//         study.against; a published result is of none of them
absl::StatusOr<std::vector<Trial>> TrialsOf(const Study& study);

// Whether `published` speaks of the trial.
bool IsOf(const PublishedResult& published, const Trial& trial);

// A job of a study, before, while and after it runs.
struct TrialJob {
  size_t trial = 0;
  int64_t repeat = 0;  // from 0 on
  JobSpec spec = {};
  // The same for the same spec in the same study, whenever it is asked for.
  std::string request_id = {};

  // In a race.
  size_t rung = 0;
  std::optional<size_t> goes_on_from = {};  // index of the job before
  bool has_gone_on = false;                 // in a further job

  int64_t id = 0;  // of the job at the coordinator; 0: it is not known there
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  // It has no result: why.  Empty while there is hope.
  std::string why = {};
  std::optional<Instant> stuck_since = {};  // see DecideStuck()
  v1::Job result = {};                      // once it has succeeded
  // The trial of one worker alone that it is compared with, and the outcome.
  std::optional<size_t> against = {};
  bool only_compares = false;  // it is there for other jobs' sake
  std::optional<BenchRow> row = {};
  // That of `job show`, or the plan's, once it has succeeded.
  Document document = Document::object();
};

// The jobs of all trials in their order.  One whose settings make no job has
// the reason in `why`.  All trials come once before any comes again.  A job is
// named STUDY/LABEL, its repeats STUDY/LABEL#2.
// warnings: texts about keys without effect, each once.
// Errors: InvalidArgument  there is not one job without a `why`
absl::StatusOr<std::vector<TrialJob>> JobsOf(
    const Study& study, const std::vector<Trial>& trials,
    std::vector<std::string>* warnings);

// Gives each job that has succeeded, and is compared with a trial, its row
// beside the job of that trial with the same repeat, and its document the key
// `against`: RowDocument().  Of several such jobs the last one before it
// counts, else the first one after it.
//   paired  needs both, and takes their mean
// Returns the reasons why there are no rows, each once.
std::vector<std::string> CompareJobs(bool paired, const CpuShares& shares,
                                     std::vector<TrialJob>& jobs);

std::string RequestId(const Study& study, const JobSpec& spec);

// Submitted, and has not ended.
bool IsOpen(const TrialJob& job);
bool HasEnded(const TrialJob& job);

// The index of the job to submit now: the first that waits, while the study has
// fewer open jobs than there are workers.  An exclusive study has at most one.
std::optional<size_t> NextJob(const std::vector<TrialJob>& jobs, bool exclusive,
                              int live_workers);

// A job that is queued while all workers are idle will not start until others
// come.  After so long without a change it counts as one without a place.
inline constexpr absl::Duration kStuckTime = absl::Seconds(30);

// Whether to give the job up; keeps in it since when it is stuck.
//   idle  at least one worker is attached, and none has anything to do
bool DecideStuck(TrialJob& job, bool idle, Instant now);

// `trials` trials train until step `end` of the first trial.  A trial with
// another batch size takes as many samples, in more or fewer steps.
struct Rung {
  size_t trials = 0;
  int64_t end = 0;  // steps since the race began
};

// The race's share of the budget halves the field, in rungs of equal length;
// the rest trains the winner.  With a plateau the rest is cut into eight rungs.
//   budget  steps of the first trial, of all trials together
// Errors: InvalidArgument  there is but one trial, or less than a step for each
absl::StatusOr<std::vector<Rung>> RungsOf(const Race& race, size_t trials,
                                          int64_t budget);

// Makes the jobs of a study those of the first rung.  A job that could not go
// on from a checkpoint to the same weights has the reason in `why`.
// Errors: those of RungsOf(); InvalidArgument  the first job counts epochs, and
//         the race has no budget
absl::StatusOr<std::vector<Rung>> BeginRace(const Study& study,
                                            std::vector<TrialJob>& jobs);

// The job that is alone in the newest rung and has succeeded.
std::optional<size_t> WinnerOf(const std::vector<TrialJob>& jobs);

// Adds the jobs of the next rung, once all jobs of the newest one have ended.
// False: the race is over, at its end or at a plateau.
bool AddRung(const Study& study, const std::vector<Rung>& rungs,
             std::vector<TrialJob>& jobs);

// --- the file ----------------------------------------------------------------

// Study files: YAML, checked strictly.
//
//   name: batch-size          # of the study; the file's name unless given
//   base: job.yaml            # beside this file; or the keys of a job
//   vary:                     # a trial for each combination
//     train.batch: [32, 64]
//   trials:                   # or, in place of `vary`, these
//     - {label: small, train.batch: 32}
//   repeat: 3                 # seeds a trial, from the base's on
//   measure: [accuracy, time] # FindMeasure()
//   exclusive: true           # one job at a time
//   race:                     # Race of client/study/study.h
//     {halving: 2, on: loss, budget: 1000, plateau: 0.01}
//
// or, with plans in place of jobs, without `base`, `repeat`, `exclusive`, race:
//
//   plan:                     # SetPlanOption(), and besides
//     cost_model: pipedream
//     folder: profiles        # of the profiles, beside this file
//     micro_batches: 16       # of a simulated step; 32 unless given
//   vary: {profile: [vgg16.txt], machines: [4x4, 8x2]}
//   measure: [configuration]  # FindPlanMeasure()
//   published:                # of either kind of study: trials, measures, note
//     - {machines: 4x4, configuration: 15-1, note: A sentence.}

// The study of `text`.  A base that is a file is not read: `base` has its name,
// and no text.
//   path  of the study file
// Errors: InvalidArgument  as below
absl::StatusOr<Study> ParseStudyFile(const std::string& path,
                                     const std::string& text);

// Reads the file and its base.
//   sets  KEY=VALUE, for all trials
// Errors: InvalidArgument  a file cannot be read, or one line for each thing
//         that is wrong, as
//     study.yaml:4: vary: --set train.bacth=32: train.bacth: unknown key; ...
absl::StatusOr<Study> ReadStudyFile(const std::string& path,
                                    const std::vector<std::string>& sets);

// --- the results -------------------------------------------------------------

// The results of a study: a table and a plot for a terminal, a document, and
// the sections of a report.

// A study, its trials and their jobs.  Values come from the jobs' documents.
struct StudyResults {
  Study study;
  std::vector<Trial> trials = {};
  std::vector<TrialJob> jobs = {};
};

// How a terminal shows them: a row a trial, then the first measure as a plot.
std::string RenderStudy(const StudyResults& results, bool unicode);

// README.md of client/ lists the keys.
Document StudyDocument(const StudyResults& results);

// plain: numbers without units, for programs; the spread in columns of its own.
Report StudyReport(const StudyResults& results, bool plain);

// Each trial from its least to its greatest value, with its median, on one
// axis; empty where no trial has a value.
//   spreads  by labels
std::string PlotSpreads(
    const std::string& title,
    const std::vector<std::pair<std::string, ValueSpread>>& spreads, Unit unit,
    bool unicode);

// --- benches -----------------------------------------------------------------

// The two studies behind `paceline bench infer|train`: what a mesh reaches with
// a model, against one worker of it, and where the rest goes.

struct BenchOptions {
  std::string model = {};
  std::vector<int> stages = {};            // empty: 1 and all live workers
  std::vector<std::string> policies = {};  // empty: optimal
  bool train = false;
  std::vector<std::string> schedules = {};  // training; empty: 1f1b
  int64_t steps = 3;           // training; the first is not counted
  int64_t micro_batch = 4;     // samples
  int64_t micro_batches = 96;  // training: of a batch
  // Inference: more of them, until each case takes some seconds as predicted.
  bool lengthen = false;
  // Above 0: the micro-batches (training: steps) of one worker alone, which
  // runs before and after every case; each case is compared with the mean of
  // the two.
  int64_t paired = 0;
  int tries = 1;           // of each; the one of median speed-up is shown
  bool profile = true;     // measure the layers first
  bool keep_jobs = false;  // do not delete the jobs when they have ended
  std::vector<std::string> sets = {};
  std::optional<absl::Duration> timeout = {};  // of each job
};

// Below that, periods of quotas and what else a machine does decide.
inline constexpr double kShortBenchSeconds = 2;

// How many of them take some seconds, where `micro_batches` would take
// `seconds` (0: not known).
int64_t EnoughMicroBatches(int64_t micro_batches, double seconds);

// The trials of a bench: one worker alone first (and once more where every
// micro-batch is an update), then each number of stages under each policy and
// schedule.
struct BenchCase {
  int stages = 1;
  std::string policy;
  std::string schedule;  // empty: inference
};
std::vector<BenchCase> BenchCases(const BenchOptions& options, int workers);

// spec: of the model, with --set's keys; what the bench decides itself
// (CheckBenchSets()) is written over.
JobSpec BenchSpec(JobSpec spec, const BenchOptions& options,
                  const BenchCase& one);

// The jobs of all rounds in their order, each with the worker alone that it is
// compared with; options.paired has that run again after each job.
std::vector<TrialJob> BenchJobs(const JobSpec& spec,
                                const BenchOptions& options,
                                const std::vector<BenchCase>& cases);

// The median try of each case by speed-up (of one worker alone: by throughput);
// without those that have no row.
std::vector<BenchRow> MedianRows(const std::vector<TrialJob>& jobs);

// "4 stages, optimal, 1f1b".
std::string CaseText(const BenchCase& one);

// Rows of a bench as a table and as a document.

std::string RenderBench(const std::vector<BenchRow>& rows);

// `model, micro_batch, micro_batches, rows[] {stages, policy, schedule,
// workers, plan, seconds, throughput, speedup, bound, drift,
// latency_p50_seconds, latency_p99_seconds, losses {fill, imbalance, transfer,
// slowdown, unexplained}}`.
Document BenchDocument(const BenchOptions& options,
                       const std::vector<BenchRow>& rows);

// The keys of a job that a bench decides itself.  Pure.

// Whether every KEY=VALUE of `sets` is one that a bench takes over.
// Errors: InvalidArgument  a line for each that it would write over, as
//     --set pipeline.stages=3: the bench decides that itself: use --stages
absl::Status CheckBenchSets(const std::vector<std::string>& sets, bool train);

}  // namespace paceline
