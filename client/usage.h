// Reads a parser of CLI11: what is wrong with a command line, and what may come
// next in it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "client/options.h"

namespace paceline {

// The words of the command that was named, without the program: "job list".
std::string NameOf(const CLI::App& app);

// Two lines: what is wrong with the command line that `app` refused with
// `error`, and what would be right; then which --help says more.
std::string ExplainMistake(const CLI::App& app, const CLI::ParseError& error,
                           int argc, const char* const* argv);

// Returns what may stand in place of the last of `words`, which follow the
// program's name: commands and options of `app`, or what an argument may be.
Completion Complete(const CLI::App& app, const std::vector<std::string>& words);

// Stands at the end of the help of all: examples and exit codes.
extern const char kProgramFooter[];

}  // namespace paceline
