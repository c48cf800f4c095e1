// ListPage decides which elements of a list go into one answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {

// An answer ends with the element that brings it to this size.
inline constexpr int64_t kAnswerBytes = 1 << 20;

// Thread-compatible.
class ListPage {
 public:
  // skip: the elements of earlier answers.  page_size: the client's; 0: `most`,
  // which is also its bound.
  ListPage(int64_t skip, int64_t page_size, int64_t most)
      : skip_(skip),
        place_(skip),
        left_(page_size > 0 ? std::min(page_size, most) : most) {}

  // The number in a token; `first` for an empty one.
  // Errors: InvalidArgument  no list gave this token
  static absl::StatusOr<int64_t> Parse(const std::string& token,
                                       int64_t first = 0) {
    int64_t number = 0;
    if (token.empty()) return first;
    if (absl::SimpleAtoi(token, &number) && number >= 0) return number;
    return InvalidArgument("page_token: '", token, "' is none of this list's");
  }

  // Moves the elements that belong to this answer from the list, or from its
  // next part, to a field of the answer, as `make` makes them.  Looks at no
  // other.
  template <typename List, typename Field, typename Make = std::identity>
  void Add(List&& list, Field& answer, const Make& make = {}) {
    for (auto next = list.begin(); next != list.end(); ++next) {
      if (skip_ > 0) {
        --skip_;
        continue;
      }
      is_full_ = left_ == 0 || bytes_ >= kAnswerBytes;
      if (is_full_) return;
      *answer.Add() = make(std::move(*next));
      --left_;
      ++place_;
      if constexpr (requires { answer[0].ByteSizeLong(); }) {
        bytes_ += static_cast<int64_t>(answer.rbegin()->ByteSizeLong());
      } else {
        bytes_ += static_cast<int64_t>(answer.rbegin()->size());
      }
    }
  }
  int64_t left() const { return left_; }
  // The token for the next answer; empty: the list is complete.
  std::string next() const { return is_full_ ? absl::StrCat(place_) : ""; }

 private:
  int64_t skip_;
  int64_t place_;  // of the next element
  int64_t left_;
  int64_t bytes_ = 0;
  bool is_full_ = false;
};

}  // namespace paceline
