// Where LibTorch's exceptions end: nothing of Paceline throws.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace paceline {

// Runs `work`, which returns absl::Status or absl::StatusOr, and turns what it
// throws into an error that begins with `what`:
//   ResourceExhausted  no memory
//   Internal           anything else: our bug, since input is checked before
template <typename Work>
auto Guard(const char* what, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": no memory left"));
  } catch (const c10::Error& error) {
    const char* text = error.what_without_backtrace();
    const std::string message = absl::StrCat(what, ": LibTorch: ", text);
    // LibTorch's allocator throws no type of its own.
    return absl::StrContains(text, "can't allocate memory")
               ? absl::ResourceExhaustedError(message)
               : absl::InternalError(message);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace paceline
