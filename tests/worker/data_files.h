// For the tests of worker/data: a job on files of a folder that goes away.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pictures.h"
#include "worker/data/batch_loader.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// Removed with all that is in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/dataXXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const {
    return absl::StrCat(path_, "/", name);
  }
  // Makes the folders above it too.
  void Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = Path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

// All micro-batches of a source, one after the other.
inline std::vector<TensorList> WalkAll(BatchSource& source) {
  std::vector<TensorList> all;
  for (;;) {
    const auto batch = source.NextBatch();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || !batch->has_value()) return all;
    for (int i = 0; i < (*batch)->micro_batches; ++i) {
      auto tensors = source.NextMicroBatch();
      EXPECT_TRUE(tensors.ok()) << tensors.status();
      if (!tensors.ok()) return all;
      all.push_back(*std::move(tensors));
    }
  }
}

// The same of a job's data; nothing, and a failure, where that does not open.
inline std::vector<TensorList> WalkAll(const JobSpec& spec) {
  const auto source = OpenBatchSource(spec);
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? WalkAll(**source) : std::vector<TensorList>();
}

// Every byte of them.
inline std::string BytesOf(const std::vector<TensorList>& all) {
  std::string bytes;
  for (const TensorList& tensors : all) {
    for (const Tensor& tensor : tensors) {
      bytes.append(reinterpret_cast<const char*>(tensor.data.get()),
                   tensor.bytes());
    }
  }
  return bytes;
}

class DataTest : public ::testing::Test {
 protected:
  // The message with which opening is refused.
  std::string Refusal() {
    const absl::Status status = OpenBatchSource(spec_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  TempFolder folder_;
  JobSpec spec_;
};

}  // namespace paceline
