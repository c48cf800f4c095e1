// A schedule is data: a list of instructions a worker, which a small
// interpreter (worker/pipeline/stage_runner) runs.  Values and pure functions.
//
// Text form, as torch.distributed.pipelining writes it: stage, operation,
// micro-batch: "0F1", "2B0", "3I2", "1RECV_F3", "0STEP".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace paceline
