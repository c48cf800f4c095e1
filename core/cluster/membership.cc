#include "core/cluster/membership.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"

namespace paceline {
namespace {

// A process older than that many restarts of its name is long gone.
constexpr size_t kReplacedKept = 32;
constexpr size_t kMostClaims = 1000;
// A worker has so many leases to make room for another machine that asks for
// its name: a person may be exchanging them.
constexpr int kLeasesToGo = 3;

std::string Seconds(absl::Duration duration) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
}

// One machine has one address, or dials from one; after it got another one, its
// old stream is silent.
bool IsElsewhere(const v1::Registration& a, const v1::Registration& b) {
  const auto host = [](const v1::Registration& of) {
    const absl::StatusOr<HostPort> address = ParseHostPort(of.address());
    return address.ok() ? address->host : of.address();
  };
  return a.machine_id() != b.machine_id() || host(a) != host(b);
}

std::string HeldText(const v1::Registration& wants,
                     const v1::Registration& has) {
  return absl::StrCat(
      "the name ", wants.name(), " is held by a live worker at ", has.address(),
      ", on another machine than this one at ", wants.address(),
      wants.machine_id() != has.machine_id()
          ? ": give this one another --name"
          : ", with the same machine id, as two boards from one card image "
            "have: give this one another host name or --name, and a machine id "
            "of its own (sudo rm /etc/machine-id, sudo "
            "systemd-machine-id-setup)");
}

}  // namespace

absl::string_view MemberStateName(MemberState state) {
  constexpr absl::string_view kNames[] = {"live", "suspect", "lost", "stopped"};
  return kNames[static_cast<int>(state)];
}

bool IsGone(MemberState state) {
  return state == MemberState::kLost || state == MemberState::kStopped;
}

void Membership::Restore(WorkerId id, const v1::Registration& registration) {
  Member member;
  member.id = id;
  member.registration = registration;
  member.why = "has not attached since the coordinator started";
  member.last_heard = start_;
  member.gone_since = start_;
  members_.emplace(id, std::move(member));
  last_id_ = std::max(last_id_, id);
}

absl::StatusOr<AttachVerdict> Membership::OnAttach(
    const v1::Registration& registration, StreamId stream, Instant now) {
  AttachVerdict verdict;
  Member* member = FindByName(registration.name());
  if (member == nullptr) {
    verdict.id = last_id_ = WorkerId{last_id_.value + 1};
    member = &members_[verdict.id];
    member->id = verdict.id;
  } else {
    const v1::Registration& old = member->registration;
    verdict.id = member->id;
    verdict.arrival = old.incarnation() == registration.incarnation()
                          ? Arrival::kReattached
                          : Arrival::kRestarted;
    if (!IsGone(member->state) && verdict.arrival == Arrival::kRestarted &&
        IsElsewhere(registration, old)) {
      const auto [claim, is_new] = claims_.try_emplace(
          {verdict.id, Incarnation{registration.incarnation()}}, now);
      const std::string why = HeldText(registration, old);
      if (member->last_heard - claim->second >= kLeasesToGo * policy_.lease) {
        return Aborted(why);
      }
      if (claims_.size() > kMostClaims) claims_.clear();
      return AlreadyExists(why);
    }
    std::deque<Incarnation>& replaced = replaced_[member->id];
    if (absl::c_linear_search(replaced,
                              Incarnation{registration.incarnation()})) {
      return Aborted("a newer process of worker ", registration.name(),
                     " has attached (pid ", old.pid(), " at ", old.address(),
                     "): two workers of one machine need a --name each");
    }
    if (verdict.arrival == Arrival::kRestarted) {
      replaced.push_back(Incarnation{old.incarnation()});
      if (replaced.size() > kReplacedKept) replaced.pop_front();
    }
    verdict.replaced = member->stream;
  }
  if (verdict.arrival != Arrival::kReattached) {
    // Neither its own word nor that of others is about this process.
    broken_links_.erase(verdict.id);
    for (auto& [witness, broken] : broken_links_) broken.erase(verdict.id);
  }
  member->registration = registration;
  member->state = MemberState::kLive;
  member->why.clear();
  by_stream_.erase(member->stream);
  by_stream_[stream] = verdict.id;
  member->stream = stream;
  member->seen = true;
  member->restarting = false;
  member->last_heard = now;
  return verdict;
}

std::optional<MembershipChange> Membership::OnStreamBroken(StreamId stream,
                                                           Instant now) {
  Member* const member = FindByStream(stream);
  if (member == nullptr) return std::nullopt;
  by_stream_.erase(stream);
  member->stream = StreamId{};
  if (IsGone(member->state)) return std::nullopt;
  member->state = MemberState::kSuspect;
  member->why =
      member->restarting ? "it executes itself anew" : "its stream broke";
  member->gone_since = now;
  Judge(*member, now);
  if (member->state != MemberState::kLost) return std::nullopt;
  return MembershipChange{member->id, member->state};
}

std::vector<MembershipChange> Membership::OnLinks(
    WorkerId witness, std::map<WorkerId, std::string> broken, Instant now) {
  std::vector<MembershipChange> changes;
  broken_links_[witness] = std::move(broken);
  for (const auto& [id, how] : broken_links_[witness]) {
    const auto found = members_.find(id);
    if (found == members_.end() || found->second.stream.assigned()) continue;
    const MemberState before = found->second.state;
    Judge(found->second, now);
    if (found->second.state != before) {
      changes.push_back({id, found->second.state});
    }
  }
  return changes;
}

std::string Membership::Testimony(const Member& member) const {
  for (const auto& [witness, broken] : broken_links_) {
    const auto found = broken.find(member.id);
    const Member* const who = Find(witness);
    if (found == broken.end() || who == nullptr || witness == member.id ||
        who->state != MemberState::kLive) {
      continue;
    }
    return absl::StrCat("worker ", who->registration.name(), " says that ",
                        found->second);
  }
  return "";
}

const Member* Membership::OnHeard(StreamId stream, Instant now) {
  Member* const member = FindByStream(stream);
  if (member == nullptr || member->state == MemberState::kLost) return nullptr;
  member->last_heard = now;
  if (member->state == MemberState::kStopped) return member;
  member->state = MemberState::kLive;
  member->why.clear();
  return member;
}

std::optional<MembershipChange> Membership::OnStopping(StreamId stream,
                                                       Instant now) {
  const Member* const member = FindByStream(stream);
  if (member == nullptr) return std::nullopt;
  return Stop(member->id, "its process was ended on request", now);
}

std::optional<MembershipChange> Membership::Stop(WorkerId id,
                                                 const std::string& why,
                                                 Instant now) {
  const auto found = members_.find(id);
  if (found == members_.end() || IsGone(found->second.state)) {
    return std::nullopt;
  }
  found->second.state = MemberState::kStopped;
  found->second.why = why;
  found->second.gone_since = now;
  return MembershipChange{id, MemberState::kStopped};
}

void Membership::OnStandstill(absl::Duration duration, Instant now) {
  if (patient_until_.has_value()) {
    patient_until_ = *patient_until_ + duration;
  } else if (duration >= policy_.lease) {
    patient_until_ = now + policy_.lease + policy_.grace;
  }
  for (auto& [id, member] : members_) {
    member.last_heard = std::min(member.last_heard + duration, now);
    member.gone_since = std::min(member.gone_since + duration, now);
  }
  // A member counts as heard later, and was not.
  for (auto& [claimant, since] : claims_) {
    since = std::min(since + duration, now);
  }
}

std::vector<MembershipChange> Membership::OnTick(Instant now) {
  std::vector<MembershipChange> changes;
  for (auto& [id, member] : members_) {
    const MemberState before = member.state;
    Judge(member, now);
    if (member.state != before) changes.push_back({id, member.state});
  }
  // All were judged without it once: a coordinator that stands still again and
  // again misses who is gone too.
  if (!IsPatient(now)) patient_until_.reset();
  return changes;
}

void Membership::Judge(Member& member, Instant now) const {
  if (IsGone(member.state)) return;
  if (!member.stream.assigned()) {
    if (IsPatient(now)) return;
    const absl::Duration gone = now - member.gone_since;
    const std::string testimony =
        member.restarting ? std::string() : Testimony(member);
    if (!testimony.empty()) {
      member.state = MemberState::kLost;
      member.why = absl::StrCat("its stream broke, and ", testimony);
      return;
    }
    if (gone < (member.restarting ? policy_.lease : policy_.grace)) return;
    member.state = MemberState::kLost;
    member.why =
        absl::StrCat(member.restarting ? "it was to execute itself anew"
                                       : "its stream broke",
                     " and it did not come back for ", Seconds(gone));
    return;
  }
  const absl::Duration silence = now - member.last_heard;
  if (silence < policy_.lease / 2) return;
  member.gone_since = member.last_heard;
  member.state = silence < policy_.lease || IsPatient(now)
                     ? MemberState::kSuspect
                     : MemberState::kLost;
  member.why = absl::StrCat("silent for ", Seconds(silence));
}

void Membership::Forget(WorkerId id) {
  if (const Member* const member = Find(id)) by_stream_.erase(member->stream);
  members_.erase(id);
  broken_links_.erase(id);
  for (auto& [witness, broken] : broken_links_) broken.erase(id);
  replaced_.erase(id);
}

Member* Membership::FindByName(const std::string& name) {
  for (auto& [id, member] : members_) {
    if (member.registration.name() == name) return &member;
  }
  return nullptr;
}

}  // namespace paceline
