// The rules.  Each says its source, its assumption, its cost, and where we
// depart.
//
// Costs are for n parts of d coordinates.  "One read" is one pass over all
// parts, which takes most of the time.  CPU ms of 9 parts of 1M values, one
// core, November 2026: one read 1.2, mean 1.1, median 2.6, zeno without losses
// 2.8, trimmed-mean 4.5, suspicion 4.6, krum 5.0.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/base/text.h"
#include "core/round/rules/rule.h"
#include "core/round/rules/rule_blocks.h"

namespace paceline {
namespace {

// InvalidArgument unless there is a part, all are of one length, each has a
// sample, and all samples together fit an int64.  O(parts).
absl::Status CheckParts(absl::Span<const RulePart> parts) {
  if (parts.empty()) {
    return InvalidArgument("no part to aggregate: a round needs at least one");
  }
  int64_t room = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].values.size() != parts[0].values.size()) {
      return InvalidArgument("part ", i, " has ", parts[i].values.size(),
                             " values, part 0 has ", parts[0].values.size(),
                             ": parts of one round are of one length");
    }
    if (parts[i].samples < 1) {
      return InvalidArgument("part ", i, " covers ", parts[i].samples,
                             " samples: leave out a part without any");
    }
    if (parts[i].samples > room) {
      return InvalidArgument(
          "part ", i, " covers ", parts[i].samples,
          " samples: more than can be counted with the others'; "
          "refuse such a part where it arrives");
    }
    room -= parts[i].samples;
  }
  return absl::OkStatus();
}

// FailedPrecondition where the rule `name`, which drops `k` members, would
// leave none of the parts.
absl::Status CheckDrops(const char* name, int64_t k,
                        absl::Span<const RulePart> parts) {
  if (k < std::ssize(parts)) return absl::OkStatus();
  return FailedPrecondition(name, " drops k=", k,
                            " members and leaves none of ", parts.size(),
                            " parts: wait for more, or use a lower k");
}

// InvalidArgument if one of `distances` is not finite: names the first part
// that holds NaN or infinity.  Internal if no part does.
absl::Status CheckFinite(absl::Span<const RulePart> parts,
                         absl::Span<const double> distances) {
  if (std::all_of(distances.begin(), distances.end(),
                  [](double distance) { return std::isfinite(distance); })) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t at = FindNonFinite(parts[i].values);
    if (at == parts[i].values.size()) continue;
    return InvalidArgument("part ", i, " holds ", parts[i].values[at],
                           " at value ", at,
                           ": refuse such a part where it arrives");
  }
  return Internal("a distance between finite parts is not finite");
}

// Squared distances of the parts' means to a vector.  `reference` gets the
// means of each block, and writes that block of the vector to `block`
// [kRuleBlock]; blocks are added in order.  One read.
std::vector<double> SquaredDistancesTo(
    absl::Span<const RulePart> parts,
    absl::FunctionRef<void(const BlockRows& means, float* block)> reference) {
  const size_t length = parts[0].values.size();
  const std::vector<float> factors = MeanFactors(parts);
  std::vector<double> distances(parts.size(), 0);
  BlockRows means(parts.size());
  float block[kRuleBlock] = {};
  for (size_t at = 0; at < length; at += kRuleBlock) {
    means.Load(parts, factors, at, length);
    reference(means, block);
    for (size_t i = 0; i < parts.size(); ++i) {
      distances[i] += SquaredDistance(means.row(i), block);
    }
  }
  return distances;
}

// The verdict in which all members are used: `used` is filled in; factors,
// scores and why are left to the rule.
RuleVerdict AllUsed(absl::Span<const RulePart> parts) {
  RuleVerdict verdict;
  verdict.used.resize(parts.size());
  std::iota(verdict.used.begin(), verdict.used.end(), 0);
  return verdict;
}

// The verdict of these `scores` whose result is the mean over members by
// `weights` [parts], at least 0, not all 0; they are normalised by their sum in
// member order, in float64.
// why: "DOES 0, 2 of 3 members; NAME 1, 5, 2": the members used, and all
// scores.
RuleVerdict Weighted(absl::Span<const RulePart> parts,
                     absl::Span<const double> weights,
                     std::vector<double> scores, const char* does,
                     const char* name) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  PACELINE_CHECK(sum > 0, absl::StrCat("sum of weights=", sum));
  RuleVerdict verdict;
  verdict.factors.assign(parts.size(), 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (weights[i] == 0) continue;
    verdict.factors[i] = static_cast<float>(
        weights[i] / sum / static_cast<double>(parts[i].samples));
    verdict.used.push_back(static_cast<int>(i));
  }
  verdict.why = absl::StrCat(does, " ", absl::StrJoin(verdict.used, ", "),
                             " of ", Counted(scores.size(), "member"), "; ",
                             name, " ", absl::StrJoin(scores, ", "));
  verdict.scores = std::move(scores);
  return verdict;
}

// Places 0 .. values.size() - 1, least value first, lower place first among
// equals.  No NaN.
std::vector<int> Ascending(absl::Span<const double> values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&values](int a, int b) { return values[a] < values[b]; });
  return order;
}

void CheckRange(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
                size_t range, absl::Span<float> result) {
  PACELINE_CHECK(
      verdict.factors.size() == parts.size() && result.size() == range,
      absl::StrCat("factors=", verdict.factors.size(), " parts=", parts.size(),
                   " result=", result.size(), " range=", range));
}

// Rules whose result is a sum of parts, each by its factor: one read of the
// members that are used, O(n d).
class WeightedRule : public Rule {
 public:
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end, absl::Span<float> result) const final {
    CheckRange(parts, verdict, end - begin, result);
    WeightedSum(parts, verdict.factors, begin, end, result);
  }
};

// Sum of all parts over the sum of all samples.
// Assumes that no member lies.  Decide O(n).
class MeanRule final : public WeightedRule {
 public:
  MeanRule(const RuleSpec& /*spec*/, TrustedLoss* /*loss*/) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    RuleVerdict verdict = AllUsed(parts);
    verdict.factors.assign(parts.size(), 1);
    verdict.divisor = 0;
    for (const RulePart& part : parts) verdict.divisor += part.samples;
    verdict.why = absl::StrCat("mean of ", Counted(verdict.divisor, "sample"),
                               " of ", Counted(parts.size(), "member"));
    return verdict;
  }
};

// Calls with_block(rows, count, result of the block) for each block of the
// range, its rows loaded with means.
template <typename WithBlock>
void ForEachBlock(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
                  size_t begin, size_t end, absl::Span<float> result,
                  WithBlock with_block) {
  CheckRange(parts, verdict, end - begin, result);
  BlockRows rows(parts.size());
  for (size_t at = begin; at < end; at += kRuleBlock) {
    const size_t count = rows.Load(parts, verdict.factors, at, end);
    with_block(rows, count, result.data() + (at - begin));
  }
}

// Sum of rows [first, last) times scale, in float64: the mean of equal values
// is that value.
void MeanOfRows(const BlockRows& rows, size_t first, size_t last, double scale,
                float* mean) {
  double sum[kRuleBlock] = {};
  for (size_t index = first; index < last; ++index) {
    const float* const row = rows.row(index);
    for (size_t i = 0; i < kRuleBlock; ++i) sum[i] += row[i];
  }
  for (size_t i = 0; i < kRuleBlock; ++i) {
    mean[i] = static_cast<float>(sum[i] * scale);
  }
}

// Coordinate-wise median and trimmed mean: Yin, Chen, Ramchandran and Bartlett
// 2018, "Byzantine-robust distributed learning: towards optimal statistical
// rates", definitions 1 and 2.
// Assumes n >= 2k + 1: each coordinate then lies between honest values.
// Departure: a count k is trimmed at each end, not a fraction.  The middle two
// are averaged in float64, the untrimmed summed there in ascending order, so
// that the result does not depend on which member sent which value.
// Decide O(n).  Combine: one read, O(n log^2 n) exchanges a coordinate.
class MedianRule final : public Rule {
 public:
  MedianRule(const RuleSpec& /*spec*/, TrustedLoss* /*loss*/) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    RuleVerdict verdict = AllUsed(parts);
    verdict.factors = MeanFactors(parts);
    verdict.why = absl::StrCat("median of ", Counted(parts.size(), "member"));
    return verdict;
  }
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end,
               absl::Span<float> result) const override {
    ForEachBlock(parts, verdict, begin, end, result,
                 [](BlockRows& rows, size_t count, float* to) {
                   float median[kRuleBlock];
                   MedianOfColumns(rows, median);
                   std::copy_n(median, count, to);
                 });
  }
};

class TrimmedMeanRule final : public Rule {
 public:
  TrimmedMeanRule(const RuleSpec& spec, TrustedLoss* /*loss*/) : k_(spec.k) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    const auto members = static_cast<int64_t>(parts.size());
    if (k_ > (members - 1) / 2) {
      return FailedPrecondition(
          "trimmed-mean cuts k=", k_, " values at each end and leaves none of ",
          Counted(members, "part"), ": wait for more, or use a lower k");
    }
    RuleVerdict verdict = AllUsed(parts);
    verdict.factors = MeanFactors(parts);
    verdict.why = absl::StrCat("mean of the middle ", members - 2 * k_, " of ",
                               Counted(members, "member"));
    return verdict;
  }
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end,
               absl::Span<float> result) const override {
    const auto first = static_cast<size_t>(k_);
    const size_t last = parts.size() - first;
    const double scale = 1 / static_cast<double>(last - first);
    ForEachBlock(parts, verdict, begin, end, result,
                 [=](BlockRows& rows, size_t count, float* to) {
                   float mean[kRuleBlock];
                   SortColumns(rows);
                   MeanOfRows(rows, first, last, scale, mean);
                   std::copy_n(mean, count, to);
                 });
  }

 private:
  const int64_t k_;
};

using Matrix = std::vector<std::vector<double>>;

// Squared distances between all pairs; blocks are added in order.  All rows of
// a block are in the cache while its pairs are computed.
Matrix SquaredDistances(absl::Span<const RulePart> parts) {
  const size_t members = parts.size();
  const size_t length = parts[0].values.size();
  const std::vector<float> factors = MeanFactors(parts);
  Matrix distances(members, std::vector<double>(members));
  BlockRows rows(members);
  for (size_t at = 0; at < length; at += kRuleBlock) {
    rows.Load(parts, factors, at, length);
    for (size_t i = 0; i < members; ++i) {
      for (size_t j = i + 1; j < members; ++j) {
        distances[i][j] += SquaredDistance(rows.row(i), rows.row(j));
      }
    }
  }
  for (size_t i = 0; i < members; ++i) {
    for (size_t j = i + 1; j < members; ++j) distances[j][i] = distances[i][j];
  }
  return distances;
}

// Sum of the `neighbours` least distances to others, least first.
double ScoreOf(std::vector<double> distances, size_t self, size_t neighbours) {
  distances.erase(distances.begin() + static_cast<std::ptrdiff_t>(self));
  std::sort(distances.begin(), distances.end());
  return std::accumulate(
      distances.begin(),
      distances.begin() + static_cast<std::ptrdiff_t>(neighbours), 0.0);
}

// Blanchard, El Mhamdi, Guerraoui and Stainer 2017, "Machine learning with
// adversaries: Byzantine tolerant gradient descent", section 4 (Krum) and 5
// (Multi-Krum).  A part's score is the sum of the squared distances to its
// n - k - 2 nearest others; the `selected` lowest are averaged.
// Assumes n >= 2k + 3, honest gradients drawn from one distribution whose
// spread is small beside its mean.  Multi-Krum is covered for selected <=
// n - k - 2 (Damaskinos et al. 2019, "AggregaThor").
// Decide: one read, n (n - 1) / 2 distances of O(d).
class KrumRule final : public WeightedRule {
 public:
  KrumRule(const RuleSpec& spec, TrustedLoss* /*loss*/)
      : k_(spec.k), selected_(spec.selected) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    const auto members = static_cast<int64_t>(parts.size());
    if (k_ > members - 3) {
      return FailedPrecondition("krum with k=", k_, " needs at least ", k_ + 3,
                                " parts, so that each has a neighbour; ",
                                members,
                                " came: wait for more, or use a lower k");
    }
    if (selected_ > members - k_) {
      return FailedPrecondition("krum averages selected=", selected_, " of ",
                                members, " parts of which k=", k_,
                                " may lie: wait for more, or select fewer");
    }

    const Matrix distances = SquaredDistances(parts);
    for (const std::vector<double>& row : distances) {
      PACELINE_RETURN_IF_ERROR(CheckFinite(parts, row));
    }
    std::vector<double> scores;
    for (size_t i = 0; i < parts.size(); ++i) {
      scores.push_back(
          ScoreOf(distances[i], i, static_cast<size_t>(members - k_ - 2)));
    }
    const std::vector<int> order = Ascending(scores);
    std::vector<double> weights(parts.size(), 0);
    for (int64_t i = 0; i < selected_; ++i) weights[order[i]] = 1;
    return Weighted(parts, weights, std::move(scores), "krum chose", "scores");
  }

 private:
  const int64_t k_;
  const int64_t selected_;
};

// Distance of each part's mean to the coordinate-wise median.
std::vector<double> DistancesToMedian(absl::Span<const RulePart> parts) {
  BlockRows scratch(parts.size());
  std::vector<double> distances =
      SquaredDistancesTo(parts, [&](const BlockRows& means, float* median) {
        scratch = means;
        MedianOfColumns(scratch, median);
      });
  for (double& distance : distances) distance = std::sqrt(distance);
  return distances;
}

double SuspicionOf(double distance, double median_distance) {
  if (median_distance > 0) return distance / median_distance;
  return distance == 0 ? 0 : std::numeric_limits<double>::infinity();
}

// Weighting by suspicion, in a form of our own: s_i is
// the distance of part i to the coordinate-wise median over the median of
// these distances; the k most suspect are dropped, the others weigh
// alpha / (alpha + s_i), normalised.  In spirit the reweighting by residuals
// of Fu, Xie, Li and Chen 2019; no proof of its own.
// Assumes n >= 2k + 1, so that the median is between honest values, and that
// liars are farther from it than most: one that stays close keeps a weight,
// but moves the result no farther than its distance.
// Where half of the members sit on the median itself, the median distance is
// 0: s_i is then 0 for them and infinity for the others, which weigh nothing.
// Decide: one read, a median of n and n distances a coordinate.
class SuspicionRule final : public WeightedRule {
 public:
  SuspicionRule(const RuleSpec& spec, TrustedLoss* /*loss*/)
      : k_(spec.k), alpha_(spec.alpha) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    PACELINE_RETURN_IF_ERROR(CheckDrops("suspicion", k_, parts));
    const std::vector<double> distances = DistancesToMedian(parts);
    PACELINE_RETURN_IF_ERROR(CheckFinite(parts, distances));
    std::vector<double> scores;
    const double median_distance = Median(distances);
    for (const double distance : distances) {
      scores.push_back(SuspicionOf(distance, median_distance));
    }
    // The least suspect is never dropped, and infinity is never the least: the
    // weights cannot all be 0.
    const std::vector<int> order = Ascending(scores);
    std::vector<double> weights(parts.size(), 0);
    for (int64_t i = 0; i < std::ssize(parts) - k_; ++i) {
      weights[order[i]] = alpha_ / (alpha_ + scores[order[i]]);
    }
    return Weighted(parts, weights, std::move(scores), "suspicion uses", "s");
  }

 private:
  const int64_t k_;
  const double alpha_;
};

// Xie, Koyejo and Gupta 2019, "Zeno: distributed stochastic gradient descent
// with suspicion-based fault-tolerance", definitions 2 and 3: the score of a
// mean gradient u is f(x) - f(x - gamma u) - rho |u|^2 on a small batch that
// the server trusts; the n - k highest are averaged (the paper's b is k).
// Assumes one honest member at least, k no fewer than the liars, and a trusted
// batch that resembles the training data.
// Departure: a member whose score is not finite (its step ruins the loss) is
// dropped even if k others are dropped already.
// Decide: one read for the lengths, and n + 1 evaluations of the loss.
class ZenoRule final : public WeightedRule {
 public:
  ZenoRule(const RuleSpec& spec, TrustedLoss* loss)
      : k_(spec.k), gamma_(spec.gamma), rho_(spec.rho), loss_(*loss) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    PACELINE_RETURN_IF_ERROR(CheckDrops("zeno", k_, parts));
    const std::vector<double> lengths =
        SquaredDistancesTo(parts, [](const BlockRows&, float* zeros) {
          std::fill_n(zeros, kRuleBlock, 0.0f);
        });
    PACELINE_RETURN_IF_ERROR(CheckFinite(parts, lengths));
    PACELINE_ASSIGN_OR_RETURN(const double present, loss_.After({}, 0));
    if (!std::isfinite(present)) {
      return FailedPrecondition(
          "zeno's trusted loss is ", present,
          " before any step: the model has diverged, restore a snapshot");
    }
    std::vector<double> scores;
    std::vector<double> worse;  // of each member, the score's negative
    for (size_t i = 0; i < parts.size(); ++i) {
      const double step = gamma_ / static_cast<double>(parts[i].samples);
      PACELINE_ASSIGN_OR_RETURN(const double after,
                                loss_.After(parts[i].values, step));
      double score = present - after - rho_ * lengths[i];
      // Also a loss that fell to minus infinity: no honest step does that.
      if (!std::isfinite(score)) {
        score = -std::numeric_limits<double>::infinity();
      }
      scores.push_back(score);
      worse.push_back(-score);
    }

    const std::vector<int> order = Ascending(worse);
    std::vector<double> weights(parts.size(), 0);
    for (int64_t i = 0; i < std::ssize(parts) - k_; ++i) {
      if (std::isfinite(worse[order[i]])) weights[order[i]] = 1;
    }
    if (weights[order[0]] == 0) {
      return FailedPrecondition(
          "zeno's trusted loss is not finite after a step of gamma=", gamma_,
          " along any of ", parts.size(),
          " parts: skip the step, or lower gamma");
    }
    return Weighted(parts, weights, std::move(scores), "zeno uses", "scores");
  }

 private:
  const int64_t k_;
  const double gamma_;
  const double rho_;
  TrustedLoss& loss_;  // outlives the rule
};

// `loss` is not null where the rule trusts a batch.
template <typename Kind>
std::unique_ptr<Rule> Make(const RuleSpec& spec, TrustedLoss* loss) {
  return std::make_unique<Kind>(spec, loss);
}

// mean withstands no liar at any size: its `withstands` bound is not read.
constexpr RuleTraits kRules[] = {
    {.name = "mean",
     .make = Make<MeanRule>,
     .computes = {1, 1},
     .withstands = {1, 1},
     .what_k_does = "leaves no honest member",
     .source = "",
     .withstands_liars = false,
     .sums_ahead = true},
    {.name = "median",
     .make = Make<MedianRule>,
     .computes = {1, 1},
     .withstands = {2, 1},
     .what_k_does = "leaves no honest member",
     .source = "Yin et al. 2018"},
    {.name = "trimmed-mean",
     .make = Make<TrimmedMeanRule>,
     .computes = {2, 1},
     .withstands = {2, 1},
     .what_k_does = "cuts k values at each end and leaves no part",
     .source = "Yin et al. 2018",
     .needs_k = true},
    {.name = "krum",
     .make = Make<KrumRule>,
     .computes = {1, 3},
     .withstands = {2, 3},
     .what_k_does =
         "compares a part with members - k - 2 others and leaves no part to "
         "compare with",
     .source = "Blanchard et al. 2017",
     .reads_whole_parts = true,
     .selects = true},
    {.name = "suspicion",
     .make = Make<SuspicionRule>,
     .computes = {1, 1},
     .withstands = {2, 1},
     .what_k_does = "drops k members and leaves no part",
     .source = "the median's breakdown point",
     .reads_whole_parts = true},
    {.name = "zeno",
     .make = Make<ZenoRule>,
     .computes = {1, 1},
     .withstands = {1, 1},
     .what_k_does = "drops k members and leaves no part",
     .source = "Xie et al. 2019",
     .needs_k = true,
     .reads_whole_parts = true,
     .trusts_a_batch = true},
};

}  // namespace

absl::Span<const RuleTraits> AllRules() { return kRules; }

}  // namespace paceline
