// Broken invariants: ours, never a peer's.  Not named CHECK, which LibTorch
// defines.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace paceline {

// Prints and aborts.  `what` holds the values that broke the invariant.
[[noreturn]] inline void Panic(const char* file, int line,
                               const char* condition, const std::string& what) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line,
               condition, what.c_str());
  std::abort();
}

}  // namespace paceline

// PACELINE_CHECK(a == b, absl::StrCat("a=", a, " b=", b));
#define PACELINE_CHECK(condition, what)                          \
  do {                                                           \
    if (!(condition)) {                                          \
      ::paceline::Panic(__FILE__, __LINE__, #condition, (what)); \
    }                                                            \
  } while (false)
