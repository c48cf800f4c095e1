// Texts as a data set: blocks of tokens, each to be told from those before it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// A row of tokens.  Immutable; several threads may read at the same time.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;

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
  static absl::StatusOr<std::unique_ptr<TextSet>> Open(const DataSpec& data);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

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
