#include "worker/data/text_lines.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

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

absl::StatusOr<TextFiles> OpenTextFiles(const std::string& path) {
  TextFiles files;
  for (const std::string& each : TextFilesOf(path)) {
    PACELINE_ASSIGN_OR_RETURN(auto file, ByteFile::Open(each));
    files.push_back(std::move(file));
  }
  return files;
}

absl::Status LineReader::Take(int64_t offset, absl::Span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\n') {
      PACELINE_RETURN_IF_ERROR(
          TakeByte(offset + static_cast<int64_t>(i), bytes[i]));
      continue;
    }
    PACELINE_RETURN_IF_ERROR(EndLine());
    ++number_;
  }
  return absl::OkStatus();
}

absl::Status LineReader::End() {
  return has_begun_line() ? EndLine() : absl::OkStatus();
}

absl::Status LineReader::Refuse(absl::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": line ", number_, " ", why));
}

int64_t TestLinesOf(const DataSpec& data, int64_t train) {
  return static_cast<int64_t>(static_cast<double>(train) * data.test_fraction);
}

absl::Status CheckLines(const DataSpec& data, int64_t train, int64_t test,
                        bool has_test) {
  if (train > 0 && (!has_test || test > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      data.path, ": has ", train, " lines for training and ", test,
      " for evaluation, need at least 1 of each; data.test_fraction 0 goes "
      "without evaluation"));
}

}  // namespace paceline
