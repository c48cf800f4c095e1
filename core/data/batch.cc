#include "core/data/batch.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"

namespace paceline {
namespace {

// Keeps the shuffle's stream apart from others drawn from (seed, small number).
constexpr uint64_t kOrderStream = 0x6f72646572;  // "order"

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t TotalSteps(const TrainSpec& train, int64_t steps_per_epoch) {
  if (train.steps > 0) return train.steps;
  int64_t steps = 0;
  return __builtin_mul_overflow(train.epochs, steps_per_epoch, &steps)
             ? std::numeric_limits<int64_t>::max()
             : steps;
}

// Micro-batches of the first `steps` training batches.
int64_t MicroBatchesIn(const TrainSpec& train, int64_t train_samples,
                       int64_t steps_per_epoch, int64_t steps) {
  const int64_t batch = CeilDivide(train.batch, train.micro_batch);
  const int64_t last = train_samples - (steps_per_epoch - 1) * train.batch;
  const int64_t epoch =
      (steps_per_epoch - 1) * batch + CeilDivide(last, train.micro_batch);
  int64_t updates = 0;
  if (__builtin_mul_overflow(steps / steps_per_epoch, epoch, &updates) ||
      __builtin_add_overflow(updates, steps % steps_per_epoch * batch,
                             &updates)) {
    return std::numeric_limits<int64_t>::max();
  }
  return updates;
}

constexpr uint64_t kPartsStream = 0x70617274;  // "part"

// A group of members gets a run of the sorted samples, and spreads it over its
// members.
int GroupsOf(DistributionKind kind, int parts) {
  if (kind == DistributionKind::kByLabel) return parts;
  return kind == DistributionKind::kClustered ? std::min(2, parts) : 1;
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

BatchWalk::BatchWalk(const TrainSpec& train, int64_t train_samples,
                     int64_t test_samples, int64_t first_step, bool evaluated)
    : train_(train),
      train_samples_(train_samples),
      test_samples_(test_samples),
      steps_per_epoch_(CeilDivide(train_samples, train.batch)),
      total_steps_(TotalSteps(train, steps_per_epoch_)),
      total_micro_batches_(total_steps_ > 0
                               ? MicroBatchesIn(train, train_samples,
                                                steps_per_epoch_, total_steps_)
                               : CeilDivide(test_samples, train.micro_batch)),
      step_(total_steps_ > 0 ? first_step : 0) {
  PACELINE_CHECK(train_samples > 0 && test_samples >= 0,
                 "train_samples=", train_samples,
                 " test_samples=", test_samples);
  const int64_t last = total_steps_ > 0 ? total_steps_ : total_micro_batches_;
  PACELINE_CHECK(first_step >= 0 && first_step <= last,
                 "first_step=", first_step, " of=", last);
  if (total_steps_ == 0) {
    ordinal_ = first_step;
    const int64_t done = first_step * train.micro_batch;
    if (done < test_samples) evaluated_ = done;
  } else if (EvaluationIsDue(first_step) && !evaluated) {
    evaluated_ = 0;
  }
}

std::optional<WalkBatch> BatchWalk::Next() {
  if (evaluated_ >= 0) return EvaluationBatch();
  if (step_ >= total_steps_) return std::nullopt;
  WalkBatch batch = Training(step_++);
  batch.info.ordinal = ordinal_++;
  if (EvaluationIsDue(step_)) evaluated_ = 0;
  return batch;
}

bool BatchWalk::EvaluationIsDue(int64_t steps) const {
  if (test_samples_ == 0) return false;
  if (steps == total_steps_) return true;
  return steps > 0 && train_.evaluate_every > 0 &&
         steps % steps_per_epoch_ == 0 &&
         steps / steps_per_epoch_ % train_.evaluate_every == 0;
}

WalkBatch BatchWalk::Training(int64_t step) const {
  PACELINE_CHECK(step >= 0 && step < total_steps_, "step=", step,
                 " of=", total_steps_);
  const bool evaluation = EvaluationIsDue(step + 1);
  const int64_t first = step % steps_per_epoch_ * train_.batch;
  WalkBatch batch = BatchOf(BatchPhase::kTrain, step,
                            std::min(train_.batch, train_samples_ - first));
  batch.epoch = step / steps_per_epoch_;
  batch.first = first;
  BatchInfo& info = batch.info;
  info.final_batch = step + 1 == total_steps_ && !evaluation;
  info.drains = info.final_batch || evaluation;
  info.total_micro_batches = total_micro_batches_;
  info.first_update =
      MicroBatchesIn(train_, train_samples_, steps_per_epoch_, step);
  return batch;
}

WalkBatch BatchWalk::Evaluation(int64_t steps) const {
  WalkBatch batch = BatchOf(BatchPhase::kEvaluate, steps,
                            EvaluationIsDue(steps) ? test_samples_ : 0);
  batch.info.final_batch = steps == total_steps_;
  return batch;
}

WalkBatch BatchWalk::EvaluationBatch() {
  WalkBatch batch = BatchOf(BatchPhase::kEvaluate, step_,
                            std::min(train_.batch, test_samples_ - evaluated_));
  batch.first = evaluated_;
  BatchInfo& info = batch.info;
  info.ordinal = ordinal_++;
  evaluated_ += info.samples;
  const bool last_of_evaluation = evaluated_ == test_samples_;
  if (last_of_evaluation) evaluated_ = -1;
  info.final_batch = last_of_evaluation && step_ == total_steps_;
  if (total_steps_ == 0) info.total_micro_batches = total_micro_batches_;
  return batch;
}

WalkBatch BatchWalk::BatchOf(BatchPhase phase, int64_t steps,
                             int64_t samples) const {
  WalkBatch batch;
  batch.epoch = std::max<int64_t>(0, steps - 1) / steps_per_epoch_;
  batch.info.ordinal = steps;
  batch.info.phase = phase;
  batch.info.step = steps;
  batch.info.samples = samples;
  batch.info.micro_batches =
      static_cast<int32_t>(CeilDivide(samples, train_.micro_batch));
  return batch;
}

int64_t StepsBeside(const TrainSpec& before, int64_t steps,
                    const TrainSpec& now) {
  if (now.steps > 0) return now.steps;
  if (before.steps > 0 || before.epochs < 1 || now.batch != before.batch) {
    return 0;
  }
  return TotalSteps(now, steps / before.epochs);
}

std::vector<std::string> WalkNotes(const TrainSpec& train, int64_t samples,
                                   int64_t steps) {
  std::vector<std::string> notes;
  if (samples > 0) steps = TotalSteps(train, CeilDivide(samples, train.batch));
  const bool whole = samples > 0 ? train.batch > samples
                                 : train.steps == 0 && steps == train.epochs;
  if (whole) {
    notes.push_back(absl::StrCat(
        "train.batch is ", train.batch, ", and the data has ",
        samples > 0 ? absl::StrCat(Counted(samples, "sample"), " to train on")
                    : "no more samples to train on",
        ": every batch is all of it, and an epoch is one step"));
  }
  if (steps <= 0) return notes;
  const std::string of_steps =
      absl::StrCat(", and the job has ", Counted(steps, "step"), ": ");
  const LearningRateSpec& rate = train.learning_rate;
  if (rate.warmup_steps >= steps) {
    notes.push_back(absl::StrFormat(
        "train.learning_rate.warmup_steps is %d%sthe learning rate only rises, "
        "up to %.4g",
        rate.warmup_steps, of_steps,
        rate.base * static_cast<double>(steps) /
            static_cast<double>(rate.warmup_steps)));
  } else if (rate.schedule == "step" &&
             rate.warmup_steps + rate.step_every >= steps) {
    notes.push_back(absl::StrCat("train.learning_rate.step_every is ",
                                 rate.step_every, of_steps,
                                 "the learning rate never drops"));
  }
  if (train.checkpoint_every > steps) {
    notes.push_back(absl::StrCat("train.checkpoint_every is ",
                                 train.checkpoint_every, of_steps,
                                 "no checkpoint is made"));
  }
  return notes;
}

int64_t MicroBatchSamples(const BatchInfo& batch, int64_t micro_batch_size,
                          int micro_batch) {
  PACELINE_CHECK(micro_batch >= 0 && micro_batch < batch.micro_batches,
                 "micro_batch=", micro_batch, " of=", batch.micro_batches);
  return std::min(micro_batch_size,
                  batch.samples - micro_batch * micro_batch_size);
}

std::vector<int32_t> SampleOrder(int64_t seed, int64_t epoch, int64_t samples) {
  PACELINE_CHECK(samples >= 0, "samples=", samples);
  std::vector<int32_t> order(samples);
  FillSampleOrder(seed, epoch, absl::MakeSpan(order));
  return order;
}

void FillSampleOrder(int64_t seed, int64_t epoch, absl::Span<int32_t> order) {
  PACELINE_CHECK(std::ssize(order) <= std::numeric_limits<int32_t>::max(),
                 "samples=", order.size());
  std::iota(order.begin(), order.end(), 0);
  SplitMix64 random(MixSeed({kOrderStream, static_cast<uint64_t>(seed),
                             static_cast<uint64_t>(epoch)}));
  for (int64_t i = std::ssize(order) - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i + 1)]);
  }
}

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
