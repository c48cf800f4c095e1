#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/base/errors.h"
#include "core/schedule/asynchronous.h"
#include "core/schedule/dry_run.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr Op kOps[] = {Op::kLoad,     Op::kRecvF,         Op::kForward,
                       Op::kSendF,    Op::kRecvB,         Op::kSendB,
                       Op::kBackward, Op::kBackwardInput, Op::kStep,
                       Op::kUpdate,   Op::kBackwardWeight};
constexpr int kMissing = -1;

template <typename... Args>
absl::Status Broken(absl::string_view rule, const Args&... what) {
  return InvalidArgument(rule, ": ", what...);
}

absl::Status CheckShape(const Schedule& schedule) {
  if (schedule.stages < 1 || schedule.micro_batches < 1 ||
      int64_t{schedule.stages} * schedule.micro_batches > kMaxScheduleCells) {
    return Broken("shape", schedule.stages, " stages x ",
                  schedule.micro_batches, " micro-batches, need 1 to ",
                  kMaxScheduleCells);
  }
  if (schedule.worker_of.size() != static_cast<size_t>(schedule.stages)) {
    return Broken("shape", "worker_of has ", schedule.worker_of.size(),
                  " entries, need ", schedule.stages);
  }
  return absl::OkStatus();
}

absl::Status CheckPlacement(const Schedule& schedule) {
  const int workers = static_cast<int>(schedule.workers.size());
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int worker = schedule.worker_of[stage];
    if (worker < 0 || worker >= workers) {
      return Broken("placement", "stage ", stage, " is held by worker ", worker,
                    ", there are ", workers);
    }
  }
  for (int worker = 0; worker < workers; ++worker) {
    for (const Instruction& instruction : schedule.workers[worker]) {
      const int stage = instruction.stage;
      if (stage < 0 || stage >= schedule.stages) {
        return Broken("placement", ToText(instruction), " on worker ", worker,
                      " is of no stage, there are ", schedule.stages);
      }
      if (schedule.worker_of[stage] != worker) {
        return Broken("placement", ToText(instruction), " is on worker ",
                      worker, ", but worker ", schedule.worker_of[stage],
                      " holds stage ", stage);
      }
    }
  }
  return absl::OkStatus();
}

// Whether a stage may have such instructions at all.
bool StageHas(const Schedule& schedule, int stage, Op op) {
  const bool first = stage == 0;
  const bool last = stage == schedule.stages - 1;
  switch (op) {
    case Op::kLoad:
      return first;
    case Op::kRecvF:
      return !first;
    case Op::kForward:
      return true;
    case Op::kSendF:
      return !last;
    case Op::kRecvB:
      return schedule.training && !last;
    case Op::kSendB:
      return schedule.training && !first;
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return schedule.training;
    case Op::kStep:
      return schedule.training && !schedule.asynchronous;
    case Op::kUpdate:
      return schedule.training && schedule.asynchronous;
  }
  return false;
}

// Where every instruction stands in the list of its worker.  Immutable after
// Fill.
class Positions {
 public:
  explicit Positions(const Schedule& schedule)
      : schedule_(schedule),
        at_(std::size(kOps) * schedule.stages * schedule.micro_batches,
            kMissing) {}

  // Errors: InvalidArgument  the rule of pairing.
  absl::Status Fill() {
    for (const InstructionList& list : schedule_.workers) {
      for (size_t i = 0; i < list.size(); ++i) {
        PACELINE_RETURN_IF_ERROR(Add(list[i], static_cast<int>(i)));
      }
    }
    return CheckComplete();
  }

  // kMissing when the stage has no such instruction.
  int Of(const Instruction& instruction) const {
    return at_[Index(instruction)];
  }

 private:
  size_t Index(const Instruction& instruction) const {
    const size_t cell =
        static_cast<size_t>(instruction.stage) * schedule_.micro_batches +
        instruction.micro_batch;
    return cell * std::size(kOps) + static_cast<size_t>(instruction.op);
  }

  int CountOf(Op op) const {
    return op == Op::kStep ? 1 : schedule_.micro_batches;
  }

  absl::Status Add(const Instruction& instruction, int position) {
    if (!StageHas(schedule_, instruction.stage, instruction.op)) {
      return Broken("pairing", ToText(instruction), " has no place in stage ",
                    instruction.stage, " of ", schedule_.stages,
                    schedule_.training ? "" : ", forward only");
    }
    if (instruction.micro_batch < 0 ||
        instruction.micro_batch >= CountOf(instruction.op)) {
      return Broken("pairing", ToText(instruction), " is of micro-batch ",
                    instruction.micro_batch, ", there are ",
                    CountOf(instruction.op));
    }
    int& at = at_[Index(instruction)];
    if (at != kMissing) {
      return Broken("pairing", ToText(instruction), " is there twice");
    }
    at = position;
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (schedule_.training) {
        PACELINE_RETURN_IF_ERROR(CheckBackwards(stage));
      }
      for (const Op op : kOps) {
        if (!StageHas(schedule_, stage, op) || IsBackward(op)) continue;
        for (int i = 0; i < CountOf(op); ++i) {
          const Instruction wanted{stage, op, i};
          if (Of(wanted) == kMissing) return Missing(wanted);
        }
      }
    }
    return absl::OkStatus();
  }

  static bool IsBackward(Op op) {
    return op == Op::kBackward || op == Op::kBackwardInput ||
           op == Op::kBackwardWeight;
  }

  // One whole backward, or two halves.
  absl::Status CheckBackwards(int stage) const {
    for (int i = 0; i < schedule_.micro_batches; ++i) {
      const Instruction whole{stage, Op::kBackward, i};
      const Instruction input{stage, Op::kBackwardInput, i};
      const Instruction weight{stage, Op::kBackwardWeight, i};
      const bool has_input = Of(input) != kMissing;
      const bool has_weight = Of(weight) != kMissing;
      if (Of(whole) != kMissing) {
        if (!has_input && !has_weight) continue;
        return Broken("pairing", ToText(whole), " and ",
                      ToText(has_input ? input : weight), " are both there");
      }
      if (!has_input && !has_weight) return Missing(whole);
      if (!has_input || !has_weight) {
        return Broken("pairing", ToText(has_input ? weight : input),
                      " is missing, ", ToText(has_input ? input : weight),
                      " is alone");
      }
    }
    return absl::OkStatus();
  }

  static absl::Status Missing(const Instruction& wanted) {
    const std::optional<Instruction> partner = PartnerOf(wanted);
    return Broken("pairing", ToText(wanted), " is missing",
                  partner.has_value()
                      ? absl::StrCat(", ", ToText(*partner), " is alone")
                      : "");
  }

  const Schedule& schedule_;  // outlives the positions
  std::vector<int> at_;
};

// Within one stage and micro-batch, `before` precedes `after`.
struct Precedence {
  Op before;
  Op after;
};

constexpr Precedence kPrecedences[] = {
    {Op::kLoad, Op::kForward},
    {Op::kRecvF, Op::kForward},
    {Op::kForward, Op::kSendF},
    {Op::kForward, Op::kBackward},
    {Op::kRecvB, Op::kBackward},
    {Op::kBackward, Op::kSendB},
    {Op::kForward, Op::kBackwardInput},
    {Op::kRecvB, Op::kBackwardInput},
    {Op::kBackwardInput, Op::kSendB},
    {Op::kBackwardInput, Op::kBackwardWeight},
    {Op::kBackward, Op::kUpdate},
    {Op::kBackwardWeight, Op::kUpdate},
};

absl::Status CheckDataOrder(const Schedule& schedule,
                            const Positions& positions) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int i = 0; i < schedule.micro_batches; ++i) {
      for (const auto& [before, after] : kPrecedences) {
        const Instruction first{stage, before, i};
        const Instruction second{stage, after, i};
        // A stage without one of the two has kMissing for it.
        if (positions.Of(second) == kMissing) continue;
        if (positions.Of(first) > positions.Of(second)) {
          return Broken("order", ToText(first), " comes after ",
                        ToText(second));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStepsAreLast(const Schedule& schedule) {
  const auto is_step = [](const Instruction& instruction) {
    return instruction.op == Op::kStep;
  };
  for (const InstructionList& list : schedule.workers) {
    const auto step = std::find_if(list.begin(), list.end(), is_step);
    const auto late = std::find_if_not(step, list.end(), is_step);
    if (late != list.end()) {
      return Broken("order", ToText(*late), " comes after ", ToText(*step),
                    ", which waits for all stages");
    }
  }
  return absl::OkStatus();
}

// The instruction that adds a micro-batch's gradient to the sum.
Instruction Gradient(const Positions& positions, int stage, int micro_batch) {
  const Instruction whole{stage, Op::kBackward, micro_batch};
  if (positions.Of(whole) != kMissing) return whole;
  return {stage, Op::kBackwardWeight, micro_batch};
}

absl::Status CheckAccumulation(const Schedule& schedule,
                               const Positions& positions) {
  if (!schedule.training) return absl::OkStatus();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int i = 1; i < schedule.micro_batches; ++i) {
      const Instruction first = Gradient(positions, stage, i - 1);
      const Instruction second = Gradient(positions, stage, i);
      if (positions.Of(first) > positions.Of(second)) {
        return Broken("accumulation", ToText(first), " comes after ",
                      ToText(second), ", gradients are summed in ascending ",
                      "micro-batch order");
      }
      const Instruction update{stage, Op::kUpdate, i - 1};
      if (positions.Of(update) > positions.Of(second)) {
        return Broken(
            "accumulation", ToText(update), " comes after ", ToText(second),
            ", an update takes the gradient of its micro-batch ", "alone");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDeadlock(const Schedule& schedule) {
  DryRun run(schedule);
  run.RunAllBut(std::nullopt);
  if (run.Finished()) return absl::OkStatus();
  return Broken("deadlock", run.DescribeDeadlock());
}

// A stage's order is fixed, whatever the speeds: counting along its list is
// exact.
void CountKept(const Schedule& schedule, ScheduleBounds& bounds) {
  bounds.kept_micro_batches.assign(schedule.stages, 0);
  bounds.split_micro_batches.assign(schedule.stages, 0);
  if (!schedule.training) return;
  std::vector<int> kept(schedule.stages, 0);
  std::vector<int> split(schedule.stages, 0);
  for (const InstructionList& list : schedule.workers) {
    for (const auto& [stage, op, micro_batch] : list) {
      kept[stage] += op == Op::kForward;
      split[stage] += op == Op::kBackwardInput;
      kept[stage] -= op == Op::kBackward || op == Op::kBackwardWeight;
      split[stage] -= op == Op::kBackwardWeight;
      bounds.kept_micro_batches[stage] =
          std::max(bounds.kept_micro_batches[stage], kept[stage]);
      bounds.split_micro_batches[stage] =
          std::max(bounds.split_micro_batches[stage], split[stage]);
    }
  }
}

}  // namespace

absl::StatusOr<ScheduleBounds> CheckSchedule(const Schedule& schedule) {
  PACELINE_RETURN_IF_ERROR(CheckShape(schedule));
  PACELINE_RETURN_IF_ERROR(CheckPlacement(schedule));
  Positions positions(schedule);
  PACELINE_RETURN_IF_ERROR(positions.Fill());
  PACELINE_RETURN_IF_ERROR(CheckDataOrder(schedule, positions));
  PACELINE_RETURN_IF_ERROR(CheckStepsAreLast(schedule));
  PACELINE_RETURN_IF_ERROR(CheckAccumulation(schedule, positions));
  PACELINE_ASSIGN_OR_RETURN(std::vector<int> versions, KeptVersions(schedule));
  PACELINE_RETURN_IF_ERROR(CheckDeadlock(schedule));

  ScheduleBounds bounds;
  for (int boundary = 0; boundary < schedule.stages - 1; ++boundary) {
    bounds.activation_frames.push_back(
        MostInFlight(schedule, {/*gradient=*/false, boundary}));
    bounds.gradient_frames.push_back(
        MostInFlight(schedule, {/*gradient=*/true, boundary}));
  }
  CountKept(schedule, bounds);
  bounds.kept_versions = std::move(versions);
  return bounds;
}

}  // namespace paceline
