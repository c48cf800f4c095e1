// Gradients, and sums of them: numbers that stand for bytes.
#include <utility>

#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {

int64_t SamplesOf(uint32_t micro_batches, int64_t step) {
  int64_t samples = 0;
  for (int i = 0; i < kMicroBatches; ++i) {
    if ((micro_batches >> i & 1) != 0) samples += 1 + (i * 7 + step) % 5;
  }
  return samples;
}

uint64_t PartHash(const OwnPart& part, int shard) {
  return MixSeed(
      {1, static_cast<uint64_t>(part.attempt), static_cast<uint64_t>(part.step),
       static_cast<uint64_t>(shard), part.state, part.lie, part.micro_batches});
}

// One division gives every member the same share each time it is asked for.
uint32_t World::MicroBatches(const View& view, int64_t step,
                             const Process& process) {
  const auto [found, is_new] = divided_.try_emplace(
      std::pair(DivisionOf(view, step), process.incarnation()), 0);
  if (is_new) {
    for (const int each :
         MicroBatchesOf(view, step, process.id, kMicroBatches)) {
      found->second |= 1u << each;
    }
  }
  return found->second;
}

void World::StartComputing(Process& process) {
  if (!process.alive() || !process.member->needs_part()) return;
  const int64_t step = process.member->next();
  if (process.computing_step == step) return;
  process.computing_step = step;
  const StepFaults faults = process.plan.At(step);
  if (FindOwn(process.id, process.attempt, step) == nullptr) {
    const View& view = *process.member->view();
    OwnPart own{process.attempt, step, DivisionOf(view, step),
                MicroBatches(view, step, process), StateOf(process)};
    if (faults.spoils_gradient() || faults.label_flip) {
      own.lie = MixSeed(
          {4, process.id.incarnation.value, static_cast<uint64_t>(step)});
    }
    process.own.push_back(own);
  }
  const int64_t takes_us =
      Between(kPace.shortest_part_us,
              Chance(0.15) ? kPace.straggler_us : kPace.longest_part_us) +
      faults.delay / absl::Microseconds(1);
  AfterOn(process, takes_us, [this, &process, attempt = process.attempt, step] {
    OnComputed(process, attempt, step);
  });
}

void World::OnComputed(Process& process, int64_t attempt, int64_t step) {
  if (attempt != process.attempt || step != process.computing_step ||
      step != process.member->next()) {
    if (options_.flaw == RoundFlaw::kLatePartJoinsNextRound) {
      process.late_part = MixSeed({7, static_cast<uint64_t>(step)});
    }
    return StartComputing(process);
  }
  process.computing_step = -1;
  OfferParts(process, *FindOwn(process.id, process.attempt, step));
}

void World::OfferParts(Process& process, const OwnPart& own) {
  const StepFaults faults = process.plan.At(own.step);
  process.corrupts = faults.bit_flip;
  process.not_finite = faults.nan;
  process.repeats = faults.duplicate;
  // Now and then a gradient is not finite, or nothing was to be computed.
  const bool unlucky = Chance(0.03);
  const bool usable = !unlucky && own.micro_batches != 0;
  const std::optional<View>& view = process.member->view();
  const bool has_server =
      view.has_value() && !MembersAt(*view, own.step).empty();
  std::vector<PartOffer> part;
  for (int shard = 0; shard < round_.shards; ++shard) {
    uint64_t hash = PartHash(own, shard);
    if (options_.flaw == RoundFlaw::kKeepPartsOverAttempts) {
      hash = process.cached_parts
                 .emplace(static_cast<int>(own.step) * 16 + shard, hash)
                 .first->second;
    }
    if (process.late_part.has_value()) {
      hash = MixSeed({hash, *process.late_part});
    }
    // This border refuses what the others do.
    const bool refused =
        (process.corrupts || process.not_finite) && has_server &&
        ServerOf(*view, round_.mode, own.step, shard) == process.id;
    part.push_back(
        {own.step, shard,
         usable && !refused ? SamplesOf(own.micro_batches, own.step) : 0, hash,
         options_.flaw == RoundFlaw::kMixDivisions ? 0 : own.division});
    KeptOf(process, shard, process.id.worker) = {process.id, own.step, hash,
                                                 ++parts_kept_};
  }
  process.late_part.reset();
  Hit(Table::kMember, MemberEvent::kOwnPart, process.member->phase());
  Call(process, &RoundMember::OnPart, part);
}

// Sums the bytes that it was sent, in the order it was told.
void World::Sum(Process& process, const struct Aggregate& request) {
  uint64_t hash = MixSeed({2, static_cast<uint64_t>(request.step)});
  int64_t divisor = 0;
  for (const Contributor& each : Summed(process, request)) {
    const KeptPart& kept = KeptOf(process, request.shard, each.member.worker);
    if (kept.from != each.member || kept.step != request.step) {
      if (request.step < process.member->next()) return;  // nobody wants it
      return Fail(process, " sums a part of ", each.member,
                  " that it does not have");
    }
    hash = MixSeed({hash, kept.hash});
    divisor += options_.flaw == RoundFlaw::kDivisorIsMembers ? 1 : each.samples;
  }
  hash = MixSeed({hash, static_cast<uint64_t>(divisor)});
  if (options_.flaw == RoundFlaw::kShardsMoveWithView) {
    hash = MixSeed({hash, static_cast<uint64_t>(request.view.counter)});
  }
  // Now and then the rule can make nothing of the parts.
  if (Chance(0.01)) hash = divisor = 0;
  Call(process, &RoundMember::OnAggregated, request, hash, divisor);
}

// The adapter keeps the bytes beside the offer, the first of each, and refuses
// what is not what it says.
void World::KeepPart(Process& process, RoundMessage& message,
                     uint64_t payload) {
  auto& offer = std::get<PartOffer>(message.body);
  const std::optional<View>& view = process.member->view();
  if (message.attempt != process.attempt || !view.has_value() ||
      message.view != view->id) {
    return;
  }
  if (offer.samples > 0 && payload != offer.hash) {
    offer.samples = 0;
    return;
  }
  KeptPart& kept = KeptOf(process, offer.shard, message.from.worker);
  if (kept.from != message.from || kept.step < offer.step) {
    kept = {message.from, offer.step, payload, ++parts_kept_};
  }
}

}  // namespace paceline::round_world
