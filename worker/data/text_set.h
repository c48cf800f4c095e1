// Texts as data sets.  A sample is a block of tokens, each to be told from
// those before it; or a line: a labelled text, or a pair of sentences.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/job/spec/job_spec.h"
#include "core/os/files.h"
#include "worker/data/sample_set.h"

namespace paceline {

// `path` itself; or of a folder its train.txt and, if there is one, val.txt.
std::vector<std::string> TextFilesOf(const std::string& path,
                                     const std::string& ending = ".txt");

// Writes a pair of sentences as a sample (core/data/data_sets.h).  Words are
// tokens that no text is about; sources have at most a block of them, targets
// one less.
//   input   [2 block]; written
//   labels  [block]; written
void WritePair(absl::Span<const int64_t> source,
               absl::Span<const int64_t> target, absl::Span<int64_t> input,
               absl::Span<int64_t> labels);

// `text-labels`: a file is lines `LABEL TAB TEXT`.  The label is a whole number
// below data.classes, or kNoLabel where all lines are for inference
// (data.test_fraction 1), and the text any bytes but data.padding and line
// feeds.  A sample is token 2 (ASCII's "start of text", whose place in the last
// layer a classifier looks at), the text's bytes as far as the block goes, and
// data.padding up to its end.
//
// `text-pairs`: a file is lines `SOURCE TAB TARGET`, of any bytes but line
// feeds and those below kFirstWordToken, which mean something else to a
// decoder; a target may have tabulators.  Of a source a sample takes as many
// bytes as a block has, of a target one less.
//
// A byte-order mark before the first line is passed over, and so is a carriage
// return at a line's end.  Keeps where each text lies, and reads it when it is
// needed.  Immutable.
class TextLines final : public SampleSet {
 public:
  // data.path: a file whose last lines (data.test_fraction) are the test split;
  // with data.test_fraction 1 all of it, which is in both splits then.  Or a
  // folder with train.txt and perhaps val.txt.
  //
  // Errors (the message names file and line):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  no tabulator, a label that is no class, nothing before a
  //                    pair's tabulator, a byte that no text may have, or a
  //                    split without lines
  //   inference  only the test split matters
  static absl::StatusOr<std::unique_ptr<TextLines>> Open(
      const DataSpec& data, bool inference = false);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;
  std::vector<int32_t> TrainLabels() const override;
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(sizeof(Line)) *
           (std::ssize(lines_.train) + std::ssize(lines_.test));
  }

 private:
  // Where a text lies.
  struct Text {
    int64_t first = 0;  // byte
    int64_t bytes = 0;  // as far as a block takes them
  };
  struct Line {
    int32_t file = 0;
    int32_t label = 0;
    Text source;  // of a pair
    Text text;    // of a pair the target
  };
  class Reader;
  struct Split {
    std::vector<Line> train;
    std::vector<Line> test;
  };
  using Files = std::vector<std::unique_ptr<ByteFile>>;  // 1 or 2

  TextLines(const DataSpec& data, Files files, Split lines);
  static void NoteSorted(const DataSpec& data, const Split& lines,
                         bool one_file, std::vector<std::string>& notes);
  absl::Status ReadText(int32_t file, const Text& text,
                        std::vector<int64_t>& tokens) const;

  const DataSpec data_;
  const Files files_;
  const Split lines_;
};

// A row of tokens.  Immutable; several threads may read at the same time.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;
  virtual int64_t memory_bytes() const { return 0; }

  // Tokens [first, first + into.size()), which must exist.
  // Errors: DataLoss  the file is shorter than when it was opened
  virtual absl::Status Read(int64_t first, absl::Span<int64_t> into) const = 0;
};

// Sample i of a split is its tokens [i * block, (i + 1) * block), and its
// labels are the same moved by one: what comes next, at each place.  What is
// left at a split's end, less than a block and one, is not used.  Immutable.
//
// data.tokens says what a token is.  `byte` and `uint16` (little endian, as
// nanoGPT's prepare.py writes them): nothing is kept in memory.  `character`:
// UTF-8, numbered by rank among all different ones of the files, which are
// sorted by code point; kept in memory at two bytes each.
class TextSet final : public SampleSet {
 public:
  // data.path: a file, or a folder with train.txt and val.txt, for uint16
  // train.bin and val.bin; without the second, the end of the first is the test
  // split (data.test_fraction).  Reads each file once to see that all tokens
  // are below data.classes, where they might not be.
  //
  // Errors (the message names the file):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  half a token at the end, a token that is too great, not
  //                    UTF-8, more different characters than data.classes or
  //                    65536, a block that does not fit into a split
  //   inference  only the test split matters
  static absl::StatusOr<std::unique_ptr<TextSet>> Open(const DataSpec& data,
                                                       bool inference = false);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;
  int64_t memory_bytes() const override;

 private:
  // A part of a source.
  struct Split {
    const TokenSource* source = nullptr;
    int64_t first = 0;
    int64_t tokens = 0;
  };
  using Sources = std::vector<std::unique_ptr<TokenSource>>;  // 1 or 2

  TextSet(const DataSpec& data, Sources sources, Split train, Split test);

  const int64_t block_;
  const Sources sources_;
  const Split train_;
  const Split test_;
};

}  // namespace paceline
