// Which rows of core/round/README.md's tables came up: seen from outside, by
// what a member was before, what came to it, and what it did.
#include <algorithm>
#include <bit>

#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {
namespace {

uint32_t BitOf(const MemberId& member) { return 1u << member.worker.value; }

template <typename T>
const T* FindAction(const RoundActions& actions) {
  for (const RoundAction& action : actions) {
    if (const T* const found = std::get_if<T>(&action)) return found;
  }
  return nullptr;
}

template <typename T>
const T* FindSent(const RoundActions& actions) {
  for (const RoundAction& action : actions) {
    const auto* const send = std::get_if<SendMessage>(&action);
    if (send == nullptr) continue;
    if (const T* const found = std::get_if<T>(&send->message.body)) {
      return found;
    }
  }
  return nullptr;
}

bool IsLeveller(const Process& process) {
  const RoundMember& member = *process.member;
  return member.phase() == RoundMember::Phase::kLevelling &&
         member.view()->leveller == process.id;
}

}  // namespace

World::Before World::LookAt(const Process& process) const {
  const RoundMember& member = *process.member;
  return {member.phase(), member.next(), member.held().has_value(),
          process.levelling, IsLeveller(process)};
}

Serving& World::ServingOf(Process& process, int shard) {
  Serving& serving = process.serving[static_cast<size_t>(shard)];
  const ViewId view = process.member->view()->id;
  const int64_t step = process.member->next();
  if (serving.view != view || serving.step != step) {
    serving = Serving{view, step};
  }
  return serving;
}

void World::Watch(Process& process, const Before& before,
                  const RoundMessage* message, const RoundActions& actions) {
  CheckOwnWay(process, before, message, actions);
  WatchMember(process, before, message, actions);
  WatchServer(process, before, actions);
  WatchLeveller(process, before, message, actions);
}

// --- A member ---------------------------------------------------------------

void World::WatchView(const Process& process, const View& view) {
  const RoundMember& member = *process.member;
  const bool older = member.view().has_value() && view.id <= member.view()->id;
  const MemberEvent event = older ? MemberEvent::kOlderView
                            : Contains(view, process.id)
                                ? MemberEvent::kNewerView
                                : MemberEvent::kNewerViewWithout;
  Hit(Table::kMember, event, member.phase());
}

// Before the member hears of it.
void World::WatchMessage(Process& process, const RoundMessage& message) {
  const RoundMember& member = *process.member;
  Hit(Table::kMessages, message.body.index(), member.phase());
  if (message.attempt != process.attempt) {
    return Hit(Table::kMember, MemberEvent::kOtherAttempt, member.phase());
  }
  if (!member.view().has_value()) return;
  if (message.view < member.view()->id) {
    return Hit(Table::kMember, MemberEvent::kOlderMessage, member.phase());
  }
  if (message.view != member.view()->id) return;
  if (const auto* const offer = std::get_if<PartOffer>(&message.body)) {
    WatchOffer(process, *offer, message.from);
  }
  const auto* const hold = std::get_if<Hold>(&message.body);
  if (hold != nullptr && hold->step == member.next() &&
      member.phase() == RoundMember::Phase::kRunning) {
    ServingOf(process, 0).held_elsewhere = true;
    process.heard[static_cast<size_t>(message.from.worker.value)] = {
        message.from, hold->step,
        hold->state_step == hold->step ? hold->state_hash : 0};
  }
}

void World::WatchMember(Process& process, const Before& before,
                        const RoundMessage* message,
                        const RoundActions& actions) {
  const RoundMember& member = *process.member;
  const auto hit = [&](MemberEvent event) {
    Hit(Table::kMember, event, before.phase);
  };
  if (before.phase == RoundMember::Phase::kLevelling &&
      member.phase() == RoundMember::Phase::kRunning) {
    hit(MemberEvent::kLevelDone);
  }
  if (!before.held && member.held().has_value()) {
    const bool known = member.state_steps() == member.next();
    process.heard[static_cast<size_t>(process.id.worker.value)] = {
        process.id, member.next(), known ? member.state_hash() : 0};
  }
  if (before.phase == RoundMember::Phase::kRunning && !before.held &&
      (member.held().has_value() || FindSent<Hold>(actions) != nullptr)) {
    hit(MemberEvent::kHolds);
  }
  if (FindAction<TakeState>(actions) != nullptr) hit(MemberEvent::kState);
  if (FindSent<Committed>(actions) != nullptr) hit(MemberEvent::kSendsPast);
  if (FindSent<TooOld>(actions) != nullptr) hit(MemberEvent::kTooOld);
  if (FindAction<OfferState>(actions) != nullptr)
    hit(MemberEvent::kOffersState);
  if (FindSent<Fetched>(actions) != nullptr) hit(MemberEvent::kFetched);
  if (FindAction<Suspect>(actions) != nullptr) hit(MemberEvent::kSuspects);
  if (message == nullptr) return;
  if (std::holds_alternative<TooOld>(message->body) &&
      FindSent<StateRequest>(actions) != nullptr) {
    hit(MemberEvent::kAsksForState);
  }
  const bool applies = FindAction<Apply>(actions) != nullptr;
  if (std::holds_alternative<Level>(message->body)) {
    if (applies) {
      hit(MemberEvent::kLevelApplies);
    } else if (const Hold* const hold = FindSent<Hold>(actions)) {
      hit(hold->step < before.next ? MemberEvent::kLevelHasIt
                                   : MemberEvent::kLevelHolds);
    }
    return;
  }
  if (!applies) return;
  if (std::holds_alternative<Committed>(message->body)) {
    hit(MemberEvent::kCommitted);
  } else if (std::holds_alternative<Commit>(message->body)) {
    hit(MemberEvent::kCommit);
  } else if (FindSent<Commit>(actions) == nullptr &&
             before.phase == RoundMember::Phase::kRunning) {
    hit(MemberEvent::kProof);
  }
}

// --- A shard's server -------------------------------------------------------

void World::WatchOffer(Process& process, const PartOffer& offer,
                       const MemberId& from) {
  const RoundMember& member = *process.member;
  const std::vector<MemberId> members = MembersAt(*member.view(), offer.step);
  if (member.phase() != RoundMember::Phase::kRunning ||
      offer.step != member.next() ||
      std::find(members.begin(), members.end(), from) == members.end() ||
      ServerOf(*member.view(), round_.mode, offer.step, offer.shard) !=
          process.id) {
    return;
  }
  Serving& serving = ServingOf(process, offer.shard);
  const bool again = (serving.spoken & BitOf(from)) != 0;
  serving.spoken |= BitOf(from);
  Hit(Table::kServer, serving.state,
      again                                 ? ServerEvent::kOnceMore
      : serving.state == ServerState::kOpen ? ServerEvent::kFirstPart
                                            : ServerEvent::kLate);
}

// An event may end the round: then the server is a step further by now.
void World::WatchServer(Process& process, const Before& before,
                        const RoundActions& actions) {
  const RoundMember& member = *process.member;
  if (!member.view().has_value()) return;
  const auto serving_of = [&](int shard) -> Serving& {
    Serving& serving = process.serving[static_cast<size_t>(shard)];
    if (serving.view != member.view()->id || serving.step != before.next) {
      serving = Serving{member.view()->id, before.next};
    }
    return serving;
  };
  for (const RoundAction& action : actions) {
    if (const auto* const sum = std::get_if<struct Aggregate>(&action)) {
      WatchClosing(process, *sum);
    } else if (std::holds_alternative<ReportMismatch>(action)) {
      Hit(Table::kServer, serving_of(0).state, ServerEvent::kStatesDiffer);
    } else if (const auto* const send = std::get_if<SendMessage>(&action)) {
      const auto* const spread = std::get_if<Spread>(&send->message.body);
      if (spread == nullptr || spread->step != before.next) continue;
      Serving& serving = serving_of(spread->result.shard);
      const bool is_void = spread->result.is_void;
      if (serving.state == ServerState::kOpen) {
        Hit(Table::kServer, serving.state, ServerEvent::kTooFewUsable);
      } else if (serving.state == ServerState::kClosed) {
        Hit(Table::kServer, serving.state,
            is_void ? ServerEvent::kNoSum : ServerEvent::kSum);
      } else {
        continue;  // once more
      }
      serving.state = is_void ? ServerState::kVoid : ServerState::kSpread;
    }
  }
  const Commit* const commit = FindSent<Commit>(actions);
  if (commit == nullptr || commit->step != before.next ||
      FindAction<Apply>(actions) == nullptr) {
    return;
  }
  Hit(Table::kServer, serving_of(0).state, ServerEvent::kAllHold);
  CheckStates(process, before.next);
}

void World::WatchClosing(Process& process, const struct Aggregate& sum) {
  const RoundMember& member = *process.member;
  Serving& serving = ServingOf(process, sum.shard);
  const int others = std::popcount(serving.spoken & ~BitOf(process.id));
  const int spoken = others + (member.needs_part() ? 0 : 1);
  const size_t members = MembersAt(*member.view(), sum.step).size();
  Hit(Table::kServer, serving.state,
      static_cast<size_t>(spoken) >= members ? ServerEvent::kAllSpoken
                                             : ServerEvent::kDeadline);
  serving.state = ServerState::kClosed;
}

// --- A leveller -------------------------------------------------------------

void World::WatchLeveller(Process& process, const Before& before,
                          const RoundMessage* message,
                          const RoundActions& actions) {
  const auto hit = [&](LevellerEvent event) {
    Hit(Table::kLeveller, before.levelling, event);
  };
  const bool new_view = message == nullptr && process.member->view() &&
                        process.member->view()->id != process.seen_view;
  if (new_view) {
    process.seen_view = process.member->view()->id;
    process.levelling = LevellerState::kAsking;
    process.answered.clear();
    if (before.levels) hit(LevellerEvent::kFurtherView);
  }
  const bool levels = IsLeveller(process);
  if (levels && FindSent<Level>(actions) != nullptr) {
    process.levelling = LevellerState::kSpreading;
  } else if (levels && FindSent<Fetch>(actions) != nullptr) {
    process.levelling = LevellerState::kFetching;
  }
  if (new_view || !before.levels || message == nullptr) return;
  const bool moved = !levels || process.levelling != before.levelling;
  const auto& body = message->body;
  if (before.levelling == LevellerState::kFetching && !levels &&
      !std::holds_alternative<Fetched>(body)) {
    return hit(LevellerEvent::kAppliedMeanwhile);
  }
  if (message->attempt != process.attempt ||
      message->view != process.member->view()->id) {
    return;
  }
  if (const auto* const answer = std::get_if<Answer>(&body)) {
    WatchAnswer(process, before, message->from, *answer);
  } else if (std::holds_alternative<Fetched>(body)) {
    if (moved) hit(LevellerEvent::kBytes);
  } else if (std::holds_alternative<Hold>(body) &&
             before.levelling == LevellerState::kSpreading) {
    hit(moved ? LevellerEvent::kLastHold : LevellerEvent::kHold);
  }
}

void World::WatchAnswer(Process& process, const Before& before,
                        const MemberId& from, const Answer& answer) {
  const auto hit = [&](LevellerEvent event) {
    Hit(Table::kLeveller, before.levelling, event);
  };
  if (before.levelling != LevellerState::kAsking) {
    if (before.levelling == LevellerState::kSpreading) {
      hit(LevellerEvent::kAnswer);
    }
    return;
  }
  const auto [first, is_first] = process.answered.emplace(from, answer.next);
  if (process.member->is_joiner()) return hit(LevellerEvent::kOfAJoiner);
  if (!is_first && first->second < answer.next) {
    first->second = answer.next;
    hit(LevellerEvent::kMoreApplied);
  }
  if (!IsLeveller(process)) return hit(LevellerEvent::kLastDone);
  hit(process.levelling == LevellerState::kSpreading
          ? LevellerEvent::kLastSpreads
      : process.levelling == LevellerState::kFetching
          ? LevellerEvent::kLastFetches
          : LevellerEvent::kAnswer);
}

}  // namespace paceline::round_world
