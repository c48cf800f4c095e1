// Texts of which a sample is a line: where their files are, how lines are taken
// out of them, and which are for evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/model/batch.h"
#include "core/model/job_spec.h"
#include "worker/byte_file.h"

namespace paceline {

// `path` itself; or of a folder its train.txt and, if there is one, val.txt.
std::vector<std::string> TextFilesOf(const std::string& path,
                                     const std::string& ending = ".txt");

// Those, opened: 1 or 2.  Errors: as ByteFile::Open
using TextFiles = std::vector<std::unique_ptr<ByteFile>>;
absl::StatusOr<TextFiles> OpenTextFiles(const std::string& path);

// Takes the lines out of a file that comes in pieces.  Thread-compatible.
class LineReader {
 public:
  explicit LineReader(std::string path) : path_(std::move(path)) {}
  virtual ~LineReader() = default;

  // offset: of `bytes` in the file.  Errors: InvalidArgument  names the file,
  // the line, and what no line may have
  absl::Status Take(int64_t offset, absl::Span<const uint8_t> bytes);
  // The last line may have no line feed.  Errors: the same
  absl::Status End();

 protected:
  absl::Status Refuse(absl::string_view why) const;

 private:
  virtual absl::Status TakeByte(int64_t at, uint8_t byte) = 0;
  virtual absl::Status EndLine() = 0;
  virtual bool has_begun_line() const = 0;

  const std::string path_;
  int64_t number_ = 1;  // of the line
};

// Lines, whatever is kept of one, of both splits.
template <typename Line>
struct SplitLines {
  const std::vector<Line>& of(BatchPhase split) const {
    return split == BatchPhase::kTrain ? train : test;
  }

  std::vector<Line> train;
  std::vector<Line> test;
};

// How many of `train` lines of the only file are for evaluation, the last ones.
int64_t TestLinesOf(const DataSpec& data, int64_t train);

// Errors: InvalidArgument  a split without lines
//   has_test  evaluation is wanted
absl::Status CheckLines(const DataSpec& data, int64_t train, int64_t test,
                        bool has_test);

// All lines of `files`, by a Reader(data, number of the file, path, lines) a
// file, which is a LineReader.  Those of evaluation have a file of their own or
// are the last of the only one, or (data.test_fraction 1) all of it, which are
// in both splits then.  Errors: the reader's; as CheckLines
template <typename Reader, typename Line>
absl::Status ReadLines(const DataSpec& data, const TextFiles& files,
                       SplitLines<Line>& lines) {
  for (size_t i = 0; i < files.size(); ++i) {
    Reader reader(data, static_cast<int32_t>(i), files[i]->path(),
                  i == 0 ? lines.train : lines.test);
    PACELINE_RETURN_IF_ERROR(
        files[i]->Scan(1, [&](int64_t offset, absl::Span<const uint8_t> bytes) {
          return reader.Take(offset, bytes);
        }));
    PACELINE_RETURN_IF_ERROR(reader.End());
  }
  const bool one_file = files.size() == 1;
  std::vector<Line>& train = lines.train;
  if (one_file) {
    const int64_t last = TestLinesOf(data, static_cast<int64_t>(train.size()));
    lines.test.assign(train.end() - last, train.end());
    if (data.test_fraction < 1) train.resize(train.size() - last);
  }
  return CheckLines(data, static_cast<int64_t>(train.size()),
                    static_cast<int64_t>(lines.test.size()),
                    !one_file || data.test_fraction > 0);
}

}  // namespace paceline
