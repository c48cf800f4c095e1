#include "core/schedule/instruction.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

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

}  // namespace paceline
