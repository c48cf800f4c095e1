// `paceline study` and `paceline bench`: submit the jobs of a study, wait for
// them, and print what came out.
//
// Nothing is kept beside the coordinator: a job of a study is found again by
// its request id.  So a study that was killed goes on where it was, and one
// that has ended prints its results once more.
#pragma once

#include <string>
#include <vector>

#include "client/commands/command.h"
#include "client/commands/job/prune.h"
#include "client/study/bench.h"

namespace paceline {

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
ExitCode StudyCommand(const CommandContext& context,
                      const StudyOptions& options,
                      const ReadMetadata& read = {},
                      const LoadModelWeights& load = nullptr);

// `paceline bench`: a study of its own (client/study/bench.h).  spec: of the
// model, with --set's keys.  Its files are looked for first.  Prints rows as
// they come, then the table or the document.
//
// Ends with kExitFailed where a job failed, kExitUnplaceable without workers,
// kExitTimedOut, kExitInterrupted; the rows that there are are printed.
ExitCode BenchCommand(const CommandContext& context, const JobSpec& spec,
                      const BenchOptions& options,
                      const LoadModelWeights& load = nullptr);

}  // namespace paceline
