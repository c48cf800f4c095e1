// Broken invariants: ours, never a peer's.  Not named CHECK, which LibTorch
// defines.
#pragma once

#include <string>

namespace paceline {

// Prints and aborts.  `what` holds the values that broke the invariant.
[[noreturn]] void Panic(const char* file, int line, const char* condition,
                        const std::string& what);

}  // namespace paceline

// PACELINE_CHECK(a == b, absl::StrCat("a=", a, " b=", b));
#define PACELINE_CHECK(condition, what)                          \
  do {                                                           \
    if (!(condition)) {                                          \
      ::paceline::Panic(__FILE__, __LINE__, #condition, (what)); \
    }                                                            \
  } while (false)
