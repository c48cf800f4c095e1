// Errors from the parts of their message, joined as absl::StrCat joins them.
// Two macros that Debian 12's Abseil does not bring.
#pragma once

#include <utility>

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

// Returns from the enclosing function when `expression` is not OK.
#define PACELINE_RETURN_IF_ERROR(expression)                                  \
  do {                                                                        \
    if (absl::Status paceline_status = (expression); !paceline_status.ok()) { \
      return paceline_status;                                                 \
    }                                                                         \
  } while (false)

#define PACELINE_CONCAT_INNER(a, b) a##b
#define PACELINE_CONCAT(a, b) PACELINE_CONCAT_INNER(a, b)

// PACELINE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(...));
#define PACELINE_ASSIGN_OR_RETURN(target, expression)                      \
  PACELINE_ASSIGN_OR_RETURN_INNER(PACELINE_CONCAT(paceline_or_, __LINE__), \
                                  target, expression)
#define PACELINE_ASSIGN_OR_RETURN_INNER(either, target, expression) \
  auto either = (expression);                                       \
  if (!either.ok()) return either.status();                         \
  target = std::move(*either)
