// A schedule is data: a list of instructions a worker, which a small
// interpreter (worker/pipeline/stage_runner) runs.  Generators and the checker.
// Values and pure functions.
//
// Text form, as torch.distributed.pipelining writes it: stage, operation,
// micro-batch: "0F1", "2B0", "3I2", "1RECV_F3", "0STEP".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

enum class Op : uint8_t {
  kLoad,      // LOAD: the first stage takes a micro-batch from the data
  kRecvF,     // RECV_F: wait for the activation of a micro-batch
  kForward,   // F
  kSendF,     // SEND_F: queue the activation for the next stage
  kRecvB,     // RECV_B: wait for the gradient of the output
  kBackward,  // B: the gradients of the input and of the weights
  kSendB,     // SEND_B: queue the gradient of the input for the stage before
  kStep,      // STEP: step gate, then the optimizer; once a batch and stage
  // The halves of B, in schedules that compute them apart.
  kBackwardInput,   // I: the gradient of the input
  kBackwardWeight,  // W: the gradient of the weights, added to the sum
  // UPDATE: the optimizer, with the gradient of this micro-batch alone and
  // without a gate; in asynchronous schedules instead of STEP.
  kUpdate,
};

struct Instruction {
  int stage = 0;
  Op op = Op::kLoad;
  int micro_batch = 0;  // 0 for kStep

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

using InstructionList = std::vector<Instruction>;

// "F", "RECV_F".
absl::string_view NameOf(Op op);
std::string ToText(const Instruction& instruction);
// The receive of a send, and the send of a receive; of others there is none.
std::optional<Instruction> PartnerOf(const Instruction& instruction);
// One line, separated by blanks.
std::string ToText(const InstructionList& instructions);

// The wanted schedule of one batch.
struct ScheduleRequest {
  std::string name;  // one of ScheduleNames()
  int stages = 1;
  int micro_batches = 1;
  bool training = true;        // false: forward only, no STEP
  std::vector<int> worker_of;  // [stages]: index of the worker of a stage,
                               // 0..W-1, each used
  // The last batch of an epoch, which has fewer micro-batches than the job
  // says: a schedule that is not made for their number gives way to 1f1b on
  // the same placement.
  bool shorter_batch = false;
  // pipedream: a micro-batch uses the version that the first stage had, on all
  // stages.  Changes no instruction, but how many versions are kept.
  bool vertical_sync = false;
};

// workers[w]: what worker w does in one batch, in order.
struct Schedule {
  int stages = 1;
  int micro_batches = 1;
  bool training = true;
  bool asynchronous = false;  // an UPDATE a micro-batch, no STEP
  bool vertical_sync = false;
  std::vector<int> worker_of = {};
  std::vector<InstructionList> workers = {};
};

// One line a worker, each ending in a newline.
std::string ToText(const Schedule& schedule);

// More stages x micro-batches than this are refused, so that a job file with a
// slip in it cannot take the planner's memory.
inline constexpr int64_t kMaxScheduleCells = int64_t{1} << 20;

// Errors: InvalidArgument  stages or micro_batches < 1, or their product above
//                          kMaxScheduleCells
absl::Status CheckScheduleSizes(int stages, int micro_batches);

// Adds to the computes of a worker, in its order, the LOADs, RECVs, SENDs and
// UPDATEs, as MakeSchedule describes them.
InstructionList WithFrames(const InstructionList& order, int stages,
                           bool asynchronous);

// Makes the instruction lists; where a worker holds several stages, theirs
// are merged by a dry run, so that the result cannot deadlock.
//
//   gpipe  all forwards, then all backwards (Huang et al. 2019)
//   1f1b   warm-up of min(stages - 1 - s, micro_batches) forwards, then one
//          forward and one backward in turn (Narayanan et al. 2019,
//          "PipeDream"; flushed as in 2021, "Memory-efficient
//          pipeline-parallel DNN training").  Backwards in ascending
//          micro-batch order in both.
//   interleaved-1f1b  several stages a worker, dealt out in turn (stage s on
//          worker s mod W); micro-batches pass through in groups of W, which
//          makes the bubble of 1f1b smaller by the stages of a worker
//          (Narayanan et al. 2021, "Megatron-LM").  Micro-batches: a multiple
//          of W.
//   zero-bubble  ZB-H1 of Qi et al. 2023: 1f1b with each backward in two
//          halves, I and W; W is put off to where 1f1b waits.  Keeps as many
//          micro-batches on every stage as 1f1b does on the first.
//   pipedream  asynchronous (asynchronous.h): 1f1b without a flush, an UPDATE
//          after each backward and no STEP.  The lists are a stream of
//          micro_batches from an empty pipeline to an empty one.  One stage a
//          worker.
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
//                          wrong length or with a gap; a placement or a number
//                          of micro-batches that the schedule is not made for.
absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request);

// The bounds that the dry run proves for ONE batch.  Training batches cannot
// overlap: no forward of the next batch starts before the verdict of the step
// gate.  A forward-only schedule has no gate.  A caller that runs such batches
// back to back must hold the first stage back, or the frames of several batches
// add up.
struct ScheduleBounds {
  // [stages - 1] each: the most frames of one boundary and direction that can
  // be sent and not yet received, whatever the speeds.  Exact: some speeds
  // reach it.  The credit of the data plane is at least this.
  std::vector<int> activation_frames;
  std::vector<int> gradient_frames;
  // [stages]: the most micro-batches whose activations a stage keeps for
  // backward; 0 when there is none.  One whose backward is in halves counts
  // until the second.
  std::vector<int> kept_micro_batches;
  // [stages]: those of them that are between their two halves, at most.
  std::vector<int> split_micro_batches;
  // [stages]: versions of the weights that are there at a time, at most; 1 but
  // for asynchronous schedules.
  std::vector<int> kept_versions;
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
//   pairing       every SEND has its RECV and the reverse; one F (and, when
//                 training, one B or one I and one W) for each stage and
//                 micro-batch; LOAD for the first stage only; one STEP a stage,
//                 or one UPDATE a micro-batch where it is asynchronous; nothing
//                 twice, nothing else
//   order         LOAD/RECV_F before F before SEND_F; F and RECV_B before B or
//                 I before SEND_B; I before W; B or W before UPDATE; nothing
//                 but STEP after a worker's first STEP
//   accumulation  B or W of a stage in ascending micro-batch order; no other
//                 gradient between that of a micro-batch and its UPDATE
//   version       with vertical sync: a stage has made the version that the
//                 first stage had, before the forward that needs it
//   deadlock      a dry run stops: names who waits for what
absl::StatusOr<ScheduleBounds> CheckSchedule(const Schedule& schedule);

// The bounds that hold for a whole run of batches of request.micro_batches and
// shorter ones, with the step gate between them, or without where the schedule
// is asynchronous.
// Errors: those of MakeSchedule
absl::StatusOr<ScheduleBounds> BoundsOfRun(ScheduleRequest request);

// --- the table of schedules ---

// In what schedules differ.  No other code compares the name of a schedule.
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
