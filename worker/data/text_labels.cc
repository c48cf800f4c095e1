#include "worker/data/text_labels.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {

class TextLabels::Reader final : public LineReader {
 public:
  // data and lines outlive this.
  Reader(const DataSpec& data, int32_t file, const std::string& path,
         std::vector<Line>& lines)
      : LineReader(path), data_(data), file_(file), lines_(lines) {}

 private:
  bool has_begun_line() const override {
    return in_text_ || negative_ || digits_ > 0;
  }

  absl::Status TakeByte(int64_t at, uint8_t byte) override {
    if (in_text_) return TakeText(byte);
    if (byte == '\t' && digits_ > 0) return BeginText(at + 1);
    if (byte == '-' && digits_ == 0 && !negative_) {
      negative_ = true;
      return absl::OkStatus();
    }
    if (byte < '0' || byte > '9' || ++digits_ > kMostDigits) {
      return RefuseLabel();
    }
    label_ = 10 * label_ + (byte - '0');
    return absl::OkStatus();
  }

  absl::Status RefuseLabel() const {
    return Refuse(
        "does not begin with a label and a tabulator; a line is LABEL TAB "
        "TEXT, and the label a whole number");
  }

  absl::Status BeginText(int64_t at) {
    if (negative_) {
      // Nobody is to learn from these.
      if (label_ != -kNoLabel) return RefuseLabel();
      if (data_.test_fraction < 1) {
        return Refuse(
            "has label -100, none, from which nothing can be learnt; such "
            "lines are for kind: infer with data.test_fraction: 1");
      }
      label_ = kNoLabel;
    }
    if (label_ >= data_.classes) {
      return Refuse(absl::StrCat("has label ", label_,
                                 ", the job's data.classes is ", data_.classes,
                                 "; labels count from 0"));
    }
    in_text_ = true;
    line_ = {file_, static_cast<int32_t>(label_), at, 0};
    return absl::OkStatus();
  }

  absl::Status TakeText(uint8_t byte) {
    if (byte == data_.padding) {
      return Refuse(absl::StrCat("has a byte ", data_.padding,
                                 " in its text, which is data.padding"));
    }
    // One token of a block is the beginning.
    line_.bytes = std::min<int64_t>(line_.bytes + 1, data_.block - 1);
    return absl::OkStatus();
  }

  absl::Status EndLine() override {
    if (!in_text_) return Refuse("has no tabulator behind a label");
    lines_.push_back(line_);
    in_text_ = false;
    negative_ = false;
    digits_ = 0;
    label_ = 0;
    return absl::OkStatus();
  }

  static constexpr int kMostDigits = 9;  // fit int32

  const DataSpec& data_;
  const int32_t file_;
  std::vector<Line>& lines_;
  bool negative_ = false;
  int digits_ = 0;
  int64_t label_ = 0;
  bool in_text_ = false;
  Line line_;
};

absl::StatusOr<std::unique_ptr<TextLabels>> TextLabels::Open(
    const DataSpec& data) {
  PACELINE_ASSIGN_OR_RETURN(TextFiles files, OpenTextFiles(data.path));
  SplitLines<Line> lines;
  PACELINE_RETURN_IF_ERROR(ReadLines<Reader>(data, files, lines));
  return std::unique_ptr<TextLabels>(
      new TextLabels(data, std::move(files), std::move(lines)));
}

int64_t TextLabels::samples(BatchPhase split) const {
  return static_cast<int64_t>(lines_.of(split).size());
}

absl::Status TextLabels::Load(const MicroBatchPlace& place, Tensor& inputs,
                              Tensor& labels) const {
  const std::vector<Line>& lines = lines_.of(place.split);
  const int64_t block = data_.block;
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const Line& line = lines[place.indices[i]];
    bytes.resize(line.bytes);
    PACELINE_RETURN_IF_ERROR(
        files_[line.file]->ReadAt(line.first, absl::MakeSpan(bytes)));
    const auto tokens = inputs.As<int64_t>().subspan(i * block, block);
    tokens[0] = kBeginToken;
    std::copy(bytes.begin(), bytes.end(), tokens.begin() + 1);
    std::fill(tokens.begin() + 1 + line.bytes, tokens.end(), data_.padding);
    labels.As<int64_t>()[i] = line.label;
  }
  return absl::OkStatus();
}

}  // namespace paceline
