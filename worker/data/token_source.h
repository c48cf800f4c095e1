// Texts as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

// A row of tokens.  Immutable; several threads may read at the same time.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;

  // Tokens [first, first + into.size()), which must exist.
  // Errors: DataLoss  the file is shorter than when it was opened
  virtual absl::Status Read(int64_t first, absl::Span<int64_t> into) const = 0;
};

// A token is a byte, or a little-endian uint16 as nanoGPT's prepare.py writes
// them; nothing is kept in memory.  bytes_a_token: 1 or 2.  Reads the file once
// to see that all tokens are below `classes`, where they might not be.
//
// Errors (the message names the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  half a token at the end, a token that is too great
absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenFile(
    const std::string& path, int bytes_a_token, int32_t classes);

// Characters (UTF-8) of each path, numbered by their rank among all different
// ones, which are sorted by code point; kept in memory at two bytes each.
//
// Errors (the message names the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  not UTF-8; more different characters than `classes` or
//                    65536
absl::StatusOr<std::vector<std::unique_ptr<TokenSource>>> OpenCharacters(
    const std::vector<std::string>& paths, int32_t classes);

}  // namespace paceline
