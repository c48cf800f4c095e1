// Explains a command line that the parser refuses. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline {

// An option or word that a command needs and did not get.
struct MissingOption {
  std::string name;  // "-o,--output-file FILE"; of a word: "JOB"
  std::string help;
};

enum class UsageFaultKind : uint8_t {
  kMissing,     // of commands, or of `missing`
  kUnexpected,  // words that nobody takes
  kNoNumber,
  kOther,  // `what` says it
};

struct UsageFault {
  UsageFaultKind kind = UsageFaultKind::kOther;
  std::string what;                   // CLI11's words
  std::vector<std::string> commands;  // one of which was to come; may be none
  std::vector<MissingOption> missing;
  std::vector<std::string> unexpected;  // in the order given
  std::vector<std::string> flags;       // "--model", all that hold there
};

// One line: what is wrong, and what would be right.
std::string ExplainUsage(const UsageFault& fault);

}  // namespace paceline
