// `paceline job keys`: all keys of a job file with their types, ranges,
// defaults and meanings; asks no coordinator.
#pragma once

#include <string>

#include "client/commands/command.h"
#include "client/files/document.h"

namespace paceline {

// A job file in which every key stands with its default, below a comment that
// says what it means.  Where the default depends on other keys, the key is a
// comment too.  section: "train" or "train.optimizer" for its keys only; empty:
// all.
std::string JobReference(const std::string& section = "");

// The same as keys[]; client/README.md lists their fields.
Document JobReferenceDocument(const std::string& section = "");

// Ends with kExitUsage for a section that there is not.
ExitCode JobKeysCommand(Console& console, const std::string& section);

}  // namespace paceline
