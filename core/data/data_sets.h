// The data sets by name: what is known of each without its files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// Says what one sample is made of.
struct SampleFormat {
  DType dtype = DType::kF32;  // kI64: tokens, each below VocabularyOf()
  Shape shape;  // [channels, height, width], [block], or [2 x block] of pairs
  // int64; [] is one class a sample, [block] one a token, of pairs of a target.
  Shape label_shape;

  friend bool operator==(const SampleFormat&, const SampleFormat&) = default;
};

// The label of a sample that counts for nothing: not in the loss, not in the
// accuracy.  Evaluation gives it to what could not be read.  The number is
// LibTorch's default `ignore_index`, so that its losses leave it out too.
constexpr int64_t kNoLabel = -100;

// So many samples of a split may be unreadable, by all workers and attempts
// together, before the job fails: a tenth, or two where that is less; but not
// all, and no more than kMostUnreadable, since each is kept by its number.
constexpr int64_t kMostUnreadable = 4096;
int64_t MostUnreadable(int64_t samples);

// Tokens have a label each, or one a sample; of a pair of sentences those of
// the second one have.
enum class SampleKind : uint8_t { kImages, kTokens, kLabelledTokens, kPairs };

// In a sample of kPairs [2 x block] the first block is the source: its tokens,
// and padding.  The second is the target as a decoder takes it in: the begin
// token, its tokens, and padding.  The labels [block] are the target's tokens,
// the end token, and kNoLabel where padding is.  The bytes are ASCII's: start
// and end of text.
constexpr int64_t kPaddingToken = 0;
constexpr int64_t kBeginToken = 2;
constexpr int64_t kEndToken = 3;
constexpr int64_t kFirstWordToken = 4;  // of those that no text is about

struct DataSetTraits {
  const char* name;
  SampleKind kind;
  bool needs_path;
  bool own_shape;  // shape and classes are those of the files, not the job's
  Shape shape;     // by default; a token set's follows from the block
  int32_t classes;
  int64_t train_samples = 0;  // in its files; 0: not always the same
  bool in_memory = false;     // readers keep all samples, a byte a value
};

// All of them, sorted by name.
std::vector<std::string> DataSetNames();

// Null when there is no such data set.
const DataSetTraits* FindDataSet(const std::string& name);

// A spec of that data set with its own defaults; those of DataSpec when there
// is no such data set.
DataSpec DefaultDataSpec(const std::string& name);

// Debian's package puts it there.
inline constexpr char kFashionMnistFolder[] =
    "/usr/share/datasets/fashion-mnist";

// Returns the form of the samples of `data`.  data.name names a data set.
SampleFormat FormatOf(const DataSpec& data);

// Whether the samples are drawn from a seed and need no files.
bool IsSynthetic(const DataSpec& data);

// The file or the folder of the set; empty: it has none.
std::string FilesOf(const DataSpec& data);

// The files and folders that workers open, by the keys that name them; empty:
// none.
std::vector<std::pair<std::string, std::string>> FilesOf(const JobSpec& spec);

// Samples of an epoch; 0: only a worker that reads the files knows.
int64_t TrainSamplesOf(const DataSpec& data);

// `data` with the mean and the deviation of pixel values that it takes, one a
// channel: its own, or the data set's.
DataSpec WithPixelScale(DataSpec data);

// How many different tokens there are; 0 where samples are none.
int64_t VocabularyOf(const DataSpec& data);

// Adds what is wrong with `data`; true when name, shape and classes are good,
// so that a model may be described with them.
bool CheckDataSpec(const DataSpec& data, SpecProblems& problems);

}  // namespace paceline
