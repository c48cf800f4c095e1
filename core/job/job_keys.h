// Every key of a job file: where it stands in a JobSpec, what it may be, what
// it means, and when it has an effect.  Checks, warnings, help and completion
// read this table, which is made of proto/paceline/v1/job.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

inline constexpr int64_t kMostMembers = 1024;
inline constexpr int64_t kMostShards = 64;

// The place of a key's value in a JobSpec.
using KeyValue = std::variant<int32_t*, int64_t*, double*, bool*, std::string*,
                              std::vector<int32_t>*, std::vector<int64_t>*,
                              std::vector<double>*, std::vector<std::string>*>;

// Says what a value may be.  At most one of the three is set.
struct KeyRange {
  // Whole numbers: from `least` to `most`.
  int64_t least = 0;
  int64_t most = -1;
  // Numbers: those that are `good`, which `text` says in words.
  bool (*good)(double) = nullptr;
  const char* text = "";
  // Texts: one of `words`, which stand between blanks, or of `names`; `what`
  // says what they name.
  const char* words = "";
  std::vector<std::string> (*names)() = nullptr;
  const char* what = "";
};

// The meaning of a key to weights that a job begins with, where no tensor's
// shape shows its value (core/job/job_model.h).
enum class Bearing : uint8_t {
  kNone,     // nothing, or shapes show it
  kSaid,     // another value is no error, but a person is told
  kRefused,  // with another value they give other results
};

struct JobKey {
  const char* path;  // "train.optimizer.momentum"; of a fault "faults.kind"
  // fault: the index of a fault; ignored by all other keys.
  KeyValue (*at)(JobSpec& spec, size_t fault);
  const char* meaning;  // one or two sentences
  KeyRange range = {};
  const char* absent = "";  // the default in words; empty: a fixed value
  // The key has an effect only where the key `decider` has one of the words in
  // `needs`, which stand between blanks.  Empty: always.
  const char* decider = "";
  const char* needs = "";
  Bearing bearing = Bearing::kNone;
};

// In the order of the proto.
absl::Span<const JobKey> JobKeys();
// Null: there is no such key.
const JobKey* FindJobKey(const std::string& path);

// "0 to 1000000000", "in [0, 1)", "adamw or sgd"; empty: anything.
std::string RangeText(const JobKey& key);
// "whole number", "number", "flag (true or false)", "text" or a list of one.
std::string TypeText(const JobKey& key);
// As YAML: 0.5, true, "sgd", [1, 2].
std::string ValueText(const KeyValue& value);

// Whether `word` is one of `words`, which stand between blanks.
bool IsAmong(const char* words, const std::string& word);

// Adds nothing when the value of the key is in its range.
//   fault  of a key of faults: which of them
void CheckKey(const JobKey& key, const JobSpec& spec, size_t fault,
              SpecProblems& problems);
// Whether the value of the key `path`, which is none of faults, is in its
// range.
bool IsInRange(const std::string& path, const JobSpec& spec);

// A value that somebody wrote down.
struct GivenKey {
  std::string path;     // "train.optimizer.momentum", "faults[0].kind"
  bool by_set = false;  // by --set, which overrides the file on purpose
};

struct UnusedKey {
  std::string path;
  std::string why;  // "train.optimizer.name is adamw"
};

// Those of `given` that have no effect in `spec`, in their order.  Not an
// error: the job runs, only otherwise than its writer may believe.
std::vector<UnusedKey> UnusedKeys(const JobSpec& spec,
                                  const std::vector<GivenKey>& given);

// Joins those of `remedies` that help such a job, as in "a smaller
// infer.micro_batch or more pipeline.stages": leaves out those that name a key
// without effect in `spec`.
std::string RemediesFor(const JobSpec& spec, std::vector<std::string> remedies);

}  // namespace paceline
