// Errors from the parts of their message, joined as absl::StrCat joins them.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {

template <typename... Parts>
absl::Status InvalidArgument(const Parts&... message) {
  return absl::InvalidArgumentError(absl::StrCat(message...));
}

template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... message) {
  return absl::FailedPreconditionError(absl::StrCat(message...));
}

template <typename... Parts>
absl::Status ResourceExhausted(const Parts&... message) {
  return absl::ResourceExhaustedError(absl::StrCat(message...));
}

template <typename... Parts>
absl::Status NotFound(const Parts&... message) {
  return absl::NotFoundError(absl::StrCat(message...));
}

template <typename... Parts>
absl::Status DataLoss(const Parts&... message) {
  return absl::DataLossError(absl::StrCat(message...));
}

}  // namespace paceline
