#include "worker/data/text_pairs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "worker/data/sentence_pair.h"
#include "worker/data/text_lines.h"

namespace paceline {

// Takes the lines out of a file that comes in pieces.  Thread-compatible.
class TextPairs::Reader {
 public:
  // path and lines outlive this.
  Reader(int64_t block, int32_t file, const std::string& path,
         std::vector<Line>& lines)
      : block_(block), file_(file), path_(path), lines_(lines) {}

  absl::Status Take(int64_t offset, absl::Span<const uint8_t> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      PACELINE_RETURN_IF_ERROR(
          TakeByte(offset + static_cast<int64_t>(i), bytes[i]));
    }
    return absl::OkStatus();
  }

  // The last line may have no line feed.
  absl::Status End() {
    return in_target_ || line_.source.bytes > 0 ? EndLine() : absl::OkStatus();
  }

 private:
  absl::Status TakeByte(int64_t at, uint8_t byte) {
    if (byte == '\n') return EndLine();
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

  absl::Status EndLine() {
    if (!in_target_) {
      return Refuse("has no tabulator; a line is SOURCE TAB TARGET");
    }
    line_.file = file_;
    lines_.push_back(std::exchange(line_, {}));
    in_target_ = false;
    ++number_;
    return absl::OkStatus();
  }

  absl::Status Refuse(const std::string& why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": line ", number_, " ", why));
  }

  const int64_t block_;
  const int32_t file_;
  const std::string& path_;
  std::vector<Line>& lines_;
  int64_t number_ = 1;
  bool in_target_ = false;
  Line line_;
};

absl::StatusOr<std::unique_ptr<TextPairs>> TextPairs::Open(
    const DataSpec& data) {
  std::vector<std::unique_ptr<ByteFile>> files;
  for (const std::string& path : TextFilesOf(data.path)) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    files.push_back(std::move(file));
  }
  auto set = std::unique_ptr<TextPairs>(new TextPairs(data, std::move(files)));
  for (size_t i = 0; i < set->files_.size(); ++i) {
    const ByteFile& file = *set->files_[i];
    Reader reader(data.block, static_cast<int32_t>(i), file.path(),
                  i == 0 ? set->train_ : set->test_);
    PACELINE_RETURN_IF_ERROR(
        file.Scan(1, [&](int64_t offset, absl::Span<const uint8_t> bytes) {
          return reader.Take(offset, bytes);
        }));
    PACELINE_RETURN_IF_ERROR(reader.End());
  }
  PACELINE_RETURN_IF_ERROR(
      DivideLines(data, set->files_.size() == 1, set->train_, set->test_));
  return set;
}

int64_t TextPairs::samples(BatchPhase split) const {
  return static_cast<int64_t>(
      (split == BatchPhase::kTrain ? train_ : test_).size());
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
  const std::vector<Line>& lines =
      place.split == BatchPhase::kTrain ? train_ : test_;
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
