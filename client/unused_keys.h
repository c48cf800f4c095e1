// Keys of a job that were given and change nothing.
#pragma once

#include <string>
#include <vector>

#include "core/model/job_spec.h"

namespace paceline {

// A value that somebody wrote down.
struct GivenKey {
  std::string path;     // "train.optimizer.momentum"
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

}  // namespace paceline
