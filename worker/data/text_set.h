// Texts as a data set: blocks of tokens, each to be told from those before it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/sample_set.h"
#include "worker/data/token_source.h"

namespace paceline {

struct TextOptions {
  std::string path;    // a file, or a folder with train.* and perhaps val.*
  std::string tokens;  // "byte", "character", "uint16"
  int64_t block = 128;
  int32_t classes = 256;
  // Where there is one file: the share of its tokens, at its end, that is the
  // test split.
  double test_fraction = 0.1;
};

// Sample i of a split is its tokens [i * block, (i + 1) * block), and its
// labels are the same moved by one: what comes next, at each place.  What is
// left at a split's end, less than a block and one, is not used.  Immutable.
class TextSet final : public SampleSet {
 public:
  // In a folder, the files are train.txt and val.txt, for uint16 train.bin and
  // val.bin; without the second, the end of the first is the test split.
  //
  // Errors: those of OpenTokenFile and OpenCharacters; InvalidArgument when a
  // block does not fit into a split: says both lengths
  static absl::StatusOr<std::unique_ptr<TextSet>> Open(
      const TextOptions& options);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  // A part of a source.
  struct Split {
    const TokenSource* source = nullptr;
    int64_t first = 0;
    int64_t samples = 0;
  };

  TextSet(const TextOptions& options,
          std::vector<std::unique_ptr<TokenSource>> sources);
  void Divide();
  absl::Status CheckLengths() const;

  const TextOptions options_;
  const SampleFormat format_;
  const std::vector<std::unique_ptr<TokenSource>> sources_;  // 1 or 2
  // Constant once Divide() is done.
  Split train_;
  Split test_;
  int64_t train_tokens_ = 0;
  int64_t test_tokens_ = 0;
};

}  // namespace paceline
