// Every key of a job file, once: what it means and when it has an effect.  The
// type and the default are the proto's and core/model/job_spec.h's.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace paceline {

struct JobKey {
  const char* path;     // "train.optimizer.momentum"; of a fault "faults.kind"
  const char* meaning;  // one or two sentences
  const char* absent = "";  // the default in words; empty: a fixed value
  // It has an effect only where the key `decider` has one of these values,
  // which stand between blanks.  Empty: nothing of the kind.
  const char* decider = "";
  const char* needs = "";
};

// In the order of the proto.
absl::Span<const JobKey> JobKeys();
// Null: there is no such key.
const JobKey* FindJobKey(const std::string& path);

// Whether `word` is one of `words`, which stand between blanks.
bool IsAmong(const char* words, const std::string& word);

}  // namespace paceline
