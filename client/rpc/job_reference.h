// All keys of a job file with their types, defaults and meanings.
#pragma once

#include <string>

#include "client/document.h"

namespace paceline {

// A job file in which every key stands with its default, below a comment that
// says what it means.  Where the default depends on other keys, the key is a
// comment too.
std::string JobReference();

// The same: keys[] {key, type, default (null: `absent` says it), absent,
// meaning, only_with {key, values[]} or null}.
Document JobReferenceDocument();

}  // namespace paceline
