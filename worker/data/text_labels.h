// Labelled texts, a line each, byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/data/sample_set.h"
#include "worker/data/text_lines.h"

namespace paceline {

// A file is lines `LABEL TAB TEXT`; the label is a whole number below
// data.classes, or kNoLabel where all lines are for inference
// (data.test_fraction 1), and the text any bytes but data.padding and line
// feeds.  A sample is token 2 (ASCII's "start of text", whose place in the last
// layer a classifier looks at), the text's bytes as far as the block goes, and
// data.padding up to its end.  Immutable.
class TextLabels final : public SampleSet {
 public:
  // data.path: a file whose last lines (data.test_fraction) are the test split,
  // or a folder with train.txt and perhaps val.txt.
  //
  // Errors (the message names file and line):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  no tabulator, a label that is no class, padding inside a
  //                    text, or a split without lines
  static absl::StatusOr<std::unique_ptr<TextLabels>> Open(const DataSpec& data);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  // Where a text lies.
  struct Line {
    int32_t file = 0;
    int32_t label = 0;
    int64_t first = 0;  // byte of the text
    int64_t bytes = 0;  // as far as a block takes them
  };
  class Reader;

  TextLabels(const DataSpec& data, TextFiles files, SplitLines<Line> lines)
      : data_(data),
        format_(FormatOf(data)),
        files_(std::move(files)),
        lines_(std::move(lines)) {}

  const DataSpec data_;
  const SampleFormat format_;
  const TextFiles files_;
  const SplitLines<Line> lines_;
};

}  // namespace paceline
