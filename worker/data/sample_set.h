// A data set: samples by number, in two splits.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// Which samples a micro-batch takes.
struct MicroBatchPlace {
  BatchPhase split = BatchPhase::kTrain;
  int64_t epoch = 0;             // that augmentation draws from
  std::vector<int32_t> indices;  // of the split's samples, in order
};

// Files beside those of a set, which are left out.
struct OtherFiles {
  int64_t count = 0;
  std::string example;  // path of one; empty: there is none

  void Add(std::string path) {
    if (count++ == 0 || path < example) example = std::move(path);
  }
  // rule: what would be read
  void AddTo(std::vector<std::string>& notes,
             const std::string& rule = "") const {
    if (count == 0) return;
    notes.push_back(absl::StrCat(Counted(count, "file"),
                                 count == 1 ? " is" : " are",
                                 " not used, for example ", example, rule));
  }
};

// Samples are numbered with int32, and the order of an epoch holds them all.
constexpr int64_t kMostSamplesOfASplit = std::numeric_limits<int32_t>::max();

// Immutable as far as the tensors go; several loader threads read it at the
// same time.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  // Samples of the training (kTrain) or test (kEvaluate) split.
  int64_t samples(BatchPhase split) const {
    return split == BatchPhase::kTrain ? train_samples_ : test_samples_;
  }

  const SampleFormat& format() const { return format_; }
  const DataFacts& facts() const { return facts_; }

  // Writes the samples of `place` one after the other, into memory that is not
  // initialised:
  //   inputs  [n, ...format().shape] of format().dtype
  //   labels  [n, ...format().label_shape] int64, in [0, classes), or kNoLabel
  //           for what evaluation could not read; n = place.indices.size()
  // The same arguments give the same bytes on every machine.
  //
  // Errors: DataLoss  files have changed since they were opened, or too many
  //         cannot be read: names them
  virtual absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                            Tensor& labels) const = 0;

  // The label of each training sample; empty where samples have several, or
  // none that is known before a sample is made.
  virtual std::vector<int32_t> TrainLabels() const { return {}; }

  // Bytes that are kept of or for its samples.
  virtual int64_t memory_bytes() const { return 0; }

  // As BatchSource.
  virtual UnreadableSamples Unreadable(BatchPhase /*split*/) const {
    return {};
  }

  // The names of the first `samples` of the test split, and of all classes.
  virtual SampleNames TestNames(int64_t /*samples*/) const { return {}; }

 protected:
  SampleSet(SampleFormat format, int64_t train_samples, int64_t test_samples)
      : format_(std::move(format)),
        train_samples_(train_samples),
        test_samples_(test_samples) {}

  DataFacts facts_;  // constant once the set is open

 private:
  const SampleFormat format_;
  const int64_t train_samples_;
  const int64_t test_samples_;
};

// DataFacts::classes of these names: a line each, or a hash of very many.
std::string ClassesText(const std::vector<std::string>& names);

// Loaders keep at most so much ready for the compute thread.
constexpr int kAheadPerThread = 4;
constexpr int64_t kMostBytesAhead = int64_t{256} << 20;

// How many micro-batches that is: kAheadPerThread a thread, or as many as have
// kMostBytesAhead together where these are fewer, but one a thread.
int64_t MicroBatchesAhead(const SampleFormat& format, int64_t micro_batch,
                          int threads);

// In memory of its own: inputs and labels.  Errors: those of Load()
absl::StatusOr<TensorList> LoadMicroBatch(const SampleSet& samples,
                                          const MicroBatchPlace& place);

}  // namespace paceline
