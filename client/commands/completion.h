// Completion scripts for shells, from the tree of commands that the parser
// itself uses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"

namespace paceline {

struct CommandOption {
  std::vector<std::string> names;  // with dashes: "-o", "--output"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // all it may take; empty: anything
  bool is_list = false;             // takes several of them, with commas
  std::string ask;                  // KindToAsk() of its type
  bool takes_file = false;
};

struct CommandNode {
  std::string name;
  std::string help;
  std::vector<CommandOption> options;
  std::vector<std::string> words;  // values of a positional argument
  std::string ask;                 // KindToAsk() of its type
  bool takes_file = false;         // a positional argument
  std::vector<CommandNode> commands;
};

// The words that an option's type offers, none where anything may stand: those
// that it lists itself ("FORMAT:{table,json}"), and those of
// JOB, MODEL, POLICY, SCHEDULE and KEY=VALUE (the keys of a job).
std::vector<std::string> WordsOfType(const std::string& type);

// A script asks `paceline completion` for these where the values of this type
// are those of a mesh: "jobs" of JOB, "nodes" of NODE, "contexts" of CONTEXT;
// else empty.
std::string KindToAsk(const std::string& type);

// Prints a line for each of a `kind`, its word and what it is with a tabulator
// between them: of jobs the newest.
ExitCode AnswerCompletion(const CommandContext& context,
                          const std::string& kind);

// Whether a type is of a list: "POLICY,...".
bool IsListType(const std::string& type);

// shell: bash, zsh, fish.  Options of a node hold below it too.
// Errors: InvalidArgument  another shell
absl::StatusOr<std::string> RenderCompletion(const CommandNode& root,
                                             const std::string& shell);

}  // namespace paceline
