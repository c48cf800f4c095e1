#include "worker/data/text_lines.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace paceline {

std::vector<std::string> TextFilesOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return {path};
  }
  std::vector<std::string> files = {path + "/train.txt"};
  const std::string test = path + "/val.txt";
  if (access(test.c_str(), F_OK) == 0) files.push_back(test);
  return files;
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
