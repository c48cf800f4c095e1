// Reads a parser of CLI11: what is wrong with a command line, and what may come
// next in it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/options.h"
#include "client/values/text.h"

namespace paceline {

// The type of an argument that names a file: completion offers files for it.
inline constexpr char kFile[] = "FILE";

// Adds an option that takes a time, into an absl::Duration or an optional one.
template <typename T>
CLI::Option* AddTime(CLI::App* app, const char* name, T& time,
                     const char* help) {
  return app
      ->add_option_function<std::string>(
          name, [](const std::string&) {}, help)
      ->type_name("TIME")
      ->check([&time](const std::string& text) -> std::string {
        absl::Duration parsed;
        if (!ParseTimeout(text, &parsed)) {
          return absl::StrCat("'", text, "' is no time, as 90, 90s, 5m or 2h");
        }
        time = parsed;
        return "";
      });
}

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
