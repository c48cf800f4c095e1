#include "core/job/spec/job_spec.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"

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

}  // namespace paceline
