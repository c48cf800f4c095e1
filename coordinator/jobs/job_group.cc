#include "coordinator/jobs/job_group.h"

#include <cstddef>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/job/aggregation.h"

namespace paceline {

namespace {

// In the order of GroupExit.
struct ExitTraits {
  const char* name;
  const char* event;  // the kind of event that tells of it
};
constexpr ExitTraits kExits[] = {
    {"lost", "lost"},    {"restarted", "lost"},   {"silent", "evicted"},
    {"hung", "evicted"}, {"mismatch", "evicted"}, {"drained", "left"},
    {"failed", "lost"},  {"stopped", "left"},
};
static_assert(std::size(kExits) == kGroupExits);

std::string KindOf(GroupExit exit) {
  return kExits[static_cast<size_t>(exit)].event;
}

}  // namespace

absl::string_view GroupExitName(GroupExit exit) {
  return kExits[static_cast<size_t>(exit)].name;
}

JobGroup::JobGroup(const GroupOptions& options, std::optional<View> stored,
                   const std::map<WorkerId, Incarnation>& excluded)
    : options_(options), keeper_(options.term, stored) {
  // An earlier coordinator stored the view: members may have begun.
  begun_ = stored.has_value();
  ViewActions none;  // nothing to do without a view
  for (const auto& [worker, incarnation] : excluded) {
    const MemberId gone = {worker, incarnation};
    if (!stored.has_value() || !Contains(*stored, gone)) {
      keeper_.OnLost(gone, none);
    }
  }
}

// --- members ----------------------------------------------------------------

void JobGroup::Begin(const std::vector<GroupWorker>& workers,
                     const std::map<WorkerId, double>& shares, int64_t step,
                     Instant now) {
  began_at_ = furthest_ = step;
  std::vector<MemberId> members;
  for (const GroupWorker& worker : workers) {
    members.push_back(worker.id);
    taken_part_.insert(worker.id);
    names_[worker.id] = worker.name;
    processes_[worker.id] = {.worker = worker,
                             .work = {.heard = now, .progress_since = now}};
  }
  for (const auto& [worker, share] : shares) keeper_.SetShare(worker, share);
  ViewActions actions;
  keeper_.Begin(std::move(members), step, actions);
  Carry(std::move(actions));
  OnViewChanged();
}

void JobGroup::Admit(const GroupWorker& worker, double share, Instant now) {
  if (keeper_.IsExcluded(worker.id) || keeper_.lost()) return;
  keeper_.SetShare(worker.id.worker, share);
  names_[worker.id] = worker.name;
  const auto [process, is_new] = processes_.try_emplace(worker.id);
  process->second.worker = worker;
  if (is_new) {
    process->second.work.heard = now;
    process->second.work.Excuse(now);
  }
  if (!begun_ || IsMember(worker.id) || !is_new) return;
  AddEvent("joining", absl::StrCat("worker ", worker.name,
                                   " fetches the state of the group"));
}

void JobGroup::OnHeard(const MemberId& member, Instant heard) {
  const auto found = processes_.find(member);
  if (found == processes_.end()) return;
  found->second.work.OnHeard(heard, options_.lease);
}

// Resets the waiting times: until now all may have waited for one another.
void JobGroup::OnFurther(int64_t next, Instant now) {
  if (next <= furthest_) return;
  furthest_ = next;
  for (auto& [id, process] : processes_) {
    MemberWork& work = process.work;
    if (!work.left_behind.has_value()) work.left_behind = now;
  }
}

void JobGroup::OnGone(const MemberId& member, GroupExit exit,
                      const std::string& why) {
  if (keeper_.IsExcluded(member)) return;
  const bool was_member = IsMember(member);
  if (!was_member && !Has(member)) return;
  const std::string name = NameOf(member);
  Remove(member, exit);
  // No event for a listener that executes itself anew: nothing is lost.
  if (!was_member && exit == GroupExit::kRestarted) return;
  AddEvent(KindOf(exit),
           absl::StrCat(was_member ? "member " : "listener ", name, " ",
                        KindOf(exit), " (", why, ")", was_member ? "; " : "",
                        was_member ? ViewNote() : ""));
  OnViewChanged();
}

void JobGroup::Remove(const MemberId& member, GroupExit exit) {
  news_.leavers.push_back({member, exit});
  processes_.erase(member);
  ViewActions actions;
  keeper_.OnLost(member, actions);
  Carry(std::move(actions));
}

void JobGroup::Carry(ViewActions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto* const store = std::get_if<StoreView>(&actions[i]);
    if (store == nullptr) continue;  // orders carry views; lost() is asked
    news_.view = store->view;
    ++news_.views;
    // The others may have waited for the one that left: their time begins anew.
    for (auto& [id, process] : processes_) {
      process.work.Excuse(process.work.heard);
    }
    // See the class's assumption: nothing is sent before the view is stored.
    ViewActions sent;
    keeper_.OnStored(store->view.id, sent);
  }
}

void JobGroup::OnViewChanged() {
  if (lost()) return;
  const bool few = members() < options_.min_parts;
  if (few == paused_) return;
  paused_ = few;
  AddEvent(few ? "paused" : "resumed",
           few ? PausedText()
               : absl::StrCat("enough members are there again: ", ViewNote()));
}

std::string JobGroup::PausedText() const {
  if (!paused_) return "";
  return absl::StrCat(
      "paused: ", members(), " of ", Counted(options_.min_parts, "member"),
      " that a round needs (aggregation.min_parts) ",
      members() == 1 ? "is" : "are", " there; it goes on when workers return");
}

// --- members' reports -------------------------------------------------------

void JobGroup::OnReport(const MemberId& member, v1::RunState::Phase phase,
                        const std::optional<MemberReport>& report,
                        int64_t progress, Instant now) {
  const auto found = processes_.find(member);
  if (found == processes_.end() || lost()) return;
  Process& process = found->second;
  process.work.OnHeard(now, options_.lease);
  process.phase = phase;
  if (phase >= v1::RunState::PHASE_RUNNING) begun_ = true;
  const MemberReport said = report.value_or(process.report);
  OnFurther(said.next, now);
  if (said.next > began_at_) begun_ = true;
  process.work.OnReport(phase == v1::RunState::PHASE_RUNNING, said.turn,
                        progress, now);
  process.work.next = said.next;
  if (!report.has_value()) return;
  process.report = said;
  const bool was_member = IsMember(member);
  if (said.has_taken_part && !was_member) {
    // Its view is an earlier coordinator's, or it missed its removal.
    return OnGone(member, GroupExit::kLost, "it is in no view any more");
  }
  if (said.has_taken_part) taken_part_.insert(member);
  ViewActions actions;
  keeper_.OnReport(member, said.next, said.view, said.has_taken_part, actions);
  if (!was_member && said.level && draining_.count(member.worker) == 0) {
    keeper_.OnListenerLevel(member, said.next, actions);
  }
  Carry(std::move(actions));
  if (!was_member && IsMember(member)) {
    process.work.Excuse(now);
    AddEvent("joined",
             absl::StrCat("worker ", NameOf(member), " joined; ", ViewNote()));
    OnViewChanged();
  }
  TakeMismatch(said);
}

Roster JobGroup::MakeRoster(int layers) const {
  Roster roster;
  if (torn_) {
    roster.state = Roster::State::kTorn;
    roster.sound_step = mismatch_step_ - 1;
    roster.why = "no state of its group is to be trusted";
  } else if (lost()) {
    roster.state = Roster::State::kLost;
    roster.why = ended() ? ended_ : "nobody who has the group's state is left";
  }
  for (const ViewMember& member : view()->members) {
    roster.members.push_back({{0, layers}, member.id});
  }
  // In gossip the leveller's state is the one that is kept.
  absl::c_stable_partition(roster.members, [this](const RunPlace& place) {
    return place.process == view()->leveller;
  });
  for (const auto& [id, process] : processes_) {
    if (!IsMember(id)) roster.listeners.insert(id);
  }
  return roster;
}

std::map<WorkerId, v1::JobMember> JobGroup::Members() const {
  std::map<WorkerId, v1::JobMember> members;
  for (const auto& [id, process] : processes_) {
    const MemberReport& report = process.report;
    v1::JobMember& member = members[id.worker];
    member.set_view(ViewText(report.view));
    member.set_next(report.next);
    member.set_state_step(report.state_step);
    member.set_state_hash(report.state_hash);
    member.set_listens(!IsMember(id));
  }
  return members;
}

WorkerId JobGroup::Server(const JobSpec& spec) const {
  if (IsGossip(spec) || !view().has_value() ||
      MembersAt(*view(), furthest_).empty()) {
    return WorkerId{0};
  }
  const ServerMode mode = spec.aggregation.mode == "central"
                              ? ServerMode::kCentral
                              : ServerMode::kRolling;
  return ServerOf(*view(), mode, furthest_, 0).worker;
}

void JobGroup::TakeMismatch(const MemberReport& report) {
  if (report.mismatch.empty() || lost() || torn_) return;
  if (report.view != view()->id) return;  // of an older view
  const MismatchVerdict verdict = DecideMismatch(*view(), report.mismatch);
  const std::string after =
      absl::StrCat("states differ after step ", report.mismatch_step);
  if (verdict.torn) {
    torn_ = true;
    mismatch_step_ = report.mismatch_step;
    AddEvent("mismatch",
             absl::StrCat(after, ", and no majority has the same one"));
    return;
  }
  for (const MemberId& member : verdict.minority) {
    OnGone(member, GroupExit::kMismatch,
           absl::StrCat(after, ", and ", verdict.majority, " others agree"));
  }
}

// --- time -------------------------------------------------------------------

void JobGroup::OnTick(Instant now) {
  delays_.Add(now - ticked_.value_or(now));
  ticked_ = now;
  if (lost() || torn_ || !view().has_value()) return;
  LetDrainedGo();
  EvictSilent(now);
  EvictHung();
}

void JobGroup::EvictSilent(Instant now) {
  std::map<MemberId, MemberReport> reports;
  for (const auto& [member, process] : processes_) {
    reports[member] = process.report;
  }
  const std::optional<Eviction> eviction =
      DecideEviction(*view(), reports, options_.lease, delays_.Get());
  if (!eviction.has_value()) return;
  const auto accused = processes_.find(eviction->member);
  // A process without heartbeats is left to Membership: it will be lost soon,
  // or is only slow.
  if (accused == processes_.end() ||
      now - accused->second.work.heard >= options_.lease / 2) {
    return;
  }
  OnGone(eviction->member, GroupExit::kSilent,
         absl::StrCat(eviction->why, ", says ", NameOf(eviction->accuser)));
}

void JobGroup::EvictHung() {
  if (paused_) return;
  std::map<MemberId, MemberWork> work;
  for (const auto& [member, process] : processes_) work[member] = process.work;
  const std::optional<Hang> hang =
      DecideHang(*view(), work, options_.instruction_bound);
  if (!hang.has_value()) return;
  OnGone(
      hang->member, GroupExit::kHung,
      absl::StrFormat("it answers, but has finished no instruction for %.1f s",
                      absl::ToDoubleSeconds(hang->idle)));
}

// --- drain ------------------------------------------------------------------

void JobGroup::SetDraining(WorkerId worker, bool draining) {
  if (draining) {
    draining_.insert(worker);
  } else {
    draining_.erase(worker);
  }
  LetDrainedGo();
}

// Whether another member has the state.
bool JobGroup::HasStayer(const MemberId& leaving) const {
  return absl::c_any_of(view()->members, [&](const ViewMember& member) {
    return member.id != leaving && Has(member.id) &&
           taken_part_.count(member.id) > 0;
  });
}

void JobGroup::LetDrainedGo() {
  if (lost() || !view().has_value()) return;
  for (const WorkerId worker : draining_) {
    const MemberId* const process = FindProcess(worker);
    if (process == nullptr) continue;
    const MemberId leaving = *process;
    if (IsMember(leaving) && !HasStayer(leaving)) continue;
    OnGone(leaving, GroupExit::kDrained, "drained");
  }
}

// --- questions --------------------------------------------------------------

std::optional<GroupOrder> JobGroup::OrderOf(const MemberId& member) const {
  if (lost() || torn_ || !view().has_value() || !Has(member)) {
    return std::nullopt;
  }
  GroupOrder order;
  order.view = *view();
  order.uploader = order.view.leveller;
  order.lease = options_.lease;
  for (const auto& [id, process] : processes_) {
    order.workers.push_back(process.worker);
  }
  return order;
}

const MemberId* JobGroup::FindProcess(WorkerId worker) const {
  const auto found = processes_.lower_bound(MemberId{worker, Incarnation{0}});
  return found != processes_.end() && found->first.worker == worker
             ? &found->first
             : nullptr;
}

bool JobGroup::AllDone() const {
  if (lost() || !view().has_value() || view()->members.empty()) return false;
  for (const ViewMember& member : view()->members) {
    const auto found = processes_.find(member.id);
    if (found == processes_.end() ||
        found->second.phase != v1::RunState::PHASE_DONE) {
      return false;
    }
    if (member.id == view()->leveller &&
        found->second.report.view != view()->id) {
      return false;
    }
  }
  return true;
}

bool JobGroup::FindLastMismatch(int64_t steps) {
  MemberReport found;
  found.view = view()->id;
  found.mismatch_step = steps;
  std::set<uint64_t> states;
  for (const ViewMember& member : view()->members) {
    const auto process = processes_.find(member.id);
    if (process == processes_.end()) continue;
    const MemberReport& report = process->second.report;
    if (report.state_step != steps || report.state_hash == 0) continue;
    found.mismatch[member.id] = report.state_hash;
    states.insert(report.state_hash);
  }
  if (states.size() < 2) return false;
  TakeMismatch(found);
  return true;
}

int JobGroup::listeners() const {
  return static_cast<int>(absl::c_count_if(
      processes_, [this](const auto& each) { return !IsMember(each.first); }));
}

std::string JobGroup::NameOf(const MemberId& member) const {
  const auto found = names_.find(member);
  return found != names_.end() ? found->second
                               : absl::StrCat(member.worker.value);
}

std::string JobGroup::ViewNote() const {
  return absl::StrCat("view ", ViewText(view()->id), " of ", members(),
                      members() == 1 ? " member" : " members");
}

GroupNews JobGroup::TakeNews() { return std::exchange(news_, GroupNews()); }

// --- events and evaluations -------------------------------------------------

namespace {

constexpr int64_t kMostOfAKind = 1000;  // events
// The bound on events that differ only in the step: a member that never sends a
// part must not silence the events of others.
constexpr int64_t kMostAlike = 100;
// More than the records that a worker keeps and may send again.
constexpr size_t kMostSeen = 4096;
// Open evaluations: usually one, or two while a member is slow.
constexpr size_t kMostOpen = 8;
// The aggregation rule left the part out, as it may in any round.
constexpr char kOutvoted[] = "outvoted";

std::string SkipText(const v1::RoundRecord& record,
                     const GroupEventLog::Names& names) {
  // By reason, sorted.
  std::map<std::string, std::vector<std::string>> workers;
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    if (skip.reason() == kOutvoted) continue;
    workers[skip.reason()].push_back(names(WorkerId{skip.worker_id()}));
  }
  return absl::StrJoin(workers, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.second.size() == 1 ? "part of " : "parts of ",
                    absl::StrJoin(each.second, ", "), " skipped (", each.first,
                    ")");
  });
}

}  // namespace

std::optional<GroupEvent> GroupEventLog::OnRecord(const v1::RoundRecord& record,
                                                  const Names& names) {
  const bool takeover = record.lost_server() > 0;
  CountOutvoted(record, names);
  const std::string skips = SkipText(record, names);
  if (!takeover && !record.is_void() && skips.empty()) return std::nullopt;
  const std::string kind = takeover           ? "takeover"
                           : record.is_void() ? "void"
                                              : "skipped";
  std::vector<std::string> parts;
  if (takeover) {
    parts.push_back(absl::StrFormat("server %s lost, %s took over in %.0f ms",
                                    names(WorkerId{record.lost_server()}),
                                    names(WorkerId{record.server()}),
                                    1000 * record.takeover_seconds()));
  }
  if (record.is_void()) {
    // Without a takeover, the event's kind says "void".
    parts.push_back(absl::StrCat(takeover ? "void: " : "",
                                 "no update, for too few usable parts or none "
                                 "that the rule could use"));
  }
  if (!skips.empty()) parts.push_back(skips);
  std::string text = absl::StrCat("step ", record.step() + 1, ": ",
                                  absl::StrJoin(parts, ", "));
  // Several members report one takeover, with different times.
  const std::string same =
      takeover ? names(WorkerId{record.lost_server()}) : text;
  if (!IsNew({record.step(), kind, same})) return std::nullopt;
  if (takeover) ++takeovers_;
  if (record.is_void()) ++voids_;
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    if (skip.reason() != kOutvoted) ++skipped_[skip.reason()];
  }
  return Count(kind, kind == "skipped" ? skips : kind, std::move(text));
}

void GroupEventLog::CountOutvoted(const v1::RoundRecord& record,
                                  const Names& names) {
  std::vector<std::string> workers;
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    if (skip.reason() == kOutvoted) {
      workers.push_back(names(WorkerId{skip.worker_id()}));
    }
  }
  if (workers.empty() || !IsNew({record.step(), kOutvoted, ""})) return;
  for (const std::string& worker : workers) ++outvoted_[worker];
}

bool GroupEventLog::IsNew(const Told& told) {
  if (!seen_.insert(told).second) return false;
  if (seen_.size() > kMostSeen) seen_.erase(seen_.begin());
  return true;
}

std::optional<GroupEvent> GroupEventLog::Count(const std::string& kind,
                                               const std::string& alike,
                                               std::string text) {
  const auto known = alike_.find(alike);
  if (told_[kind] >= kMostOfAKind ||
      (known != alike_.end() && known->second >= kMostAlike)) {
    return std::nullopt;
  }
  const int64_t count = ++told_[kind];
  if (count == kMostOfAKind) {
    absl::StrAppend(&text, "; later ones are only counted");
  } else if (++alike_[alike] == kMostAlike) {
    absl::StrAppend(&text, "; later ones of this are only counted");
  }
  return GroupEvent{kind, std::move(text)};
}

std::string GroupEventLog::Summary() const {
  std::vector<std::string> parts;
  if (voids_ > 0) parts.push_back(absl::StrCat(voids_, " void"));
  if (takeovers_ > 0) {
    parts.push_back(absl::StrCat(takeovers_, takeovers_ == 1
                                                 ? " server replaced"
                                                 : " servers replaced"));
  }
  if (!skipped_.empty()) {
    parts.push_back(absl::StrCat(
        "parts skipped: ",
        absl::StrJoin(skipped_, ", ", [](std::string* out, const auto& each) {
          absl::StrAppend(out, each.second, " ", each.first);
        })));
  }
  if (!outvoted_.empty()) {
    std::vector<std::pair<std::string, int64_t>> most(outvoted_.begin(),
                                                      outvoted_.end());
    absl::c_stable_sort(
        most, [](const auto& a, const auto& b) { return a.second > b.second; });
    parts.push_back(absl::StrCat(
        "outvoted: ", absl::StrJoin(most, ", ", absl::PairFormatter(" "))));
  }
  return parts.empty() ? ""
                       : absl::StrCat("rounds: ", absl::StrJoin(parts, ", "));
}

std::optional<v1::EvaluationRecord> EvaluationOf(int64_t step, int64_t samples,
                                                 double loss, double correct) {
  if (samples == 0) return std::nullopt;
  v1::EvaluationRecord evaluation;
  evaluation.set_step(step);
  evaluation.set_samples(samples);
  evaluation.set_loss(loss / static_cast<double>(samples));
  evaluation.set_accuracy(correct / static_cast<double>(samples));
  return evaluation;
}

std::optional<v1::EvaluationRecord> GroupEventLog::OnEvaluation(
    WorkerId member, const v1::EvaluationRecord& part) {
  if (part.step() <= forgotten_) return std::nullopt;
  parts_[part.step()][member] = part;
  while (parts_.size() > kMostOpen) {
    forgotten_ = parts_.begin()->first;
    parts_.erase(parts_.begin());
  }
  const auto found = parts_.find(part.step());
  if (found == parts_.end()) return std::nullopt;
  int64_t samples = 0;
  double loss = 0;
  double correct = 0;
  for (const auto& [worker, each] : found->second) {  // always in one order
    if (each.samples() == 0) continue;                // it has no samples
    const double weight = static_cast<double>(each.samples());
    samples += each.samples();
    loss += each.loss() * weight;
    correct += each.accuracy() * weight;
  }
  return EvaluationOf(part.step(), samples, loss, correct);
}

std::set<WorkerId> GroupEventLog::EvaluatedBy(int64_t step) const {
  std::set<WorkerId> workers;
  const auto found = parts_.find(step);
  if (found == parts_.end()) return workers;
  for (const auto& [worker, part] : found->second) workers.insert(worker);
  return workers;
}

void GroupEventLog::ForgetEvaluations(int64_t step) {
  forgotten_ = step;
  if (step < 0) {  // a new attempt repeats the steps
    parts_.clear();
    seen_.clear();
  }
  std::erase_if(parts_,
                [this](const auto& each) { return each.first <= forgotten_; });
}

}  // namespace paceline
