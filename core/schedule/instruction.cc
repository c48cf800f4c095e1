#include "core/schedule/instruction.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

struct OpName {
  Op op;
  absl::string_view name;
};

constexpr OpName kOpNames[] = {
    {Op::kLoad, "LOAD"},       {Op::kRecvF, "RECV_F"},
    {Op::kForward, "F"},       {Op::kSendF, "SEND_F"},
    {Op::kRecvB, "RECV_B"},    {Op::kBackward, "B"},
    {Op::kSendB, "SEND_B"},    {Op::kStep, "STEP"},
    {Op::kBackwardInput, "I"}, {Op::kBackwardWeight, "W"},
    {Op::kUpdate, "UPDATE"},
};

absl::string_view NameOf(Op op) {
  const auto* entry = std::find_if(
      std::begin(kOpNames), std::end(kOpNames),
      [op](const OpName& candidate) { return candidate.op == op; });
  return entry == std::end(kOpNames) ? absl::string_view("?") : entry->name;
}

// Cuts the digits off the front of `text`.
absl::string_view TakeDigits(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) {
    ++digits;
  }
  const absl::string_view taken = text->substr(0, digits);
  text->remove_prefix(digits);
  return taken;
}

absl::Status NotAnInstruction(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no instruction, want for example 0F1, 1RECV_F3, 0STEP"));
}

}  // namespace

std::string ToText(const Instruction& instruction) {
  if (instruction.op == Op::kStep) {
    return absl::StrCat(instruction.stage, NameOf(instruction.op));
  }
  return absl::StrCat(instruction.stage, NameOf(instruction.op),
                      instruction.micro_batch);
}

std::string ToText(const InstructionList& instructions) {
  return absl::StrJoin(instructions, " ",
                       [](std::string* out, const Instruction& instruction) {
                         absl::StrAppend(out, ToText(instruction));
                       });
}

absl::StatusOr<Instruction> InstructionFromText(absl::string_view text) {
  absl::string_view rest = text;
  const absl::string_view stage = TakeDigits(&rest);
  const size_t op_end = std::min(rest.find_first_of("0123456789"), rest.size());
  const absl::string_view op_name = rest.substr(0, op_end);
  const absl::string_view micro_batch = rest.substr(op_end);
  const auto* entry = std::find_if(
      std::begin(kOpNames), std::end(kOpNames),
      [op_name](const OpName& candidate) { return candidate.name == op_name; });
  if (entry == std::end(kOpNames)) return NotAnInstruction(text);

  Instruction instruction;
  instruction.op = entry->op;
  if (!absl::SimpleAtoi(stage, &instruction.stage) ||
      (instruction.op != Op::kStep &&
       !absl::SimpleAtoi(micro_batch, &instruction.micro_batch))) {
    return NotAnInstruction(text);
  }
  // One instruction, one text: leading zeros and a numbered STEP end here.
  if (ToText(instruction) != text) return NotAnInstruction(text);
  return instruction;
}

absl::StatusOr<InstructionList> InstructionsFromText(absl::string_view text) {
  InstructionList instructions;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    PACELINE_ASSIGN_OR_RETURN(const Instruction instruction,
                              InstructionFromText(word));
    instructions.push_back(instruction);
  }
  return instructions;
}

}  // namespace paceline
