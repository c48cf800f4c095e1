#include "core/schedule/instruction.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

// By Op.
constexpr absl::string_view kOpNames[] = {
    "LOAD",   "RECV_F", "F", "SEND_F", "RECV_B", "B",
    "SEND_B", "STEP",   "I", "W",      "UPDATE"};

}  // namespace

absl::string_view NameOf(Op op) { return kOpNames[static_cast<size_t>(op)]; }

std::string ToText(const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  return op == Op::kStep ? absl::StrCat(stage, NameOf(op))
                         : absl::StrCat(stage, NameOf(op), micro_batch);
}

std::optional<Instruction> PartnerOf(const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  switch (op) {
    case Op::kSendF:
      return Instruction{stage + 1, Op::kRecvF, micro_batch};
    case Op::kRecvF:
      return Instruction{stage - 1, Op::kSendF, micro_batch};
    case Op::kSendB:
      return Instruction{stage - 1, Op::kRecvB, micro_batch};
    case Op::kRecvB:
      return Instruction{stage + 1, Op::kSendB, micro_batch};
    default:
      return std::nullopt;
  }
}

std::string ToText(const InstructionList& instructions) {
  return absl::StrJoin(instructions, " ",
                       [](std::string* out, const Instruction& instruction) {
                         absl::StrAppend(out, ToText(instruction));
                       });
}

}  // namespace paceline
