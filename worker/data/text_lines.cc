#include "worker/data/text_lines.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/model/data_sets.h"

namespace paceline {

std::vector<std::string> TextFilesOf(const std::string& path,
                                     const std::string& ending) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return {path};
  }
  std::vector<std::string> files = {path + "/train" + ending};
  const std::string test = path + "/val" + ending;
  if (access(test.c_str(), F_OK) == 0) files.push_back(test);
  return files;
}

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

// Takes the lines out of a file that comes in pieces; a line may be longer than
// the memory.  Thread-compatible.
class TextLines::Reader {
 public:
  // data and lines outlive this.
  Reader(const DataSpec& data, int32_t file, std::string path,
         std::vector<Line>& lines)
      : data_(data),
        pairs_(FindDataSet(data.name)->kind == SampleKind::kPairs),
        file_(file),
        path_(std::move(path)),
        lines_(lines) {}

  // offset: of `bytes` in the file.
  absl::Status Take(int64_t offset, absl::Span<const uint8_t> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto at = offset + static_cast<int64_t>(i);
      PACELINE_RETURN_IF_ERROR(bytes[i] == '\n' ? EndLine()
                               : in_text_       ? TakeText(bytes[i])
                               : pairs_         ? TakeSource(at, bytes[i])
                                                : TakeLabel(at, bytes[i]));
    }
    return absl::OkStatus();
  }

  // The last line may have no line feed.
  absl::Status End() {
    const bool begun =
        in_text_ || negative_ || digits_ > 0 || line_.source.bytes > 0;
    return begun ? EndLine() : absl::OkStatus();
  }

 private:
  static constexpr int kMostDigits = 9;  // fit int32

  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": line ", number_, " ", why));
  }
  absl::Status RefuseLabel() const {
    return Refuse(
        "does not begin with a label and a tabulator; a line is LABEL TAB "
        "TEXT, and the label a whole number");
  }

  absl::Status TakeLabel(int64_t at, uint8_t byte) {
    if (byte == '\t' && digits_ > 0) return EndLabel(at);
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

  absl::Status EndLabel(int64_t at) {
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
    line_.label = static_cast<int32_t>(label_);
    BeginText(at + 1);
    return absl::OkStatus();
  }

  absl::Status TakeSource(int64_t at, uint8_t byte) {
    if (byte != '\t') {
      if (line_.source.bytes == 0) line_.source.first = at;
      return Add(byte, data_.block, line_.source);
    }
    if (line_.source.bytes == 0) {
      return Refuse("has nothing before its tabulator");
    }
    BeginText(at + 1);
    return absl::OkStatus();
  }

  void BeginText(int64_t at) {
    in_text_ = true;
    line_.text = {at, 0};
  }

  // One token of a block is the beginning, of a target's block its end.
  absl::Status TakeText(uint8_t byte) {
    return Add(byte, data_.block - 1, line_.text);
  }

  absl::Status Add(uint8_t byte, int64_t most, Text& text) {
    if (pairs_ && byte < kFirstWordToken) {
      return Refuse(absl::StrCat("has a byte ", static_cast<int>(byte),
                                 ", which stands for what is no text; take it "
                                 "out"));
    }
    if (!pairs_ && byte == data_.padding) {
      return Refuse(absl::StrCat("has a byte ", data_.padding,
                                 " in its text, which is data.padding"));
    }
    text.bytes = std::min(text.bytes + 1, most);
    return absl::OkStatus();
  }

  absl::Status EndLine() {
    if (!in_text_) {
      return Refuse(pairs_ ? "has no tabulator; a line is SOURCE TAB TARGET"
                           : "has no tabulator behind a label");
    }
    line_.file = file_;
    lines_.push_back(std::exchange(line_, {}));
    in_text_ = false;
    negative_ = false;
    digits_ = 0;
    label_ = 0;
    ++number_;
    return absl::OkStatus();
  }

  const DataSpec& data_;
  const bool pairs_;
  const int32_t file_;
  const std::string path_;
  std::vector<Line>& lines_;
  int64_t number_ = 1;  // of the line
  bool negative_ = false;
  int digits_ = 0;
  int64_t label_ = 0;
  bool in_text_ = false;
  Line line_;
};

absl::StatusOr<std::unique_ptr<TextLines>> TextLines::Open(
    const DataSpec& data) {
  Files files;
  Split lines;
  for (const std::string& path : TextFilesOf(data.path)) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    files.push_back(std::move(file));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    Reader reader(data, static_cast<int32_t>(i), files[i]->path(),
                  i == 0 ? lines.train : lines.test);
    PACELINE_RETURN_IF_ERROR(
        files[i]->Scan(1, [&](int64_t offset, absl::Span<const uint8_t> bytes) {
          return reader.Take(offset, bytes);
        }));
    PACELINE_RETURN_IF_ERROR(reader.End());
  }
  std::vector<Line>& train = lines.train;
  if (files.size() == 1) {
    const auto last = static_cast<int64_t>(static_cast<double>(train.size()) *
                                           data.test_fraction);
    lines.test.assign(train.end() - last, train.end());
    if (data.test_fraction < 1) train.resize(train.size() - last);
  }
  const bool wants_test = files.size() > 1 || data.test_fraction > 0;
  if (train.empty() || (wants_test && lines.test.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        data.path, ": has ", train.size(), " lines for training and ",
        lines.test.size(),
        " for evaluation, need at least 1 of each; data.test_fraction 0 goes "
        "without evaluation"));
  }
  return std::unique_ptr<TextLines>(
      new TextLines(data, std::move(files), std::move(lines)));
}

TextLines::TextLines(const DataSpec& data, Files files, Split lines)
    : SampleSet(FormatOf(data), std::ssize(lines.train),
                std::ssize(lines.test)),
      data_(data),
      files_(std::move(files)),
      lines_(std::move(lines)) {}

absl::Status TextLines::ReadText(int32_t file, const Text& text,
                                 std::vector<int64_t>& tokens) const {
  std::vector<uint8_t> bytes(text.bytes);
  PACELINE_RETURN_IF_ERROR(
      files_[file]->ReadAt(text.first, absl::MakeSpan(bytes)));
  tokens.assign(bytes.begin(), bytes.end());
  return absl::OkStatus();
}

absl::Status TextLines::Load(const MicroBatchPlace& place, Tensor& inputs,
                             Tensor& labels) const {
  const std::vector<Line>& lines =
      place.split == BatchPhase::kTrain ? lines_.train : lines_.test;
  const auto block = static_cast<size_t>(data_.block);
  const bool pairs = !format().label_shape.empty();
  std::vector<int64_t> source, text;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const Line& line = lines[place.indices[i]];
    PACELINE_RETURN_IF_ERROR(ReadText(line.file, line.text, text));
    if (pairs) {
      PACELINE_RETURN_IF_ERROR(ReadText(line.file, line.source, source));
      WritePair(source, text,
                inputs.As<int64_t>().subspan(2 * i * block, 2 * block),
                labels.As<int64_t>().subspan(i * block, block));
      continue;
    }
    const auto tokens = inputs.As<int64_t>().subspan(i * block, block);
    tokens[0] = kBeginToken;
    const auto end = std::copy(text.begin(), text.end(), tokens.begin() + 1);
    std::fill(end, tokens.end(), data_.padding);
    labels.As<int64_t>()[i] = line.label;
  }
  return absl::OkStatus();
}

}  // namespace paceline
