// The table of schedules and their differences.  No other code compares the
// name of a schedule.  The table is in make_schedule.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

struct ScheduleTraits {
  absl::string_view name;  // empty: there is no such schedule
  // Every stage keeps all micro-batches of the step until their backward.
  bool keeps_all = false;
  // Backwards are computed in halves, and the second is put off.
  bool splits = false;
  // Stages are dealt out in turn, as many to each worker; the micro-batches of
  // a step are a multiple of the workers.
  bool deals = false;
  // Batches follow each other without a flush and without a step gate; each
  // micro-batch is an update, and a stage keeps several versions of its
  // weights.  One stage a worker.
  bool asynchronous = false;
  // Made for training stages of one worker each: not for replicas, and of no
  // meaning for inference.
  bool only_trains = false;
};

// Returns the traits of a schedule; for an unknown name all of them are false.
const ScheduleTraits& ScheduleTraitsOf(absl::string_view name);

// All names, sorted.
std::vector<std::string> ScheduleNames();

}  // namespace paceline
