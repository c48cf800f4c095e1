// Errors from the parts of their message, joined as absl::StrCat joins them;
// two macros that Debian 12's Abseil does not bring; PACELINE_CHECK.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {

// InvalidArgument("got ", n, ", need ", m) and so on, one for each code.
#define PACELINE_ERROR(Name)                            \
  template <typename... Parts>                          \
  absl::Status Name(const Parts&... message) {          \
    return absl::Name##Error(absl::StrCat(message...)); \
  }
PACELINE_ERROR(InvalidArgument)
PACELINE_ERROR(NotFound)
PACELINE_ERROR(FailedPrecondition)
PACELINE_ERROR(Aborted)
PACELINE_ERROR(AlreadyExists)
PACELINE_ERROR(Unavailable)
PACELINE_ERROR(DeadlineExceeded)
PACELINE_ERROR(ResourceExhausted)
PACELINE_ERROR(DataLoss)
PACELINE_ERROR(Internal)
PACELINE_ERROR(PermissionDenied)
PACELINE_ERROR(Unauthenticated)
PACELINE_ERROR(Unimplemented)
PACELINE_ERROR(Cancelled)
#undef PACELINE_ERROR

// Prints and aborts.  `what` holds the values that broke the invariant.
[[noreturn]] inline void Panic(const char* file, int line,
                               const char* condition, const std::string& what) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line,
               condition, what.c_str());
  std::abort();
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

// Ends the process over a broken invariant: ours, never a peer's.  Not named
// CHECK, which LibTorch defines.
// PACELINE_CHECK(a < b, "a=", a, " b=", b);
#define PACELINE_CHECK(condition, ...)                  \
  do {                                                  \
    if (!(condition)) {                                 \
      ::paceline::Panic(__FILE__, __LINE__, #condition, \
                        absl::StrCat(__VA_ARGS__));     \
    }                                                   \
  } while (false)
#define PACELINE_CHECK_EQ(a, b) PACELINE_CHECK((a) == (b), (a), " and ", (b))
