#include "core/job/spec/job_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace {

// Three rows of the matrix of Wagner and Fischer 1974; two neighbours that
// changed places are one mistake (Damerau 1964).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1),
      row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

JobSpec::JobSpec() = default;
JobSpec::JobSpec(const JobSpec& other) = default;
JobSpec::JobSpec(JobSpec&& other) noexcept = default;
JobSpec& JobSpec::operator=(const JobSpec& other) = default;
JobSpec& JobSpec::operator=(JobSpec&& other) noexcept = default;
JobSpec::~JobSpec() = default;

JobSpec WithoutAbsentReplicas(
    JobSpec spec, const std::function<bool(const std::string&)>& is_there) {
  PipelineSpec& pipeline = spec.pipeline;
  size_t first = 0;  // of the stage's workers
  for (int32_t& replicas : pipeline.replicas) {
    for (size_t i = first; replicas > 1 && i < first + replicas;) {
      if (is_there(pipeline.workers[i])) {
        ++i;
        continue;
      }
      pipeline.workers.erase(pipeline.workers.begin() + i);
      if (!pipeline.shares.empty()) {
        pipeline.shares.erase(pipeline.shares.begin() + i);
      }
      --replicas;
    }
    first += replicas;
  }
  return spec;
}

int64_t MicroBatchesOfAStep(const TrainSpec& train) {
  if (train.micro_batch < 1) return 0;
  return train.batch / train.micro_batch +
         (train.batch % train.micro_batch > 0 ? 1 : 0);
}

TrainSpec ForInference(const InferSpec& infer, int64_t seed) {
  TrainSpec train;
  train.epochs = 0;
  train.steps = 0;
  train.batch = infer.micro_batch;
  train.micro_batch = infer.micro_batch;
  train.seed = seed;
  return train;
}

std::string PresentPolicy(absl::string_view policy) {
  return std::string(policy == "dp" ? "optimal" : policy);
}

std::string DidYouMean(const std::string& word,
                       const std::vector<std::string>& known) {
  const std::string lower = absl::AsciiStrToLower(word);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : known) {
    const size_t distance =
        EditDistance(lower, absl::AsciiStrToLower(candidate));
    const size_t longer = std::max(word.size(), candidate.size());
    if (distance > std::max<size_t>(longer / 3, 1)) continue;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string MeantText(const std::string& word,
                      const std::vector<std::string>& known) {
  const std::string meant = DidYouMean(word, known);
  return meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?");
}

bool SpecProblems::Whole(const char* path, int64_t value, int64_t low,
                         int64_t high) {
  if (value >= low && value <= high) return true;
  Add(path, "must be a whole number from ", low, " to ", high, ", got ", value);
  return false;
}

bool SpecProblems::Number(const char* path, double value, bool good,
                          const char* range) {
  if (good && std::isfinite(value)) return true;
  Add(path, "must be ", range, ", got ", value);
  return false;
}

bool SpecProblems::OneOf(const char* path, const char* what,
                         const std::string& word,
                         const std::vector<std::string>& known) {
  if (std::ranges::find(known, word) != known.end()) return true;
  const std::string choices = absl::StrJoin(known, ", ");
  if (word.empty()) {
    Add(path, "names no ", what, "; choose one of: ", choices);
    return false;
  }
  Add(path, "unknown ", what, " '", word, "'", MeantText(word, known),
      "; choose one of: ", choices);
  return false;
}

// Daemons run in folders of their own: a relative path would mean another
// place on each of them.
bool SpecProblems::AbsolutePath(const char* path, const std::string& file,
                                const char* readers) {
  if (file.empty() || file.front() == '/') return true;
  Add(path, "must be an absolute path, at which ", readers, " finds it; got '",
      absl::CHexEscape(file), "'");
  return false;
}

void SpecProblems::Shares(const char* path, const std::vector<double>& shares,
                          size_t workers) {
  constexpr double kLeastShare = 1e-9, kGreatestShare = 1e9;
  const bool positive = std::ranges::all_of(shares, [](double share) {
    return share >= kLeastShare && share < kGreatestShare;
  });
  if (positive && shares.size() == workers) return;
  Add(path, "must be a positive number, ", kLeastShare, " to ", kGreatestShare,
      ", for each of the ", workers, " workers, got ",
      absl::StrJoin(shares, ","));
}

std::vector<SpecProblem> SpecProblems::Take() { return std::move(problems_); }

std::optional<Recompute> FindRecompute(absl::string_view name) {
  if (name == "none") return Recompute{};
  if (name == "stage") return Recompute{true, kWholeStage};
  int every = 0;
  // Only digits: SimpleAtoi would take a sign and blanks.
  if (!absl::ConsumePrefix(&name, "every-") || name.empty() ||
      name.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(name, &every) || every < 1 ||
      every > kMostLayersASegment) {
    return std::nullopt;
  }
  return Recompute{true, every};
}

std::vector<std::pair<int, int>> SegmentsOf(const Recompute& recompute,
                                            int layers) {
  const bool whole = !recompute.recomputes || recompute.every == kWholeStage;
  const int step = whole ? layers : std::min(recompute.every, layers);
  std::vector<std::pair<int, int>> segments;
  for (int first = 0; first < layers; first += step) {
    segments.emplace_back(first, std::min(first + step, layers));
  }
  return segments;
}

FaultPlan::FaultPlan(const std::vector<FaultSpec>& specs,
                     absl::string_view worker, bool began_with_the_job) {
  for (const FaultSpec& fault : specs) {
    if (fault.worker != worker) continue;
    if (fault.kind == "kill" && !began_with_the_job) continue;
    faults_.push_back(fault);
  }
}

StepFaults FaultPlan::At(int64_t step) const {
  StepFaults now;
  for (const FaultSpec& fault : faults_) {
    if (step < fault.step ||
        (fault.steps > 0 && step - fault.step >= fault.steps)) {
      continue;
    }
    if (fault.kind == "kill" && fault.phase == "computing") now.kill = true;
    if (fault.kind == "hang") now.hang += absl::Seconds(fault.seconds);
    if (fault.kind == "delay") now.delay += absl::Seconds(fault.seconds);
    if (fault.kind == "label-flip") now.label_flip = true;
    if (fault.kind == "sign-flip") now.sign_flip = fault.scale;
    if (fault.kind == "gaussian") now.gaussian = fault.scale;
    if (fault.kind == "nan") now.nan = true;
    if (fault.kind == "bit-flip") now.bit_flip = true;
    if (fault.kind == "duplicate") now.duplicate = true;
  }
  return now;
}

bool FaultPlan::KillsServer(int64_t step, absl::string_view phase) const {
  return std::ranges::any_of(faults_, [step, phase](const FaultSpec& fault) {
    return fault.kind == "kill" && fault.phase == phase && step >= fault.step;
  });
}

}  // namespace paceline
