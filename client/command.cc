#include "client/command.h"

#include "absl/strings/str_cat.h"
#include "client/text.h"

namespace paceline {

ExitCode ReportError(Console& console, const absl::Status& status) {
  const absl::string_view message = status.message().empty()
                                        ? absl::string_view("unknown error")
                                        : status.message();
  console.Note(absl::StrCat("paceline: ", ShortenWords(message)));
  return ExitCodeFor(status);
}

}  // namespace paceline
