// The model that a job computes with: what its faults and its teacher make of
// the described one.  Pure.
//
// The results that weights give depend on more than tensors' shapes show: on
// what they were made with.  A file of weights says it in its metadata, by the
// keys of a job file (JobKey::bearing), and a job that reads the file is
// compared with that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"

namespace paceline {

// The model of train.distill.weights.
ModelSpec TeacherOf(const JobSpec& spec);

// Describes what `spec` computes with, and its teacher.  Blocks that its faults
// skip are skipped.
// Errors: those of DescribeModel(spec.model, ...); InvalidArgument  a block
// that cannot be left out
absl::StatusOr<ModelDescription> DescribeModel(const JobSpec& spec);

// Metadata: the kinds of operations, and so activations, epsilons and masks.
inline constexpr char kOperationsKey[] = "operations";
// Metadata: the residual blocks that the job went without.
inline constexpr char kSkippedKey[] = "faults.block";
// Metadata: what labels stand for, or tokens where data.tokens is character;
// a line each, in their order, or a hash of many.  A worker finds it in the
// data.
inline constexpr char kClassesKey[] = "classes";
inline constexpr size_t kMaxClassesBytes = 16 << 10;

// Compares metadata that weights came with with what the job has.
//   reset_head  the weights are for another task than the job: other data is
//               no error then
//   notes       what is no error, and a person should know, is added: keys
//               that bear on training alone, and what the metadata is silent on
// Errors: InvalidArgument  the job computes something else with such weights;
//                          names the keys and both values
absl::Status CheckMadeWith(const std::map<std::string, std::string>& metadata,
                           const std::map<std::string, std::string>& job,
                           bool reset_head, std::vector<std::string>& notes);

// Adds kClassesKey to what `model` is made with, unless it is empty.
void SetClasses(const std::string& classes, ModelDescription& model);

// A file of weights says this beside its tensors.
struct WeightsOrigin {
  std::map<std::string, std::string> metadata;
  std::vector<std::string> notes;  // CheckMadeWith()'s
};

// The same of what labels stand for in the file spec.weights and in the data,
// unless the job draws a new head.  Empty texts say nothing.
absl::Status CheckClasses(const WeightsOrigin& origin,
                          const std::string& classes, const ModelSpec& spec);

}  // namespace paceline
