// Completion scripts for shells, from the tree of commands that the parser
// itself uses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

struct CommandOption {
  std::vector<std::string> names;  // with dashes: "-o", "--output"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // all it may take; empty: anything
  bool is_list = false;             // takes several of them, with commas
  bool takes_file = false;
};

struct CommandNode {
  std::string name;
  std::string help;
  std::vector<CommandOption> options;
  std::vector<std::string> words;  // values of a positional argument
  bool takes_file = false;         // a positional argument
  std::vector<CommandNode> commands;
};

// The closed words that an option's type stands for, none where anything may
// stand: those that it lists itself ("FORMAT:{table,json}"), and those of
// MODEL, POLICY, SCHEDULE and KEY=VALUE (the keys of a job).
std::vector<std::string> WordsOfType(const std::string& type);

// Whether a type is of a list: "POLICY,...".
bool IsListType(const std::string& type);

// shell: bash, zsh, fish.  Options of a node hold below it too.
// Errors: InvalidArgument  another shell
absl::StatusOr<std::string> RenderCompletion(const CommandNode& root,
                                             const std::string& shell);

}  // namespace paceline
