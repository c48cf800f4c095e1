#include "client/commands/usage_error.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/render/text.h"
#include "core/model/job_spec.h"

namespace paceline {

namespace {

std::string ExplainMissing(const UsageFault& fault) {
  if (!fault.missing.empty()) {
    return absl::StrJoin(
        fault.missing, "; ", [](std::string* out, const MissingOption& option) {
          absl::StrAppend(out, option.name, " is missing: ", option.help);
        });
  }
  return fault.commands.empty()
             ? fault.what
             : absl::StrCat("name a command: ",
                            absl::StrJoin(fault.commands, ", "));
}

std::string ExplainUnexpected(const UsageFault& fault) {
  for (const std::string& word : fault.unexpected) {
    if (!absl::StartsWith(word, "-")) continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string meant = DidYouMean(flag, fault.flags);
    return absl::StrCat(
        "there is no option ", Printable(flag), " here",
        meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"));
  }
  return absl::StrCat("not expected: ",
                      Printable(absl::StrJoin(fault.unexpected, " ")));
}

// "Could not convert: --devices = abc", as of a number too great.
std::string ExplainConversion(const UsageFault& fault) {
  absl::string_view text = fault.what;
  if (!absl::ConsumePrefix(&text, "Could not convert: ")) return fault.what;
  const size_t equals = text.find(" = ");
  if (equals == absl::string_view::npos) return fault.what;
  return absl::StrCat(text.substr(0, equals), ": '",
                      Printable(text.substr(equals + 3)),
                      "' is no number that fits here");
}

}  // namespace

std::string ExplainUsage(const UsageFault& fault) {
  switch (fault.kind) {
    case UsageFaultKind::kMissing:
      return ExplainMissing(fault);
    case UsageFaultKind::kUnexpected:
      return ExplainUnexpected(fault);
    case UsageFaultKind::kNoNumber:
      return ExplainConversion(fault);
    case UsageFaultKind::kOther:
      break;
  }
  return Printable(fault.what);
}

}  // namespace paceline
