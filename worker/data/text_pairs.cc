#include "worker/data/text_pairs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "worker/data/sentence_pair.h"

namespace paceline {

class TextPairs::Reader final : public LineReader {
 public:
  // lines outlives this.
  Reader(const DataSpec& data, int32_t file, const std::string& path,
         std::vector<Line>& lines)
      : LineReader(path), block_(data.block), file_(file), lines_(lines) {}

 private:
  bool has_begun_line() const override {
    return in_target_ || line_.source.bytes > 0;
  }

  absl::Status TakeByte(int64_t at, uint8_t byte) override {
    if (byte == '\t' && !in_target_) return BeginTarget(at + 1);
    if (byte < kFirstWordToken) {
      return Refuse(absl::StrCat("has a byte ", static_cast<int>(byte),
                                 ", which stands for what is no text; take it "
                                 "out"));
    }
    Sentence& sentence = in_target_ ? line_.target : line_.source;
    if (!in_target_ && sentence.bytes == 0) sentence.first = at;
    // One token of a target's block is its end.
    const int64_t most = in_target_ ? block_ - 1 : block_;
    sentence.bytes = std::min(sentence.bytes + 1, most);
    return absl::OkStatus();
  }

  absl::Status BeginTarget(int64_t at) {
    if (line_.source.bytes == 0) {
      return Refuse("has nothing before its tabulator");
    }
    in_target_ = true;
    line_.target = {at, 0};
    return absl::OkStatus();
  }

  absl::Status EndLine() override {
    if (!in_target_) {
      return Refuse("has no tabulator; a line is SOURCE TAB TARGET");
    }
    line_.file = file_;
    lines_.push_back(std::exchange(line_, {}));
    in_target_ = false;
    return absl::OkStatus();
  }

  const int64_t block_;
  const int32_t file_;
  std::vector<Line>& lines_;
  bool in_target_ = false;
  Line line_;
};

absl::StatusOr<std::unique_ptr<TextPairs>> TextPairs::Open(
    const DataSpec& data) {
  PACELINE_ASSIGN_OR_RETURN(TextFiles files, OpenTextFiles(data.path));
  SplitLines<Line> lines;
  PACELINE_RETURN_IF_ERROR(ReadLines<Reader>(data, files, lines));
  return std::unique_ptr<TextPairs>(
      new TextPairs(data, std::move(files), std::move(lines)));
}

int64_t TextPairs::samples(BatchPhase split) const {
  return static_cast<int64_t>(lines_.of(split).size());
}

absl::Status TextPairs::Read(int32_t file, const Sentence& sentence,
                             std::vector<int64_t>& words) const {
  std::vector<uint8_t> bytes(sentence.bytes);
  PACELINE_RETURN_IF_ERROR(
      files_[file]->ReadAt(sentence.first, absl::MakeSpan(bytes)));
  words.assign(bytes.begin(), bytes.end());
  return absl::OkStatus();
}

absl::Status TextPairs::Load(const MicroBatchPlace& place, Tensor& inputs,
                             Tensor& labels) const {
  const std::vector<Line>& lines = lines_.of(place.split);
  const int64_t block = data_.block;
  std::vector<int64_t> source, target;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const Line& line = lines[place.indices[i]];
    PACELINE_RETURN_IF_ERROR(Read(line.file, line.source, source));
    PACELINE_RETURN_IF_ERROR(Read(line.file, line.target, target));
    WritePair(source, target,
              inputs.As<int64_t>().subspan(2 * i * block, 2 * block),
              labels.As<int64_t>().subspan(i * block, block));
  }
  return absl::OkStatus();
}

}  // namespace paceline
