// Job files: YAML with the keys of v1::JobSpec, checked strictly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// A job file has a few hundred bytes; what is larger is not one.
constexpr int64_t kMaxJobFileBytes = 1 << 20;

// The text of a job file; "-" reads standard input.
// Errors: InvalidArgument  it cannot be read, or is larger than
//                          kMaxJobFileBytes
absl::StatusOr<std::string> ReadJobFile(const std::string& path);

// A command line names one of our models, else a file.
struct JobSource {
  std::string model = {};
  std::optional<int64_t> batch = {};  // samples of a micro-batch; with a model
  std::string file = {};
  std::vector<std::string> sets = {};  // --set
};

struct JobFile {
  std::string name;  // for error messages
  std::string text;
  std::vector<std::string> sets;  // "train.steps=60", in order, later ones win
  std::string below = {};  // the key of the file that the job is below; or all
};

// A job as it was read.
struct ParsedJob {
  JobSpec spec;
  // One line for each key that was given and has no effect, as
  //     job.yaml:7: train.optimizer.momentum has no effect: ...
  std::vector<std::string> warnings;
};

// The job that `file` asks for, with every default filled in.  Nothing that
// yaml-cpp throws leaves this function.
//
// Errors: InvalidArgument  one line for each thing that is wrong, as
//     job.yaml:7: train.optimiser: unknown key; did you mean 'optimizer'?
//     --set train.steps=many: expected a whole number, got 'many'
absl::StatusOr<ParsedJob> ParseJobFile(const JobFile& file);

// The job of `spec`, which was checked when it was submitted, changed by
// `sets`. Errors: InvalidArgument  as ParseJobFile()
absl::StatusOr<ParsedJob> ChangeJob(const JobSpec& spec,
                                    const std::vector<std::string>& sets);

// Whether KEY=VALUE names a key of a job, and a value of its type.
// Errors: InvalidArgument  as ParseJobFile()
absl::Status CheckSet(const std::string& set);

// A spec of `model_name` and defaults, changed by `sets` only.  Values are not
// checked, since there may be no job in it, but for paths that workers open.
absl::StatusOr<ParsedJob> ParseModelSettings(
    const std::string& model_name, const std::vector<std::string>& sets);

}  // namespace paceline
