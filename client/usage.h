// Reads a parser of CLI11: what is wrong with a command line, and which
// commands and options there are.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/commands/completion.h"

namespace paceline {

// The type of an argument that names a file: completion offers files for it.
inline constexpr char kFile[] = "FILE";

// Two lines: what is wrong with the command line that `app` refused with
// `error`, and what would be right; then which --help says more.
std::string ExplainMistake(const CLI::App& app, const CLI::ParseError& error,
                           int argc, const char* const* argv);

// `app` with all commands below it and their options.
CommandNode DescribeCommands(const CLI::App& app);

// Stands at the end of the help of all: examples and exit codes.
extern const char kProgramFooter[];

}  // namespace paceline
