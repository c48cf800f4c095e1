#include "core/round/message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"

namespace paceline {
namespace {

uint64_t Word(int64_t value) { return static_cast<uint64_t>(value); }

// By ParameterAnswer::Verdict.
constexpr const char* kVerdicts[] = {
    "answered",
    "taken",
    "refused: not finite",
    "refused: other bytes than their hash says",
    "refused: another partner",
    "refused: the step is past",
    "not kept: the step is far ahead"};

struct Text {
  std::string operator()(const PartOffer& m) const {
    return absl::StrCat(m.samples > 0 ? "part" : "no part", " of step ", m.step,
                        ", shard ", m.shard);
  }
  std::string operator()(const Want& m) const {
    return absl::StrCat("want of step ", m.step, ", shard ", m.shard);
  }
  std::string operator()(const Spread& m) const {
    return absl::StrCat(m.result.is_void ? "void" : "result", " of step ",
                        m.step, ", shard ", m.result.shard, ", parts of ",
                        m.result.contributors.size());
  }
  std::string operator()(const Hold& m) const {
    return absl::StrCat("hold of step ", m.step);
  }
  std::string operator()(const Commit& m) const {
    return absl::StrCat("commit of step ", m.step);
  }
  std::string operator()(const Committed& m) const {
    return absl::StrCat("committed result of step ", m.result.step);
  }
  std::string operator()(const TooOld& m) const {
    return absl::StrCat("step ", m.step, " is too old");
  }
  std::string operator()(const Answer& m) const {
    return absl::StrCat("answer: applied ", m.next,
                        m.held.has_value()
                            ? absl::StrCat(", holds step ", m.held->step,
                                           " of view ", ViewText(m.held->view))
                            : "");
  }
  std::string operator()(const Fetch& m) const {
    return absl::StrCat("fetch of held step ", m.step);
  }
  std::string operator()(const Fetched& m) const {
    return absl::StrCat("fetched step ", m.result.step);
  }
  std::string operator()(const Level& m) const {
    return absl::StrCat("level at step ", m.result.step);
  }
  std::string operator()(const LevelDone&) const { return "level"; }
  std::string operator()(const StateRequest&) const { return "state wanted"; }
  std::string operator()(const StateOffer& m) const {
    return absl::StrCat("state after ", m.next, " steps");
  }
  std::string operator()(const ParameterOffer& m) const {
    return absl::StrCat("parameters of step ", m.step);
  }
  std::string operator()(const ParameterAnswer& m) const {
    return absl::StrCat("parameters of step ", m.step, " ",
                        kVerdicts[static_cast<size_t>(m.verdict)]);
  }
};

}  // namespace

bool RoundResult::is_void() const {
  // One void shard makes the round void.
  return std::ranges::any_of(shards, &ShardResult::is_void);
}

uint64_t RoundResult::hash() const {
  uint64_t hash = MixSeed({Word(step), is_void() ? 1u : 0u});
  if (is_void()) return hash;
  for (const ShardResult& shard : shards) {
    hash = MixSeed({hash, Word(shard.shard), shard.hash, Word(shard.divisor)});
    for (const Contributor& each : shard.contributors) {
      hash = MixSeed({hash, Word(each.member.worker.value),
                      each.member.incarnation.value, Word(each.samples)});
    }
  }
  return hash;
}

std::string MessageText(const RoundMessage& message) {
  return std::visit(Text(), message.body);
}

}  // namespace paceline
