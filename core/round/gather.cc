#include "core/round/gather.h"

#include "core/base/errors.h"

namespace paceline {

bool Gather::Add(const MemberId& from, const PartOffer& offer, Instant now) {
  if (closed_) return false;
  if (!parts_.emplace(from, offer).second) return false;
  if (!first_.has_value()) first_ = now;
  arrivals_.push_back(now - *first_);
  return true;
}

uint64_t Gather::division() const {
  const auto usable = [](const auto& part) { return part.second.samples > 0; };
  const auto first = std::find_if(parts_.begin(), parts_.end(), usable);
  if (first == parts_.end()) return 0;
  const uint64_t only = first->second.division;
  // Nearly always all parts have one division.
  if (std::all_of(first, parts_.end(), [&](const auto& part) {
        return !usable(part) || part.second.division == only;
      })) {
    return only;
  }
  std::map<uint64_t, int64_t> samples;
  for (const auto& [member, part] : parts_) {
    if (part.samples > 0) samples[part.division] += part.samples;
  }
  // Ties go to the lowest name.
  const auto most = std::max_element(
      samples.begin(), samples.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == samples.end() ? 0 : most->first;
}

bool Gather::IsUsable(const PartOffer& part, uint64_t division) {
  return part.samples > 0 && part.division == division;
}

int Gather::usable() const {
  const uint64_t chosen = division();
  return static_cast<int>(std::count_if(
      parts_.begin(), parts_.end(),
      [chosen](const auto& part) { return IsUsable(part.second, chosen); }));
}

std::optional<Instant> Gather::DueAt(int min_parts,
                                     absl::Duration deadline) const {
  if (closed_ || !first_.has_value() || usable() < min_parts) return {};
  return *first_ + deadline;
}

bool Gather::TryClose(int min_parts, absl::Duration deadline, Instant now) {
  if (closed_) return false;
  const std::optional<Instant> due = DueAt(min_parts, deadline);
  const bool all = parts_.size() == members_.size();
  if (!all && (!due.has_value() || now < *due)) return false;
  // It is unknown how late the missing parts are.  Without them the deadline
  // would adapt to the fast members alone, and shut the others out for good.
  const size_t missing = members_.size() - parts_.size();
  arrivals_.insert(arrivals_.end(), missing, 2 * (now - *first_));
  Close(min_parts);
  return true;
}

void Gather::Close(int min_parts) {
  closed_ = true;
  void_ = usable() < min_parts;
  if (void_) {
    result_ = ShardResult{shard_, true, 0, {}, 0, arrivals_};
    return;
  }
  const uint64_t chosen = division();
  // By id, never in order of arrival, so that the sum always has the same
  // bytes.
  for (const auto& [member, part] : parts_) {
    if (IsUsable(part, chosen)) contributors_.push_back({member, part.samples});
  }
}

std::vector<MemberId> Gather::Missing() const {
  std::vector<MemberId> missing;
  for (const MemberId& member : members_) {
    if (parts_.find(member) == parts_.end()) missing.push_back(member);
  }
  return missing;
}

void Gather::SetResult(uint64_t hash, int64_t divisor) {
  PACELINE_CHECK(closed_ && !void_, "a sum of a round that is open or void");
  void_ = divisor == 0;
  result_ = void_ ? ShardResult{shard_, true, 0, {}, 0, arrivals_}
                  : ShardResult{shard_,        false,   hash,
                                contributors_, divisor, arrivals_};
}

}  // namespace paceline
