// The two studies behind `paceline bench infer|train`: what a mesh reaches with
// a model, against one worker of it, and where the rest goes.  Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/study/measures.h"
#include "client/study/study.h"
#include "client/values/document.h"

namespace paceline {

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
