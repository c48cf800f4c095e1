#include "worker/data/text_set.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/byte_file.h"
#include "core/base/status_macros.h"
#include "core/model/data_sets.h"
#include "worker/data/text_lines.h"

namespace paceline {
namespace {

constexpr int64_t kMostCharacters =
    1 << 16;  // different ones: numbered in 16 bits

int64_t TokenAt(const uint8_t* bytes, int bytes_a_token) {
  return bytes_a_token == 1 ? bytes[0] : bytes[0] | bytes[1] << 8;
}

// Thread-safe: the file is.
class FileTokens final : public TokenSource {
 public:
  FileTokens(std::unique_ptr<ByteFile> file, int bytes_a_token)
      : file_(std::move(file)), bytes_a_token_(bytes_a_token) {}

  int64_t size() const override { return file_->size() / bytes_a_token_; }

  absl::Status Read(int64_t first, absl::Span<int64_t> into) const override {
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
  const std::unique_ptr<ByteFile> file_;
  const int bytes_a_token_;
};

// Immutable.
class KeptTokens final : public TokenSource {
 public:
  explicit KeptTokens(std::vector<uint16_t> tokens)
      : tokens_(std::move(tokens)) {}

  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }

  absl::Status Read(int64_t first, absl::Span<int64_t> into) const override {
    std::copy_n(tokens_.begin() + first, into.size(), into.begin());
    return absl::OkStatus();
  }

 private:
  const std::vector<uint16_t> tokens_;
};

// Takes code points out of bytes that come in pieces.  Thread-compatible.
class Utf8Reader {
 public:
  // False when the byte cannot follow the ones before.
  bool Take(uint8_t byte) {
    if (more_ > 0) {
      if ((byte & 0xc0) != 0x80) return false;
      point_ = point_ << 6 | (byte & 0x3f);
      return --more_ > 0 || IsCodePoint();
    }
    if (byte < 0x80) return Begin(byte, 0, 0);
    if ((byte & 0xe0) == 0xc0) return Begin(byte & 0x1f, 1, 0x80);
    if ((byte & 0xf0) == 0xe0) return Begin(byte & 0x0f, 2, 0x800);
    if ((byte & 0xf8) == 0xf0) return Begin(byte & 0x07, 3, 0x10000);
    return false;
  }

  bool whole() const { return more_ == 0; }
  uint32_t point() const { return point_; }  // when whole

 private:
  bool Begin(uint32_t point, int more, uint32_t least) {
    point_ = point;
    more_ = more;
    least_ = least;
    return true;
  }
  // Not longer than it need be, no half of a surrogate pair, not too great.
  bool IsCodePoint() const {
    return point_ >= least_ && point_ <= 0x10ffff &&
           (point_ < 0xd800 || point_ > 0xdfff);
  }

  uint32_t point_ = 0;
  uint32_t least_ = 0;
  int more_ = 0;
};

// Calls `take` with every character of the file.
absl::Status ForEachCharacter(const ByteFile& file,
                              absl::FunctionRef<void(uint32_t)> take) {
  const auto refuse = [&file](int64_t at) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": is not UTF-8 at byte ", at,
                     "; convert it, or set data.tokens to byte"));
  };
  Utf8Reader reader;
  PACELINE_RETURN_IF_ERROR(file.Scan(
      1, [&](int64_t offset, absl::Span<const uint8_t> bytes) -> absl::Status {
        for (size_t i = 0; i < bytes.size(); ++i) {
          if (!reader.Take(bytes[i])) {
            return refuse(offset + static_cast<int64_t>(i));
          }
          if (reader.whole()) take(reader.point());
        }
        return absl::OkStatus();
      }));
  return reader.whole() ? absl::OkStatus() : refuse(file.size());
}

absl::Status CheckCharacters(const ByteFile& file, int64_t different,
                             int32_t classes) {
  if (different <= std::min<int64_t>(classes, kMostCharacters)) {
    return absl::OkStatus();
  }
  if (different > kMostCharacters) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": has ", different, " different characters, at most ",
        kMostCharacters, " can be numbered; set data.tokens to byte"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": with it there are ", different,
                   " different characters, the job's data.classes is ", classes,
                   "; set data.classes to ", different, " or more"));
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
          return absl::InvalidArgumentError(
              absl::StrCat(file.path(), ": token ", token, " at position ",
                           (offset + static_cast<int64_t>(i)) / bytes_a_token,
                           " is too great, the job's data.classes is ", classes,
                           "; set it to the size of the vocabulary"));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenFile(
    const std::string& path, int bytes_a_token, int32_t classes) {
  PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
  if (file->size() % bytes_a_token != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", file->size(), " bytes, need tokens of ",
                     bytes_a_token, " bytes each; it may be cut short"));
  }
  PACELINE_RETURN_IF_ERROR(CheckTokens(*file, bytes_a_token, classes));
  return std::make_unique<FileTokens>(std::move(file), bytes_a_token);
}

absl::StatusOr<std::vector<std::unique_ptr<TokenSource>>> OpenCharacters(
    const std::vector<std::string>& paths, int32_t classes) {
  std::vector<std::unique_ptr<ByteFile>> files;
  std::set<uint32_t> different;
  for (const std::string& path : paths) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(path));
    PACELINE_RETURN_IF_ERROR(ForEachCharacter(
        *file, [&](uint32_t point) { different.insert(point); }));
    PACELINE_RETURN_IF_ERROR(CheckCharacters(
        *file, static_cast<int64_t>(different.size()), classes));
    files.push_back(std::move(file));
  }
  const std::vector<uint32_t> sorted(different.begin(), different.end());
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const auto& file : files) {
    std::vector<uint16_t> tokens;
    PACELINE_RETURN_IF_ERROR(ForEachCharacter(*file, [&](uint32_t point) {
      const auto rank = std::lower_bound(sorted.begin(), sorted.end(), point);
      tokens.push_back(static_cast<uint16_t>(rank - sorted.begin()));
    }));
    sources.push_back(std::make_unique<KeptTokens>(std::move(tokens)));
  }
  return sources;
}

int64_t SamplesIn(int64_t tokens, int64_t block) {
  return tokens > block ? (tokens - 1) / block : 0;
}

// Errors: InvalidArgument when a block does not fit into a split: says both
// lengths
//   wants_test  the test split may not be empty
absl::Status CheckLengths(const DataSpec& data, int64_t train, int64_t test,
                          bool wants_test) {
  const auto refuse = [&data](const char* part, int64_t tokens,
                              const char* remedy) {
    return absl::InvalidArgumentError(absl::StrCat(
        data.path, ": ", part, " has ", tokens, " tokens, a block of ",
        data.block, " needs ", data.block + 1, "; ", remedy));
  };
  if (SamplesIn(train, data.block) == 0) {
    return refuse("the training split", train, "lower data.block");
  }
  if (wants_test && SamplesIn(test, data.block) == 0) {
    return refuse("the test split", test,
                  "lower data.block, or set data.test_fraction, to 0 for none");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextSet>> TextSet::Open(const DataSpec& data) {
  const bool numbers = data.tokens == "uint16";
  const std::vector<std::string> files =
      TextFilesOf(data.path, numbers ? ".bin" : ".txt");
  Sources sources;
  if (data.tokens == "character") {
    PACELINE_ASSIGN_OR_RETURN(sources, OpenCharacters(files, data.classes));
  } else {
    for (const std::string& file : files) {
      PACELINE_ASSIGN_OR_RETURN(
          auto source, OpenTokenFile(file, numbers ? 2 : 1, data.classes));
      sources.push_back(std::move(source));
    }
  }
  Split train = {sources.front().get(), 0, sources.front()->size()};
  Split test = {sources.back().get(), 0, sources.back()->size()};
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
      CheckLengths(data, train.tokens, test.tokens,
                   sources.size() > 1 || data.test_fraction > 0));
  return std::unique_ptr<TextSet>(
      new TextSet(data, std::move(sources), train, test));
}

TextSet::TextSet(const DataSpec& data, Sources sources, Split train, Split test)
    : SampleSet({DType::kI64, {data.block}, {data.block}},
                SamplesIn(train.tokens, data.block),
                SamplesIn(test.tokens, data.block)),
      block_(data.block),
      sources_(std::move(sources)),
      train_(train),
      test_(test) {}

absl::Status TextSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                           Tensor& labels) const {
  const Split& from = place.split == BatchPhase::kTrain ? train_ : test_;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const int64_t first = from.first + place.indices[i] * block_;
    PACELINE_RETURN_IF_ERROR(from.source->Read(
        first, inputs.As<int64_t>().subspan(i * block_, block_)));
    PACELINE_RETURN_IF_ERROR(from.source->Read(
        first + 1, labels.As<int64_t>().subspan(i * block_, block_)));
  }
  return absl::OkStatus();
}

}  // namespace paceline
