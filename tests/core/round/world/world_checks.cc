// Invariants that are checked after every event.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {

const OwnPart* World::FindOwn(const MemberId& member, int64_t attempt,
                              int64_t step) {
  const Process* const process = Find(member);
  if (process == nullptr) return nullptr;
  const auto found = std::find_if(
      process->own.rbegin(), process->own.rend(), [&](const OwnPart& part) {
        return part.attempt == attempt && part.step == step;
      });
  return found == process->own.rend() ? nullptr : &*found;
}

uint64_t World::Oracle(const RoundResult& result, const ShardResult& shard,
                       int64_t attempt) {
  uint64_t hash = MixSeed({2, static_cast<uint64_t>(result.step)});
  std::vector<Contributor> by_id = shard.contributors;
  std::sort(by_id.begin(), by_id.end(),
            [](const Contributor& a, const Contributor& b) {
              return a.member < b.member;
            });
  int64_t divisor = 0;
  for (const Contributor& each : by_id) {
    const OwnPart& own = *FindOwn(each.member, attempt, result.step);
    hash = MixSeed({hash, PartHash(own, shard.shard)});
    divisor += SamplesOf(own.micro_batches, result.step);
  }
  return MixSeed({hash, static_cast<uint64_t>(divisor)});
}

// A shard of a result that nobody applied before.
void World::CheckShard(const Process& process, const RoundResult& result,
                       const ShardResult& shard) {
  std::vector<MemberId> seen;
  uint32_t counted = 0;
  for (const Contributor& each : shard.contributors) {
    const OwnPart* const own =
        FindOwn(each.member, process.attempt, result.step);
    if (own == nullptr) {
      return Fail("step ", result.step, " has a part of ", each.member,
                  ", which never computed one");
    }
    if ((counted & own->micro_batches) != 0) {
      Fail("step ", result.step, " counts a micro-batch of the part of ",
           each.member, " twice");
    }
    counted |= own->micro_batches;
    if (std::find(seen.begin(), seen.end(), each.member) != seen.end()) {
      Fail("step ", result.step, " counts the part of ", each.member, " twice");
    }
    seen.push_back(each.member);
  }
  if (static_cast<int>(seen.size()) < round_.min_parts) {
    Fail("step ", result.step, " has too few parts: ", seen.size(), " of ",
         round_.min_parts);
  }
  if (shard.hash != Oracle(result, shard, process.attempt)) {
    Fail("the result of step ", result.step, " is not the sum of its parts");
  }
}

void World::CheckApply(Process& process, const RoundResult& result,
                       bool is_first) {
  const std::pair<int64_t, int64_t> id = {process.attempt, result.step};
  if (id <= process.last_applied) {
    Fail(process, " applies step ", result.step, " of attempt ",
         process.attempt, " after step ", process.last_applied.second,
         " of attempt ", process.last_applied.first);
  }
  process.last_applied = id;
  // Another process's result has the same hash, so the same parts.
  if (is_first) ++(result.is_void() ? voids_ : rounds_);
  if (is_first && !result.is_void()) {
    for (const ShardResult& shard : result.shards) {
      CheckShard(process, result, shard);
    }
  }
  const auto [state, is_new] = states_.emplace(
      std::pair(process.attempt, result.step + 1), process.truth);
  if (!is_new && state->second != process.truth) {
    Fail(process, " has another state after step ", result.step,
         " than somebody before");
  }
}

// "The group's rounds stop": nothing is committed over states of which the
// server has been told that they differ.
void World::CheckStates(const Process& server, int64_t step) {
  uint64_t first = 0;
  for (const MemberId& id : MembersAt(*server.member->view(), step)) {
    const HeardHold& hold = server.heard[static_cast<size_t>(id.worker.value)];
    if (hold.from != id || hold.step != step || hold.state_hash == 0) continue;
    if (first != 0 && first != hold.state_hash) {
      Fail(server, " commits step ", step, " though the state of ", id,
           " is not that of the others");
    }
    first = hold.state_hash;
  }
}

// "A member without a view makes no progress of its own": only what others say
// is final.
void World::CheckOwnWay(const Process& process, const Before& before,
                        const RoundMessage* message,
                        const RoundActions& actions) {
  if (before.phase != RoundMember::Phase::kListening) return;
  if (message != nullptr && std::holds_alternative<Committed>(message->body)) {
    return;
  }
  for (const RoundAction& action : actions) {
    if (std::holds_alternative<Apply>(action)) {
      Fail(process, " goes on without a view");
    }
  }
}

std::string World::WhyNotDone() const {
  if (!calm()) return "faults are not over";
  if (!coordinator_.alive()) return "the coordinator is down";
  const std::optional<View>& view = keeper_->view();
  if (!view.has_value() || keeper_->lost()) return "there is no group";
  int64_t least = INT64_MAX;
  const Process* other = nullptr;
  for (const Process& process : processes_) {
    if (!process.alive()) continue;
    const RoundMember& member = *process.member;
    if (process.attempt != attempt_ || !Contains(*view, process.id)) {
      return world::TextOf(process, " is no member");
    }
    if (member.phase() != RoundMember::Phase::kRunning) {
      return world::TextOf(process, " is not level");
    }
    // Equal steps have equal results, and so equal states without this.
    if (other != nullptr && process.taint != other->taint) {
      return world::TextOf(process, " has another state than ", *other);
    }
    other = &process;
    least = std::min(least, member.next());
  }
  const int64_t steps = calm_rounds_from_ + 3;
  if (least < steps) return absl::StrCat("step ", least, " of ", steps);
  if (rounds_ >= kLeastRounds) return "";
  return absl::StrCat(rounds_, " of ", kLeastRounds, " rounds");
}

const std::vector<world::Count<WorldResult>>& WorldResult::Counts() {
  using R = WorldResult;
  static const auto* const counts = new std::vector<world::Count<R>>{
      {"members", &R::members},   {"rounds", &R::rounds, kLeastRounds},
      {"void rounds", &R::voids}, {"faults", &R::faults, kLeastFaults},
      {"views", &R::views},       {"attempts", &R::attempts},
      {"events", &R::events}};
  return *counts;
}

WorldResult World::Result() const {
  WorldResult result;
  result.violation = violation();
  result.events = events();
  result.rounds = rounds_;
  result.voids = voids_;
  result.views = seen_views_;
  result.attempts = attempt_;
  result.faults = faults();
  result.members = members_;
  return result;
}

}  // namespace paceline::round_world
