#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/errors.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(b));
  return *first + *second;
}

absl::Status Pass(absl::Status status, bool& went_on) {
  PACELINE_RETURN_IF_ERROR(status);
  went_on = true;
  return absl::OkStatus();
}

TEST(StatusMacros, AssignOrReturnMovesTheValueOut) {
  EXPECT_EQ(Sum(2, 3).value(), 5);
}

TEST(StatusMacros, AssignOrReturnReturnsTheFirstError) {
  EXPECT_EQ(Sum(2, -3).status().message(), "negative");
}

TEST(StatusMacros, ReturnIfErrorReturnsOnErrorsOnly) {
  bool went_on = false;
  EXPECT_EQ(Pass(absl::AbortedError("stale"), went_on).message(), "stale");
  EXPECT_FALSE(went_on);

  EXPECT_TRUE(Pass(absl::OkStatus(), went_on).ok());
  EXPECT_TRUE(went_on);
}

TEST(CheckDeathTest, PrintsTheConditionAndTheValues) {
  const int a = 1;

  EXPECT_DEATH(PACELINE_CHECK(a > 2, "a=", a), "broken invariant: a > 2: a=1");
  EXPECT_DEATH(PACELINE_CHECK_EQ(a, 2),
               "broken invariant: .a. == .2.: 1 and 2");
}

}  // namespace
}  // namespace paceline
