#include "coordinator/jobs/group_event_log.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"

namespace paceline {
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

std::optional<GroupEventLog::Event> GroupEventLog::OnRecord(
    const v1::RoundRecord& record, const Names& names) {
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

std::optional<GroupEventLog::Event> GroupEventLog::Count(
    const std::string& kind, const std::string& alike, std::string text) {
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
  return Event{kind, std::move(text)};
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
