// Texts as data sets.  A sample is a block of tokens, each to be told from
// those before it; or a line: a labelled text, or a pair of sentences.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"
#include "worker/data/sample_set.h"

namespace paceline {

void WritePair(absl::Span<const int64_t> source,
               absl::Span<const int64_t> target, absl::Span<int64_t> input,
               absl::Span<int64_t> labels) {
  const size_t block = labels.size();
  PACELINE_CHECK(input.size() == 2 * block && source.size() <= block &&
                     target.size() < block,
                 "source=", source.size(), " target=", target.size(),
                 " input=", input.size(), " labels=", block);
  absl::c_fill(input, kPaddingToken);
  absl::c_fill(labels, kNoLabel);
  absl::c_copy(source, input.begin());
  input[block] = kBeginToken;
  absl::c_copy(target, input.begin() + block + 1);
  absl::c_copy(target, labels.begin());
  labels[target.size()] = kEndToken;
}

namespace {

// `path` itself; or of a folder its train.txt and, if there is one, val.txt.
std::vector<std::string> TextFilesOf(const std::string& path,
                                     const std::string& ending = ".txt") {
  const auto folder = ListFolder(path);
  if (!folder.ok()) return {path};
  std::vector<std::string> files = {absl::StrCat(path, "/train", ending)};
  const std::string test = "val" + ending;
  for (const FolderEntry& entry : *folder) {
    if (entry.name == test) files.push_back(absl::StrCat(path, "/", test));
  }
  return files;
}

// The beginning of a text shows this.
struct TextLook {
  bool has_mark = false;  // a byte-order mark of UTF-8
  bool is_utf16 = false;
  bool has_cr = false;  // lines that end with CR LF
};

constexpr absl::string_view kMark = "\xef\xbb\xbf";

absl::string_view AsText(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Adds the file to `contents`; of a large one parts that are evenly spaced.
absl::StatusOr<TextLook> LookAt(const ByteFile& file, Checksum& contents) {
  constexpr int64_t kPiece = 1 << 20;
  constexpr int64_t kMostPieces = 64;
  const int64_t size = file.size();
  const int64_t apart = kPiece * (1 + size / (kPiece * kMostPieces));
  contents.Update({reinterpret_cast<const uint8_t*>(&size), sizeof(size)});
  TextLook look;
  std::vector<uint8_t> bytes;
  for (int64_t at = 0; at < size; at += apart) {
    bytes.resize(std::min(kPiece, size - at));
    PACELINE_RETURN_IF_ERROR(file.ReadAt(at, absl::MakeSpan(bytes)));
    contents.Update(bytes);
    if (at > 0) continue;
    look.has_mark = absl::StartsWith(AsText(bytes), kMark);
    look.is_utf16 = bytes.size() > 1 && (bytes[0] | 1) == 0xff &&
                    (bytes[1] | 1) == 0xff && bytes[0] != bytes[1];
    look.has_cr = absl::StrContains(AsText(bytes), "\r\n");
  }
  return look;
}

absl::Status RefuseUtf16(const std::string& path) {
  return InvalidArgument(path, ": is UTF-16; save it as UTF-8");
}

// Notes what a folder has beside `files`, which are read.
void NoteOthers(const std::string& folder,
                const std::vector<std::string>& files,
                std::vector<std::string>& notes) {
  const auto entries = ListFolder(folder);
  if (!entries.ok()) return;
  OtherFiles others;
  for (const FolderEntry& entry : *entries) {
    if (absl::StartsWith(entry.name, ".") ||
        absl::EndsWith(files.front(), "/" + entry.name) ||
        absl::EndsWith(files.back(), "/" + entry.name)) {
      continue;
    }
    others.Add(absl::StrCat(folder, "/", entry.name));
  }
  others.AddTo(notes);
}

// Where a text lies.
struct TextPlace {
  int64_t first = 0;  // byte
  int64_t bytes = 0;  // as far as a block takes them
};

struct Line {
  int32_t file = 0;
  int32_t label = 0;
  TextPlace source;  // of a pair
  TextPlace text;    // of a pair the target
};

// Takes the lines out of a file that comes in pieces; a line may be longer than
// the memory.  Thread-compatible.
class LineReader {
 public:
  // data and lines outlive this.
  LineReader(const DataSpec& data, bool inference, int32_t file,
             std::string path, std::vector<Line>& lines)
      : data_(data),
        inference_(inference),
        pairs_(FindDataSet(data.name)->kind == SampleKind::kPairs),
        file_(file),
        path_(std::move(path)),
        lines_(lines) {}

  // offset: of `bytes` in the file.
  absl::Status Take(int64_t offset, absl::Span<const uint8_t> bytes) {
    const size_t first = offset == 0 && absl::StartsWith(AsText(bytes), kMark)
                             ? kMark.size()
                             : 0;
    for (size_t i = first; i < bytes.size(); ++i) {
      const auto at = offset + static_cast<int64_t>(i);
      PACELINE_RETURN_IF_ERROR(bytes[i] == '\n' ? EndLine()
                               : open_.in_text  ? TakeText(bytes[i])
                               : pairs_         ? TakeSource(at, bytes[i])
                                                : TakeLabel(at, bytes[i]));
    }
    return absl::OkStatus();
  }

  // Lines of which a block does not take all.
  int64_t cut() const { return cut_; }

  // The last line may have no line feed.
  absl::Status End() {
    const bool begun =
        open_.in_text || !open_.label.empty() || open_.line.source.bytes > 0;
    return begun ? EndLine() : absl::OkStatus();
  }

 private:
  // The part of a line that is read.
  struct Open {
    Line line;
    std::string label;
    bool in_text = false;
    bool after_cr = false;
    bool is_cut = false;
  };

  template <typename... Parts>
  absl::Status Refuse(const Parts&... why) const {
    return InvalidArgument(path_, ": line ", number_, " ", why...);
  }
  absl::Status RefuseLabel() const {
    return Refuse(
        "does not begin with a label and a tabulator; a line is LABEL TAB "
        "TEXT, and the label a whole number");
  }

  absl::Status TakeLabel(int64_t at, uint8_t byte) {
    constexpr size_t kMostDigits = 9;  // fit int32
    std::string& text = open_.label;
    if (byte == '\t' && absl::SimpleAtoi(text, &open_.line.label)) {
      return EndLabel(at);
    }
    const bool negative = absl::StartsWith(text, "-");
    if (!(absl::ascii_isdigit(byte) && text.size() < kMostDigits + negative) &&
        !(byte == '-' && text.empty())) {
      return RefuseLabel();
    }
    text += static_cast<char>(byte);
    return absl::OkStatus();
  }

  absl::Status EndLabel(int64_t at) {
    const int32_t label = open_.line.label;
    if (absl::StartsWith(open_.label, "-")) {
      // A sample without a label: nothing is to be learnt from it.
      if (label != kNoLabel) return RefuseLabel();
      if (!inference_) {
        return Refuse(
            "has label -100, none, from which nothing can be learnt; such "
            "lines are for kind: infer");
      }
    }
    if (label >= data_.classes) {
      return Refuse("has label ", label, ", the job's data.classes is ",
                    data_.classes, "; labels count from 0");
    }
    BeginText(at + 1);
    return absl::OkStatus();
  }

  absl::Status TakeSource(int64_t at, uint8_t byte) {
    TextPlace& source = open_.line.source;
    if (byte != '\t') {
      if (source.bytes == 0) source.first = at;
      return Add(byte, data_.block, source);
    }
    if (source.bytes == 0) return Refuse("has nothing before its tabulator");
    BeginText(at + 1);
    return absl::OkStatus();
  }

  void BeginText(int64_t at) {
    open_.in_text = true;
    open_.line.text = {at, 0};
  }

  // One token of a block is the beginning, of a target's block its end.
  absl::Status TakeText(uint8_t byte) {
    TextPlace& text = open_.line.text;
    // The last one before a line feed belongs to that.
    if (std::exchange(open_.after_cr, byte == '\r')) {
      PACELINE_RETURN_IF_ERROR(Add('\r', data_.block - 1, text));
    }
    return open_.after_cr ? absl::OkStatus() : Add(byte, data_.block - 1, text);
  }

  absl::Status Add(uint8_t byte, int64_t most, TextPlace& text) {
    if (pairs_ && byte < kFirstWordToken) {
      return Refuse("has a byte ", static_cast<int>(byte),
                    ", which stands for what is no text; take it out");
    }
    if (!pairs_ && byte == data_.padding) {
      return Refuse("has a byte ", data_.padding,
                    " in its text, which is data.padding");
    }
    open_.is_cut = open_.is_cut || text.bytes == most;
    text.bytes = std::min(text.bytes + 1, most);
    return absl::OkStatus();
  }

  absl::Status EndLine() {
    if (!open_.in_text) {
      return Refuse(pairs_ ? "has no tabulator; a line is SOURCE TAB TARGET"
                           : "has no tabulator behind a label");
    }
    open_.line.file = file_;
    lines_.push_back(open_.line);
    cut_ += open_.is_cut;
    open_ = {};
    ++number_;
    return absl::OkStatus();
  }

  const DataSpec& data_;
  const bool inference_;
  const bool pairs_;
  const int32_t file_;
  const std::string path_;
  std::vector<Line>& lines_;
  int64_t number_ = 1;  // of the line
  int64_t cut_ = 0;
  Open open_;
};

// Says what to do where the test split is too short; begins with "; " or is
// empty.
std::string TestRemedy(const DataSpec& data, size_t files, bool inference) {
  if (files > 1) {
    return inference ? "" : "; without val.txt the end of train.txt is taken";
  }
  if (!inference) return "; data.test_fraction 0 goes without evaluation";
  return data.test_fraction < 1 ? "; data.test_fraction 1 takes all of it" : "";
}

// Evaluation gets the last lines of a file, which are of a class or two where
// the lines were sorted.
void NoteSorted(const DataSpec& data, const std::vector<Line>& train_lines,
                const std::vector<Line>& test_lines, bool one_file,
                std::vector<std::string>& notes) {
  std::set<int32_t> train, test;
  for (const Line& line : train_lines) train.insert(line.label);
  for (const Line& line : test_lines) test.insert(line.label);
  const bool is_new = !absl::c_includes(train, test);
  int64_t changes = 0;
  for (size_t i = 1; i < train_lines.size(); ++i) {
    changes += train_lines[i].label != train_lines[i - 1].label;
  }
  const bool is_sorted = one_file && train_lines.size() > train.size() &&
                         changes + 1 == std::ssize(train) &&
                         (train.size() > 1 || is_new);
  if (test.empty() || (!is_new && !is_sorted) || data.test_fraction >= 1) {
    return;
  }
  notes.push_back(
      absl::StrCat(data.path, is_sorted ? " is sorted by label" : "",
                   ": evaluation gets the labels ", absl::StrJoin(test, ", "),
                   " and training ", absl::StrJoin(train, ", "),
                   "; shuffle the lines, as by 'shuf'"));
}

using Files = std::vector<std::unique_ptr<ByteFile>>;  // 1 or 2

// Immutable.
class TextLines final : public SampleSet {
 public:
  TextLines(const DataSpec& data, Files files, std::vector<Line> train,
            std::vector<Line> test, DataFacts facts)
      : SampleSet(FormatOf(data), std::ssize(train), std::ssize(test),
                  std::move(facts)),
        data_(data),
        files_(std::move(files)),
        train_(std::move(train)),
        test_(std::move(test)) {}

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    const std::vector<Line>& lines =
        place.split == BatchPhase::kTrain ? train_ : test_;
    const bool pairs = !format().label_shape.empty();
    std::vector<int64_t> source, text;
    for (size_t i = 0; i < place.indices.size(); ++i) {
      const Line& line = lines[place.indices[i]];
      PACELINE_RETURN_IF_ERROR(ReadText(line.file, line.text, text));
      if (pairs) {
        PACELINE_RETURN_IF_ERROR(ReadText(line.file, line.source, source));
        WritePair(source, text, SampleOf<int64_t>(inputs, i),
                  SampleOf<int64_t>(labels, i));
        continue;
      }
      const auto tokens = SampleOf<int64_t>(inputs, i);
      tokens[0] = kBeginToken;
      std::fill(absl::c_copy(text, tokens.begin() + 1), tokens.end(),
                data_.padding);
      labels.As<int64_t>()[i] = line.label;
    }
    return absl::OkStatus();
  }
  std::vector<int32_t> TrainLabels() const override {
    std::vector<int32_t> labels;
    for (const Line& line : train_) labels.push_back(line.label);
    return labels;
  }
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(sizeof(Line)) *
           (std::ssize(train_) + std::ssize(test_));
  }

 private:
  absl::Status ReadText(int32_t file, const TextPlace& text,
                        std::vector<int64_t>& tokens) const {
    std::vector<uint8_t> bytes(text.bytes);
    PACELINE_RETURN_IF_ERROR(
        files_[file]->ReadAt(text.first, absl::MakeSpan(bytes)));
    tokens.assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }

  const DataSpec data_;
  const Files files_;
  const std::vector<Line> train_;
  const std::vector<Line> test_;
};

constexpr int64_t kMostCharacters =
    1 << 16;  // different ones: numbered in 16 bits

int64_t TokenAt(const uint8_t* bytes, int bytes_a_token) {
  return bytes_a_token == 1 ? bytes[0] : bytes[0] | bytes[1] << 8;
}

// A row of tokens, in a file or kept.  Immutable; several threads may read at
// the same time.
class TokenSource {
 public:
  TokenSource(std::unique_ptr<ByteFile> file, int bytes_a_token)
      : file_(std::move(file)), bytes_a_token_(bytes_a_token) {}
  explicit TokenSource(std::vector<uint16_t> kept) : kept_(std::move(kept)) {}

  int64_t size() const {
    return file_ == nullptr ? std::ssize(kept_)
                            : file_->size() / bytes_a_token_;
  }
  int64_t memory_bytes() const {
    return static_cast<int64_t>(sizeof(uint16_t)) * std::ssize(kept_);
  }

  // Tokens [first, first + into.size()), which must exist.
  // Errors: DataLoss  the file is shorter than when it was opened
  absl::Status Read(int64_t first, absl::Span<int64_t> into) const {
    if (file_ == nullptr) {
      std::copy_n(kept_.begin() + first, into.size(), into.begin());
      return absl::OkStatus();
    }
    std::array<uint8_t, 8192> bytes;
    const size_t at_once = bytes.size() / bytes_a_token_;
    while (!into.empty()) {
      const size_t count = std::min(into.size(), at_once);
      PACELINE_RETURN_IF_ERROR(
          file_->ReadAt(first * bytes_a_token_,
                        absl::MakeSpan(bytes).first(count * bytes_a_token_)));
      for (size_t i = 0; i < count; ++i) {
        into[i] = TokenAt(&bytes[i * bytes_a_token_], bytes_a_token_);
      }
      first += static_cast<int64_t>(count);
      into.remove_prefix(count);
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<ByteFile> file_;  // null: kept
  const int bytes_a_token_ = 0;
  const std::vector<uint16_t> kept_;
};
using Sources = std::vector<std::unique_ptr<TokenSource>>;  // 1 or 2

// Calls `take` with every character of the file.
absl::Status ForEachCharacter(const ByteFile& file,
                              absl::FunctionRef<void(uint32_t)> take) {
  constexpr size_t kLongest = 4;           // bytes of a character
  constexpr uint32_t kMarkPoint = 0xfeff;  // stands for no character
  std::string open;  // the next piece may go on with these
  int64_t at = 0;    // of `open` in the file
  const auto refuse = [&] {
    return InvalidArgument(file.path(), ": is not UTF-8 at byte ", at,
                           "; convert it, or set data.tokens to byte");
  };
  PACELINE_RETURN_IF_ERROR(file.Scan(
      1, [&](int64_t, absl::Span<const uint8_t> bytes) -> absl::Status {
        open.append(bytes.begin(), bytes.end());
        absl::string_view rest = open;
        while (!rest.empty()) {
          const size_t length = Utf8SequenceLength(rest);
          if (length == 0 && rest.size() < kLongest) break;
          if (length == 0) return refuse();
          const uint32_t point = Utf8CodePoint(rest.substr(0, length));
          if (at > 0 || point != kMarkPoint) take(point);
          rest.remove_prefix(length);
          at += static_cast<int64_t>(length);
        }
        open = std::string(rest);
        return absl::OkStatus();
      }));
  return open.empty() ? absl::OkStatus() : refuse();
}

absl::Status CheckCharacters(const ByteFile& file, int64_t different,
                             int32_t classes) {
  if (different <= std::min<int64_t>(classes, kMostCharacters)) {
    return absl::OkStatus();
  }
  if (different > kMostCharacters) {
    return InvalidArgument(file.path(), ": has ", different,
                           " different characters, at most ", kMostCharacters,
                           " can be numbered; set data.tokens to byte");
  }
  return InvalidArgument(file.path(), ": with it there are ", different,
                         " different characters, the job's data.classes is ",
                         classes, "; set data.classes to ", different,
                         " or more");
}

absl::Status CheckTokens(const ByteFile& file, int bytes_a_token,
                         int32_t classes) {
  if (classes >= 1 << (8 * bytes_a_token)) return absl::OkStatus();
  return file.Scan(
      bytes_a_token,
      [&](int64_t offset, absl::Span<const uint8_t> bytes) -> absl::Status {
        for (size_t i = 0; i < bytes.size(); i += bytes_a_token) {
          const int64_t token = TokenAt(&bytes[i], bytes_a_token);
          if (token < classes) continue;
          return InvalidArgument(
              file.path(), ": token ", token, " at position ",
              (offset + static_cast<int64_t>(i)) / bytes_a_token,
              " is too great, the job's data.classes is ", classes,
              "; set it to the size of the vocabulary");
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<Sources> OpenTokenFiles(const std::vector<std::string>& paths,
                                       int bytes_a_token, int32_t classes) {
  Sources sources;
  for (const std::string& path : paths) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    if (file->size() % bytes_a_token != 0) {
      return InvalidArgument(path, ": has ", file->size(),
                             " bytes, need tokens of ", bytes_a_token,
                             " bytes each; it may be cut short");
    }
    PACELINE_RETURN_IF_ERROR(CheckTokens(*file, bytes_a_token, classes));
    sources.push_back(
        std::make_unique<TokenSource>(std::move(file), bytes_a_token));
  }
  return sources;
}

absl::StatusOr<Sources> OpenCharacters(const std::vector<std::string>& paths,
                                       int32_t classes, std::string& names) {
  Files files;
  std::set<uint32_t> different;
  for (const std::string& path : paths) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    PACELINE_RETURN_IF_ERROR(ForEachCharacter(
        *file, [&](uint32_t point) { different.insert(point); }));
    PACELINE_RETURN_IF_ERROR(
        CheckCharacters(*file, std::ssize(different), classes));
    files.push_back(std::move(file));
  }
  const std::vector<uint32_t> sorted(different.begin(), different.end());
  std::vector<std::string> points;
  for (const uint32_t point : sorted) {
    points.push_back(absl::StrFormat("U+%04X", point));
  }
  names = ClassesText(points);
  Sources sources;
  for (const auto& file : files) {
    std::vector<uint16_t> tokens;
    PACELINE_RETURN_IF_ERROR(ForEachCharacter(*file, [&](uint32_t point) {
      tokens.push_back(static_cast<uint16_t>(
          absl::c_lower_bound(sorted, point) - sorted.begin()));
    }));
    sources.push_back(std::make_unique<TokenSource>(std::move(tokens)));
  }
  return sources;
}

int64_t SamplesIn(int64_t tokens, int64_t block) {
  return tokens > block ? (tokens - 1) / block : 0;
}

// Errors: InvalidArgument when a block does not fit into a split: says both
// lengths
//   files  1 or 2; in inference only the test split matters
absl::Status CheckLengths(const DataSpec& data, int64_t train, int64_t test,
                          size_t files, bool inference) {
  const auto refuse = [&data](const char* part, int64_t tokens,
                              absl::string_view remedy) {
    return InvalidArgument(data.path, ": ", part, " has ",
                           Counted(tokens, "token"), ", a block of ",
                           data.block, " needs ", data.block + 1,
                           "; lower data.block", remedy);
  };
  if (!inference && SamplesIn(train, data.block) == 0) {
    return refuse("the training split", train, "");
  }
  const bool wants_test = files > 1 || data.test_fraction > 0;
  if (wants_test && SamplesIn(test, data.block) == 0) {
    return refuse(inference ? "what is to be predicted" : "the test split",
                  test, TestRemedy(data, files, inference));
  }
  return absl::OkStatus();
}

// Fills in what can be said of the files before their tokens are read.
absl::Status LookAtTexts(const DataSpec& data,
                         const std::vector<std::string>& paths,
                         DataFacts& facts) {
  Checksum contents;
  for (const std::string& path : paths) {
    PACELINE_ASSIGN_OR_RETURN(const auto file, ByteFile::Open(path));
    PACELINE_ASSIGN_OR_RETURN(const TextLook look, LookAt(*file, contents));
    if (data.tokens == "uint16") continue;
    if (look.is_utf16 && data.tokens == "character") return RefuseUtf16(path);
    const bool bytes = data.tokens == "byte";
    if (look.is_utf16 || (look.has_mark && bytes) || look.has_cr) {
      facts.notes.push_back(absl::StrCat(
          path,
          look.is_utf16 ? " is UTF-16, and each of its bytes a token; save it "
                          "as UTF-8"
          : look.has_cr ? ": its lines end with CR LF, and both are tokens"
                        : ": the byte-order mark at its beginning is three "
                          "tokens"));
    }
  }
  facts.contents = contents.Digest();
  NoteOthers(data.path, paths, facts.notes);
  return absl::OkStatus();
}

// A part of a source.
struct TokenSplit {
  const TokenSource* source = nullptr;
  int64_t first = 0;
  int64_t tokens = 0;
};

// Immutable.
class TextSet final : public SampleSet {
 public:
  TextSet(const DataSpec& data, Sources sources, TokenSplit train,
          TokenSplit test, DataFacts facts)
      : SampleSet({DType::kI64, {data.block}, {data.block}},
                  SamplesIn(train.tokens, data.block),
                  SamplesIn(test.tokens, data.block), std::move(facts)),
        block_(data.block),
        sources_(std::move(sources)),
        train_(train),
        test_(test) {}

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    const TokenSplit& from = place.split == BatchPhase::kTrain ? train_ : test_;
    for (size_t i = 0; i < place.indices.size(); ++i) {
      const int64_t first = from.first + place.indices[i] * block_;
      PACELINE_RETURN_IF_ERROR(
          from.source->Read(first, SampleOf<int64_t>(inputs, i)));
      PACELINE_RETURN_IF_ERROR(
          from.source->Read(first + 1, SampleOf<int64_t>(labels, i)));
    }
    return absl::OkStatus();
  }
  int64_t memory_bytes() const override {
    int64_t bytes = 0;
    for (const auto& source : sources_) bytes += source->memory_bytes();
    return bytes;
  }

 private:
  const int64_t block_;
  const Sources sources_;
  const TokenSplit train_;
  const TokenSplit test_;
};

}  // namespace

OpenedSet OpenTextLines(const DataSpec& data, bool inference) {
  Files files;
  std::vector<Line> train, test;
  DataFacts facts;
  Checksum contents;
  const std::vector<std::string> paths = TextFilesOf(data.path);
  for (const std::string& path : paths) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    PACELINE_ASSIGN_OR_RETURN(const TextLook look, LookAt(*file, contents));
    if (look.is_utf16) return RefuseUtf16(path);
    files.push_back(std::move(file));
  }
  NoteOthers(data.path, paths, facts.notes);
  int64_t cut = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    LineReader reader(data, inference, static_cast<int32_t>(i),
                      files[i]->path(), i == 0 ? train : test);
    PACELINE_RETURN_IF_ERROR(
        files[i]->Scan(1, [&](int64_t offset, absl::Span<const uint8_t> bytes) {
          contents.Update(bytes);
          return reader.Take(offset, bytes);
        }));
    PACELINE_RETURN_IF_ERROR(reader.End());
    cut += reader.cut();
  }
  facts.contents = contents.Digest();
  if (cut > 0) {
    facts.notes.push_back(absl::StrCat(
        "the ends of ", cut, " of ", train.size() + test.size(),
        " lines are not used: they are longer than data.block, ", data.block));
  }
  if (files.size() == 1) {
    const auto last = static_cast<int64_t>(static_cast<double>(train.size()) *
                                           data.test_fraction);
    test.assign(train.end() - last, train.end());
    if (data.test_fraction < 1) train.resize(train.size() - last);
  }
  if (inference) {
    if (test.empty()) {
      return InvalidArgument(data.path, ": has no line to predict for",
                             TestRemedy(data, files.size(), inference));
    }
    if (train.empty()) train = test;
  } else {
    NoteSorted(data, train, test, files.size() == 1, facts.notes);
  }
  const bool wants_test = files.size() > 1 || data.test_fraction > 0;
  if (train.empty() || (wants_test && test.empty())) {
    return InvalidArgument(data.path, ": has ", train.size(),
                           " lines for training and ", test.size(),
                           " for evaluation, need at least 1 of each",
                           TestRemedy(data, files.size(), inference));
  }
  return std::make_unique<TextLines>(data, std::move(files), std::move(train),
                                     std::move(test), std::move(facts));
}

OpenedSet OpenText(const DataSpec& data, bool inference) {
  const bool numbers = data.tokens == "uint16";
  const std::vector<std::string> files =
      TextFilesOf(data.path, numbers ? ".bin" : ".txt");
  DataFacts facts;
  PACELINE_RETURN_IF_ERROR(LookAtTexts(data, files, facts));
  PACELINE_ASSIGN_OR_RETURN(
      Sources sources,
      data.tokens == "character"
          ? OpenCharacters(files, data.classes, facts.classes)
          : OpenTokenFiles(files, numbers ? 2 : 1, data.classes));
  TokenSplit train = {sources.front().get(), 0, sources.front()->size()};
  TokenSplit test = {sources.back().get(), 0, sources.back()->size()};
  if (sources.size() == 1) {
    test.tokens = static_cast<int64_t>(static_cast<double>(train.tokens) *
                                       data.test_fraction);
    // Else both splits are all of it, for inference.
    if (data.test_fraction < 1) {
      train.tokens -= test.tokens;
      test.first = train.tokens;
    }
  }
  PACELINE_RETURN_IF_ERROR(
      CheckLengths(data, train.tokens, test.tokens, sources.size(), inference));
  if (inference && SamplesIn(train.tokens, data.block) == 0) train = test;
  const auto left = [&](const TokenSplit& split) {
    const int64_t samples = SamplesIn(split.tokens, data.block);
    return samples == 0 ? 0 : split.tokens - 1 - samples * data.block;
  };
  if ((!inference && left(train) > 0) || left(test) > 0) {
    facts.notes.push_back(absl::StrCat(
        data.path, ": the last ",
        inference
            ? Counted(left(test), "token")
            : absl::StrCat(Counted(left(train), "token"), " for training and ",
                           left(test), " for evaluation"),
        inference && left(test) == 1 ? " is" : " are",
        " not used: less than data.block, ", data.block));
  }
  return std::make_unique<TextSet>(data, std::move(sources), train, test,
                                   std::move(facts));
}

}  // namespace paceline
