// Checks of answers that carry a status.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {

// Returns the value of `result`; without one the test ends here and shows the
// status.
template <typename T>
T Value(absl::StatusOr<T> result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

template <typename Matcher>
void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const Matcher& message) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), message);
}

}  // namespace paceline
