// For the tests of worker/data: a job on files of a folder that goes away.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_folder.h"
#include "worker/data/sample_set.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

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
