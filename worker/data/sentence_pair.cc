#include "worker/data/sentence_pair.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/model/data_sets.h"

namespace paceline {

void WritePair(absl::Span<const int64_t> source,
               absl::Span<const int64_t> target, absl::Span<int64_t> input,
               absl::Span<int64_t> labels) {
  const size_t block = labels.size();
  PACELINE_CHECK(
      input.size() == 2 * block && source.size() <= block &&
          target.size() < block,
      absl::StrCat("source=", source.size(), " target=", target.size(),
                   " input=", input.size(), " labels=", block));
  std::fill(input.begin(), input.end(), kPaddingToken);
  std::fill(labels.begin(), labels.end(), kNoLabel);
  std::copy(source.begin(), source.end(), input.begin());
  input[block] = kBeginToken;
  std::copy(target.begin(), target.end(), input.begin() + block + 1);
  std::copy(target.begin(), target.end(), labels.begin());
  labels[target.size()] = kEndToken;
}

}  // namespace paceline
