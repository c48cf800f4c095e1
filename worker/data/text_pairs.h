// Pairs of sentences, a line each, byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/sample_set.h"
#include "worker/data/text_lines.h"

namespace paceline {

// A file is lines `SOURCE TAB TARGET`, of any bytes but line feeds and those
// below kFirstWordToken, which mean something else to a decoder; a target may
// have tabulators.  Of a source a sample takes as many bytes as a block has, of
// a target one less.  Immutable.
class TextPairs final : public SampleSet {
 public:
  // data.path: a file whose last lines (data.test_fraction) are the test split;
  // or a folder with train.txt and perhaps val.txt.
  //
  // Errors (the message names file and line):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  no tabulator, nothing before it, a byte that no text may
  //                    have, or a split without lines
  static absl::StatusOr<std::unique_ptr<TextPairs>> Open(const DataSpec& data);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  // Where a sentence lies.
  struct Sentence {
    int64_t first = 0;  // byte
    int64_t bytes = 0;  // as far as a block takes them
  };
  struct Line {
    int32_t file = 0;
    Sentence source;
    Sentence target;
  };
  class Reader;

  TextPairs(const DataSpec& data, TextFiles files, SplitLines<Line> lines)
      : data_(data),
        format_(FormatOf(data)),
        files_(std::move(files)),
        lines_(std::move(lines)) {}
  absl::Status Read(int32_t file, const Sentence& sentence,
                    std::vector<int64_t>& words) const;

  const DataSpec data_;
  const SampleFormat format_;
  const TextFiles files_;
  const SplitLines<Line> lines_;
};

}  // namespace paceline
