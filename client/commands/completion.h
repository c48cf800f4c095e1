// Completion of command lines.  A shell calls the hidden command `paceline
// __complete WORDS...` with the words up to the one that is being typed, and
// gets a line for each word that may stand there.  client/usage.h has the part
// that reads the parser.
#pragma once

#include <string>
#include <vector>

#include "client/commands/command.h"

namespace paceline {

inline constexpr char kCompleteCommand[] = "__complete";

struct Offer {
  std::string word;
  std::string help = {};
};

// The words that may stand in place of the last one of a command line.
struct Completion {
  std::string word = {};  // as far as it is typed, behind the last comma
  std::string head = {};  // what stands before that comma, with the comma
  std::vector<Offer> offers = {};
  std::string ask = {};  // a mesh knows more: its JOBs, NODEs or CONTEXTs
  bool files = false;
  bool goes_on = false;             // no blank follows an offered word
  std::vector<std::string> mesh{};  // the options that name the mesh
};

// Adds what a value of this type may be: the words that the type lists itself
// ("FORMAT:{table,json}"), of "POLICY,..." those behind a comma too, and those
// of JOB, NODE, CONTEXT, MODEL, POLICY, SCHEDULE, KEY=VALUE, FILE and DIR.
void AddOffersOfType(const std::string& type, Completion& completion);

// A line for each offer that begins with the typed word: the word, a tabulator,
// its help.  Before them `:files` where files may stand too, and `:nospace`.
std::string CompletionText(const Completion& completion);

// Prints a line for each job or node that completion.ask asks for: of jobs the
// newest.
ExitCode AskCompletionCommand(const CommandContext& context,
                              Completion completion);

// The script for bash, zsh or fish that calls the hidden command.
std::string CompletionScript(const std::string& shell);

}  // namespace paceline
