#include "core/model/language_sizes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int32_t kMostDepth = 512;

absl::Status CheckRange(const ModelSpec& spec, const char* what, int64_t value,
                        int64_t most) {
  return CheckModelSize(spec, what, value, 1, most);
}

}  // namespace

absl::Status CheckModelSize(const ModelSpec& spec, const char* what,
                            int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(spec.name, ": ", what, " must be from ", least, " to ", most,
                   ", got ", value));
}

ModelSpec WithSizesOfData(ModelSpec spec, const Shape& input, int64_t tokens) {
  if (spec.positions == 0 && input.size() == 1 && input[0] <= kMostTokens) {
    spec.positions = static_cast<int32_t>(input[0]);
  }
  if (spec.vocabulary == 0 && tokens <= kMostTokens) {
    spec.vocabulary = static_cast<int32_t>(tokens);
  }
  return spec;
}

absl::Status CheckLanguageSizes(const ModelSpec& spec, const Shape& input,
                                int64_t before) {
  absl::Status status = CheckRange(spec, "depth", spec.depth, kMostDepth);
  status.Update(CheckRange(spec, "width", spec.width, kLargestSize));
  status.Update(CheckRange(spec, "heads", spec.heads, kLargestSize));
  status.Update(CheckRange(spec, "positions", spec.positions, kMostTokens));
  status.Update(CheckRange(spec, "vocabulary", spec.vocabulary, kMostTokens));
  if (!status.ok()) return status;
  if (spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, ": heads must divide width, got heads ",
                     spec.heads, " and width ", spec.width));
  }
  if (input.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, " needs tokens [block], got samples of shape [",
                     absl::StrJoin(input, ", "), "]"));
  }
  if (input[0] > spec.positions - before) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, " has positions for samples of at most ",
                     spec.positions - before, " tokens, got ", input[0],
                     ": lower data.block, or raise model.positions"));
  }
  return absl::OkStatus();
}

}  // namespace paceline
