// Generators and the checker.  Everything here is pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/instruction.h"

namespace paceline {

// What a batch asks of the pipeline.
struct ScheduleRequest {
  std::string name;  // one of ScheduleNames()
  int stages = 1;
  int micro_batches = 1;
  bool training = true;        // false: forward only, no STEP
  std::vector<int> worker_of;  // [stages]: index of the worker of a stage,
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

// One line a worker, each ending in a newline.
std::string ToText(const Schedule& schedule);

// All names that MakeSchedule knows, sorted.
std::vector<std::string> ScheduleNames();

// More stages x micro-batches than this are refused, so that a job file with a
// slip in it cannot take the planner's memory.
inline constexpr int64_t kMaxScheduleCells = int64_t{1} << 20;

// Makes the instruction lists; where a worker holds several stages, theirs
// are merged by a dry run (merge.h), so that the result cannot deadlock.
//
//   gpipe  all forwards, then all backwards (Huang et al. 2019)
//   1f1b   warm-up of min(stages - 1 - s, micro_batches) forwards, then one
//          forward and one backward in turn (Narayanan et al. 2019,
//          "PipeDream"; flushed as in 2021, "Memory-efficient
//          pipeline-parallel DNN training").  Backwards in ascending
//          micro-batch order in both.
//
// A LOAD or RECV stands right before the F or B that uses it, and a SEND right
// after the one that made its frame: links buffer what arrives early, so a
// receive waits only for what is needed next.  Neighbouring stages of one
// worker SEND and RECV too.  All STEPs of a worker are its last instructions,
// so that their reports reach the step gate together.  Forward-only schedules
// are the same under every name.
//
// O(stages x micro_batches x stages of a worker).
//
// Errors: InvalidArgument  unknown name; stages, micro_batches < 1, or their
//                          product above kMaxScheduleCells; worker_of of the
//                          wrong length or with a gap.
absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request);

// What the dry run proves of ONE batch.  Training batches cannot overlap, since
// no forward of the next starts before the verdict of the step gate.  A
// forward-only schedule has no gate: who runs such batches back to back must
// hold the first stage back, or the frames of several batches add up.
struct ScheduleBounds {
  // [stages - 1] each: the most frames of one boundary and direction that can
  // be sent and not yet received, whatever the speeds.  Exact: some speeds
  // reach it.  The credit of the data plane is at least this.
  std::vector<int> activation_frames;
  std::vector<int> gradient_frames;
  // [stages]: the most micro-batches whose activations a stage keeps for
  // backward; 0 when there is none.
  std::vector<int> kept_micro_batches;
};

// Checks `schedule` and returns its bounds.  The rules are checked in this
// order and the first that is broken is reported.
// O(stages^2 x micro_batches).
//
// Errors: InvalidArgument, the message starts with the rule and names the
// instruction:
//   shape         stages, micro_batches < 1 or too many, worker_of of the wrong
//                 length
//   placement     an instruction on a worker that does not hold its stage
//   pairing       every SEND has its RECV and the reverse; one F (and B, when
//                 training) for each stage and micro-batch; LOAD for the first
//                 stage only; one STEP a stage; nothing twice, nothing else
//   order         LOAD/RECV_F before F before SEND_F; F and RECV_B before B
//                 before SEND_B; nothing but STEP after a worker's first STEP
//   accumulation  B of a stage in ascending micro-batch order
//   deadlock      a dry run stops: names who waits for what
absl::StatusOr<ScheduleBounds> CheckSchedule(const Schedule& schedule);

}  // namespace paceline
