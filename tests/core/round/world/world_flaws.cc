// Flaws on purpose (flaw.h).  The core has none of them: what it hears is
// changed on its way, or it hears messages that nobody has sent.
#include <algorithm>

#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {
namespace {

class FlawedMember final : public RoundMember {
 public:
  FlawedMember(RoundFlaw flaw, const RoundOptions& options,
               const MemberId& self, int64_t next, uint64_t state)
      : RoundMember(options, self, next, state), flaw_(flaw) {}

 private:
  bool IsNews(const View& view) const override {
    if (flaw_ != RoundFlaw::kAdoptOlderView) return RoundMember::IsNews(view);
    return !this->view().has_value() || view.id != this->view()->id;
  }
  Answer OwnAnswer() const override {
    Answer answer = RoundMember::OwnAnswer();
    if (flaw_ == RoundFlaw::kIgnoreHeldWhenLevelling) answer.held.reset();
    return answer;
  }

  const RoundFlaw flaw_;
};

}  // namespace

std::unique_ptr<RoundMember> World::MakeMember(const Process& process,
                                               int64_t step, uint64_t state) {
  return std::make_unique<FlawedMember>(options_.flaw, OptionsNow(), process.id,
                                        step, state);
}

// Gives the core a message as a flawed core would understand it.
void World::Hear(Process& process, RoundMessage message,
                 RoundActions& actions) {
  RoundMember& member = *process.member;
  const std::optional<View>& view = member.view();
  if (options_.flaw == RoundFlaw::kIgnoreAttempt) {
    message.attempt = process.attempt;
  }
  if (auto* const hold = std::get_if<Hold>(&message.body)) {
    if (options_.flaw == RoundFlaw::kCommitOverUnequalStates) {
      hold->state_hash = 0;
    }
  } else if (auto* const offer = std::get_if<PartOffer>(&message.body)) {
    if (options_.flaw == RoundFlaw::kMixDivisions) offer->division = 0;
  } else if (std::holds_alternative<LevelDone>(message.body)) {
    if (options_.flaw == RoundFlaw::kJoinerServesBehind &&
        !member.held().has_value()) {
      message.committed_through =
          std::min(message.committed_through, member.next());
    }
  } else if (const auto* const spread = std::get_if<Spread>(&message.body)) {
    if (options_.flaw == RoundFlaw::kAnswerWithoutAdopting &&
        view.has_value() && message.view < view->id &&
        message.attempt == process.attempt && spread->step == member.next() &&
        round_.shards == 1) {
      const RoundResult result{spread->step, message.view, {spread->result}};
      RoundMessage answer =
          MessageOf(process, Hold{spread->step, result.hash(), 0, 0});
      answer.view = message.view;
      actions.push_back(SendMessage{message.from, std::move(answer)});
    }
  }
  member.OnMessage(message, Now(), actions);
}

RoundMessage World::MessageOf(const Process& process, Body body) const {
  const RoundMember& member = *process.member;
  RoundMessage message;
  message.attempt = process.attempt;
  if (member.view().has_value()) message.view = member.view()->id;
  message.from = process.id;
  message.committed_through = member.next();
  message.committed_hash = member.last_hash();
  message.body = std::move(body);
  return message;
}

// The same word of all of `members` but `process` itself, as from each.
void World::Forge(Process& process, const std::vector<MemberId>& members,
                  const Body& body, RoundActions& actions) {
  RoundMessage message = MessageOf(process, body);
  message.committed_through = 0;
  message.committed_hash = 0;
  for (const MemberId& member : members) {
    if (member == process.id) continue;
    message.from = member;
    process.member->OnMessage(message, Now(), actions);
  }
}

// Gives a server or a leveller the words that a flawed one would not wait for.
// message: what it has just heard; may be null.
void World::AddForged(Process& process, const RoundMessage* message,
                      RoundActions& actions) {
  const RoundMember& member = *process.member;
  if (!member.view().has_value()) return;
  const View view = *member.view();
  Forgery& known = process.forgery;
  if (known.view != view.id) known = Forgery();
  known.view = view.id;
  const bool counts = message != nullptr && message->view == view.id &&
                      message->attempt == process.attempt;
  const auto* answer = counts ? std::get_if<Answer>(&message->body) : nullptr;
  const auto* hold = counts ? std::get_if<Hold>(&message->body) : nullptr;
  if (answer != nullptr) known.answers.insert(message->from);
  if (hold != nullptr) {
    if (known.hash != hold->hash) known.holds.clear();
    known.hash = hold->hash;
    known.holds.insert(message->from);
  }
  const auto is_most = [](size_t count, size_t all) { return count > all / 2; };
  if (options_.flaw == RoundFlaw::kLevelWithoutAll) {
    if (member.phase() != RoundMember::Phase::kLevelling ||
        view.leveller != process.id) {
      return;
    }
    std::vector<MemberId> all;
    for (const ViewMember& each : view.members) all.push_back(each.id);
    if (answer != nullptr && is_most(known.answers.size() + 1, all.size())) {
      std::erase_if(all, [&known](const MemberId& id) {
        return known.answers.count(id) > 0;
      });
      return Forge(process, all, Answer{}, actions);
    }
    if (hold == nullptr) return;
    const std::vector<MemberId> counted = MembersAt(view, hold->step);
    if (is_most(known.holds.size() + 1, counted.size())) {
      Forge(process, counted, Hold{hold->step, hold->hash, 0, 0}, actions);
    }
    return;
  }
  if (options_.flaw != RoundFlaw::kCommitWithoutHolds &&
      options_.flaw != RoundFlaw::kCommitWithMostHolds) {
    return;
  }
  const std::vector<MemberId> members = MembersAt(view, member.next());
  if (member.phase() != RoundMember::Phase::kRunning || members.empty() ||
      !member.held().has_value() || member.held()->step != member.next() ||
      ServerOf(view, round_.mode, member.next(), 0) != process.id) {
    return;
  }
  const uint64_t hash = member.held()->hash();
  const size_t holding = 1 + (known.hash == hash ? known.holds.size() : 0);
  if (options_.flaw == RoundFlaw::kCommitWithoutHolds ||
      is_most(holding, members.size())) {
    Forge(process, members, Hold{member.next(), hash, 0, 0}, actions);
  }
}

// The contributors in the order in which a flawed server would sum them, with
// those that it would add.
std::vector<Contributor> World::Summed(Process& process,
                                       const struct Aggregate& request) {
  std::vector<Contributor> summed = request.contributors;
  const auto kept = [&](const MemberId& member) -> const KeptPart& {
    return KeptOf(process, request.shard, member.worker);
  };
  if (options_.flaw == RoundFlaw::kSumInOrderOfArrival) {
    std::stable_sort(summed.begin(), summed.end(),
                     [&](const Contributor& a, const Contributor& b) {
                       return kept(a.member).arrival < kept(b.member).arrival;
                     });
  }
  const std::optional<View>& view = process.member->view();
  if (options_.flaw == RoundFlaw::kAddLatePartAfterClosing &&
      view.has_value()) {
    for (const MemberId& member : MembersAt(*view, request.step)) {
      const bool named = std::any_of(
          summed.begin(), summed.end(),
          [&](const Contributor& each) { return each.member == member; });
      if (named || kept(member).from != member ||
          kept(member).step != request.step) {
        continue;
      }
      summed.push_back({member, 1});
    }
  }
  return summed;
}

}  // namespace paceline::round_world
