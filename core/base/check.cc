#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace paceline {

void Panic(const char* file, int line, const char* condition,
           const std::string& what) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line,
               condition, what.c_str());
  std::abort();
}

}  // namespace paceline
