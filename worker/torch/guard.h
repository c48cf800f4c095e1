// Where LibTorch's exceptions end: nothing of Paceline throws.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "core/base/errors.h"

namespace paceline {

// Guard() turns what was thrown into this.
inline absl::Status FromException(const char* what, const std::string& text) {
  // LibTorch's allocator and interpreter throw no types of their own.
  if (absl::StrContains(text, "can't allocate memory")) {
    return ResourceExhausted(what, ": ", text);
  }
  // Only layers of a script are interpreted.
  if (absl::StrContains(text, "TorchScript interpreter")) {
    return InvalidArgument(
        what, ": the script of model.file cannot compute this: ", text,
        "; correct the script, or what it is given (data.shape, the "
        "micro-batch)");
  }
  return Internal(what, ": ", text);
}

// Runs `work`, which returns absl::Status or absl::StatusOr, and turns what it
// throws into an error that begins with `what`:
//   ResourceExhausted  no memory
//   InvalidArgument    code of the job's own script failed
//   Internal           anything else: our bug, since input is checked before
template <typename Work>
auto Guard(const char* what, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(what, ": no memory left");
  } catch (const c10::Error& error) {
    return FromException(
        what, absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return FromException(what, error.what());
  }
}

}  // namespace paceline
