// The numbers of a job that has ended: those in its document, and where the
// time of its pipeline went.  Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/render/report.h"
#include "client/values/document.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

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

}  // namespace paceline
