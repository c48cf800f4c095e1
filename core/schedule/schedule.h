// Generators and the checker.  Everything here is pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/instruction.h"

namespace paceline {

// What a batch asks of the pipeline.
struct ScheduleRequest {
  std::string name;  // gpipe, 1f1b
  int stages = 1;
  int micro_batches = 1;
  bool training = true;          // false: forward only, no STEP
  std::vector<int> worker_of;    // [stages]: index of the worker of a stage,
                                 // 0..W-1, each used
};

// workers[w]: what worker w does in one batch, in order.
struct Schedule {
  int stages = 1;
  int micro_batches = 1;
  bool training = true;
  std::vector<int> worker_of;
  std::vector<InstructionList> workers;
};

// All names that MakeSchedule knows, sorted.
std::vector<std::string> ScheduleNames();

// Makes the instruction lists; where a worker holds several stages, theirs
// are merged by a dry run, so that the result cannot deadlock.
//
//   gpipe  all forwards, then all backwards (Huang et al. 2019)
//   1f1b   warm-up of min(stages - 1 - s, micro_batches) forwards, then one
//          forward and one backward in turn (Narayanan et al. 2019,
//          "PipeDream"; flushed as in 2021, "Memory-efficient
//          pipeline-parallel DNN training").  Backwards in ascending
//          micro-batch order in both.
//
// Errors: InvalidArgument  unknown name; stages, micro_batches < 1; worker_of
//                          of the wrong length or with a gap.
absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request);

// What the dry run proves.
struct ScheduleBounds {
  // [stages - 1] each: the most frames of one boundary and direction that can
  // be sent and not yet received, whatever the speeds.  The credit of the data
  // plane is at least this.
  std::vector<int> activation_frames;
  std::vector<int> gradient_frames;
  // [stages]: the most micro-batches whose activations a stage keeps for
  // backward.
  std::vector<int> kept_micro_batches;
};

// Checks `schedule` and returns its bounds.
//
// Errors: InvalidArgument, the message names the instruction and the rule:
//   pairing       every SEND has its RECV and the reverse; one F (and B, when
//                 training) for each stage and micro-batch; one STEP a stage
//   order         LOAD/RECV_F before F before SEND_F; F and RECV_B before B
//                 before SEND_B; the last stage needs no RECV_B; STEP last
//   accumulation  B of a stage in ascending micro-batch order
//   placement     an instruction on a worker that does not hold its stage
//   deadlock      a dry run stops: names who waits for what
absl::StatusOr<ScheduleBounds> CheckSchedule(const Schedule& schedule);

}  // namespace paceline
