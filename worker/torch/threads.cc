#include "worker/torch/threads.h"

#include <dlfcn.h>

#include <algorithm>

#include "ATen/Parallel.h"
#include "ATen/Version.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "c10/util/Exception.h"
#include "worker/torch/precision.h"

namespace paceline {
namespace {

// Looked up by name, so that any BLAS can stand behind libblas.so.3.
void CallIfPresent(const char* function, int argument) {
  if (void* found = dlsym(RTLD_DEFAULT, function)) {
    reinterpret_cast<void (*)(int)>(found)(argument);
  }
}

// LibTorch accepts it once a process, and only before its first use.
void SetInteropThreadsOnce() {
  static const bool done = [] {
    try {
      at::set_num_interop_threads(1);
    } catch (const c10::Error&) {
      return false;  // someone set it before; it stays what it is
    }
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

void SetComputeThreads(int threads) {
  threads = std::max(threads, 1);
  SetInteropThreadsOnce();
  at::set_num_threads(threads);
  CallIfPresent("omp_set_num_threads", threads);
  CallIfPresent("openblas_set_num_threads", threads);
}

std::string ActiveCpuCapability() {
  // 1.13 exports no function for it, only this text.
  constexpr absl::string_view kPrefix = "CPU capability usage:";
  for (absl::string_view line :
       absl::StrSplit(at::show_config(), absl::ByAnyChar("\n-"))) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, kPrefix)) continue;
    const std::string level =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(line));
    // What only products in bf16 ask for, oneDNN knows.
    if (level == "avx512" && HasBf16Instructions()) return "avx512_bf16";
    return level == "no avx" ? "default" : level;
  }
  return "default";
}

}  // namespace paceline
