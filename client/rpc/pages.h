// AllPages asks for a list page by page.
#pragma once

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"

namespace paceline {

// The elements of all pages in one answer.
//   ask        one page
//   is_enough  whether no further page is wanted
template <typename Response, typename Request>
absl::StatusOr<Response> AllPages(
    Request request,
    absl::FunctionRef<absl::StatusOr<Response>(const Request&)> ask,
    absl::FunctionRef<bool(const Response&)> is_enough = [](const Response&) {
      return false;
    }) {
  Response all;
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(const Response page, ask(request));
    const std::string next = page.next_page_token();
    all.MergeFrom(page);
    // A coordinator that has no pages repeats none.
    if (next.empty() || next == request.page_token() || is_enough(all)) break;
    request.set_page_token(next);
  }
  all.clear_next_page_token();
  return all;
}

}  // namespace paceline
