// Text of anybody as well-formed UTF-8, which is what a string of a proto must
// be: a message with any other is one that its receiver cannot read.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace paceline {

// Bytes of the well-formed UTF-8 sequence that `text` starts with (RFC 3629,
// section 4); 0 when it starts with none.
size_t Utf8SequenceLength(absl::string_view text);

// `text` with "\xff" in place of a byte 0xff that belongs to no sequence, and
// so on, as a line of the log has it.  At most `most_bytes`, 3 or more: what is
// longer is cut between two characters and ends with "...".  Text that is good
// and short comes back as it is.  Reads no more of `text` than it returns.
std::string ToUtf8(absl::string_view text, size_t most_bytes);

}  // namespace paceline
