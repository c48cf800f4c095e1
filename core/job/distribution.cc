#include "core/job/distribution.h"

#include <algorithm>
#include <deque>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"

namespace paceline {
namespace {

constexpr uint64_t kPartsStream = 0x70617274;  // "part"

// A group of members gets a run of the sorted samples, and spreads it over its
// members.
int GroupsOf(DistributionKind kind, int parts) {
  switch (kind) {
    case DistributionKind::kByLabel:
      return parts;
    case DistributionKind::kClustered:
      return std::min(2, parts);
    default:
      return 1;
  }
}

// Fills one group after the other.  Each sample goes to the member of the group
// that has most places left.
std::vector<uint16_t> Deal(const std::vector<int32_t>& order, int groups,
                           std::vector<int64_t> left) {
  const int parts = static_cast<int>(left.size());
  std::vector<uint16_t> part_of(order.size());
  int group = 0;
  for (const int32_t sample : order) {
    auto most = left.end();
    while (most == left.end() || *most == 0) {
      if (most != left.end()) ++group;
      most = std::max_element(left.begin() + group * parts / groups,
                              left.begin() + (group + 1) * parts / groups);
    }
    part_of[sample] = static_cast<uint16_t>(most - left.begin());
    --*most;
  }
  return part_of;
}

// Polya's urn: a member's chance to get a sample grows with how many of its
// label the member has.  The shares are those of Dirichlet(alpha).  To draw
// these directly takes logarithms, which differ between machines.
std::vector<uint16_t> DrawFromUrns(const std::vector<int32_t>& order,
                                   const std::vector<int32_t>& labels,
                                   double alpha, std::vector<int64_t> left,
                                   SplitMix64& random) {
  const size_t parts = left.size();
  const int32_t classes = *std::ranges::max_element(labels) + 1;
  std::vector<std::vector<int64_t>> has(classes, std::vector<int64_t>(parts));
  std::vector<uint16_t> part_of(order.size());
  for (const int32_t sample : order) {
    std::vector<int64_t>& counts = has[labels[sample]];
    double total = 0;
    for (size_t p = 0; p < parts; ++p) {
      if (left[p] > 0) total += alpha + static_cast<double>(counts[p]);
    }
    double ball = random.Unit() * total;
    size_t chosen = parts;
    for (size_t p = 0; p < parts && (chosen == parts || ball >= 0); ++p) {
      if (left[p] == 0) continue;
      chosen = p;
      ball -= alpha + static_cast<double>(counts[p]);
    }
    part_of[sample] = static_cast<uint16_t>(chosen);
    ++counts[chosen];
    --left[chosen];
  }
  return part_of;
}

}  // namespace

absl::StatusOr<Distribution> FindDistribution(const std::string& text) {
  absl::string_view alpha = text;
  if (absl::ConsumePrefix(&alpha, "dirichlet(") &&
      absl::ConsumeSuffix(&alpha, ")")) {
    double value = 0;
    if (absl::SimpleAtod(alpha, &value) && value > 0 && value <= 1e6) {
      return Distribution{DistributionKind::kDirichlet, value};
    }
  }
  constexpr std::pair<const char*, DistributionKind> kKinds[] = {
      {"iid", DistributionKind::kIid},
      {"by-label", DistributionKind::kByLabel},
      {"clustered", DistributionKind::kClustered},
      {"balanced", DistributionKind::kBalanced}};
  for (const auto& [name, kind] : kKinds) {
    if (text == name) return Distribution{kind};
  }
  return InvalidArgument("is '", text,
                         "'; use iid, by-label, clustered, balanced or "
                         "dirichlet(ALPHA) with a number above 0 and up to a "
                         "million");
}

std::string WhyNoDistribution(const JobSpec& spec) {
  const auto found = FindDistribution(spec.data.distribution);
  if (!found.ok()) return std::string(found.status().message());
  if (found->kind == DistributionKind::kIid) return "";
  const DataSetTraits* const set = FindDataSet(spec.data.name);
  if (set == nullptr || IsSynthetic(spec.data) ||
      (set->kind != SampleKind::kImages &&
       set->kind != SampleKind::kLabelledTokens)) {
    return absl::StrCat("goes by the labels of samples, and ", spec.data.name,
                        " has none that are known ahead: use iid");
  }
  if (IsInference(spec) || !IsDataParallel(spec)) {
    return "spreads samples over the members of a group, and this job has no "
           "group that trains: set aggregation.mode, or use iid";
  }
  if (KnownMembers(spec.aggregation) > 0) return "";
  return "spreads samples over the members of a group: say how many there are "
         "in aggregation.members";
}

SampleParts::SampleParts(const Distribution& distribution,
                         const TrainSpec& train, int parts, bool rotates,
                         const std::vector<int32_t>& labels)
    : batch_(train.batch),
      micro_batch_(train.micro_batch),
      parts_(parts),
      rotates_(rotates) {
  const int64_t samples = std::ssize(labels);
  std::vector<int64_t> places(parts);
  for (int64_t i = 0; i < samples; ++i) ++places[PartAt(i, 0)];
  const uint64_t seed =
      MixSeed({kPartsStream, static_cast<uint64_t>(train.seed)});
  std::vector<int32_t> order =
      SampleOrder(static_cast<int64_t>(seed), 0, samples);
  if (distribution.kind == DistributionKind::kDirichlet) {
    SplitMix64 random(seed);
    part_of_ = DrawFromUrns(order, labels, distribution.alpha, places, random);
    return;
  }
  std::ranges::stable_sort(
      order, [&](int32_t a, int32_t b) { return labels[a] < labels[b]; });
  part_of_ = Deal(order, GroupsOf(distribution.kind, parts), places);
}

int SampleParts::PartAt(int64_t place, int64_t epoch) const {
  const int64_t micro_batch = place % batch_ / micro_batch_;
  return static_cast<int>((micro_batch + (rotates_ ? epoch : 0)) % parts_);
}

void SampleParts::Arrange(int64_t epoch, absl::Span<int32_t> order) const {
  std::vector<std::deque<int32_t>> own(parts_);
  for (const int32_t sample : order) own[part_of_[sample]].push_back(sample);
  for (size_t i = 0; i < order.size(); ++i) {
    auto from = own.begin() + PartAt(static_cast<int64_t>(i), epoch);
    // The last batch of an epoch may be short of some member's micro-batch.
    if (from->empty()) {
      from = std::ranges::max_element(own, {}, std::ranges::size);
    }
    order[i] = from->front();
    from->pop_front();
  }
}

}  // namespace paceline
