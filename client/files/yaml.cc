#include "client/files/yaml.h"

#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/job/spec/job_spec.h"
#include "yaml-cpp/eventhandler.h"

namespace paceline {
namespace {

// The line of the first tab that indents, which yaml-cpp calls all sorts of
// things; 0: there is none.
int LineOfTab(absl::string_view text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const size_t first = line.find_first_not_of(" \t");
    if (absl::StrContains(line.substr(0, first), '\t') &&
        first != absl::string_view::npos) {
      return number;
    }
  }
  return 0;
}

// Notes where documents begin, and nothing of what is in them.
class DocumentStarts final : public YAML::EventHandler {
 public:
  using Mark = YAML::Mark;
  using Anchor = YAML::anchor_t;
  using Style = YAML::EmitterStyle::value;
  using Text = const std::string&;

  void OnDocumentStart(const Mark& mark) override { line = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, Anchor) override {}
  void OnAlias(const Mark&, Anchor) override {}
  void OnScalar(const Mark&, Text, Anchor, Text) override {}
  void OnSequenceStart(const Mark&, Text, Anchor, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, Text, Anchor, Style) override {}
  void OnMapEnd() override {}

  int line = 0;  // of the newest
};

// The line of a second document; 0: there is none.  YAML::LoadAll() never ends
// where a document is but a comma.
int LineOfSecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  const bool second =
      parser.HandleNextDocument(starts) && parser.HandleNextDocument(starts);
  return second ? starts.line : 0;
}

}  // namespace

absl::Status ReadYaml(const std::string& name, const std::string& text,
                      const std::string& kind, const std::string& needs,
                      absl::FunctionRef<absl::Status(const YAML::Node&)> read) {
  try {
    const int second = LineOfSecondDocument(text);
    const YAML::Node document = YAML::Load(text);
    if (document.IsNull() && !needs.empty()) {
      return InvalidArgument(name, ": is empty; ", kind, " ", needs);
    }
    if (second > 0) {
      return InvalidArgument(name, ":", second, ": a second document; ", kind,
                             " has one");
    }
    return read(document);
  } catch (const YAML::Exception& error) {
    if (const int line = LineOfTab(text); line > 0) {
      return InvalidArgument(name, ":", line,
                             ": a tab indents it; YAML takes blanks for that");
    }
    return InvalidArgument(name, ":", error.mark.line + 1,
                           ": is not YAML at column ", error.mark.column + 1,
                           ": ", error.msg);
  } catch (const std::exception& error) {
    return InvalidArgument(name, ": cannot be read as YAML: ", error.what());
  }
}

std::string NodeText(const YAML::Node& node) {
  if (node.IsMap()) return "keys";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "nothing";
  return absl::StrCat("'", Excerpt(node.Scalar()), "'");
}

std::string UnknownKeyText(const std::string& key,
                           const std::vector<std::string>& known) {
  const std::string close = DidYouMean(key, known);
  return absl::StrCat(
      "unknown key; ",
      close.empty() ? absl::StrCat("known here: ", absl::StrJoin(known, ", "))
                    : absl::StrCat("did you mean '", close, "'?"));
}

std::string Excerpt(absl::string_view text) {
  constexpr int kMostColumns = 60;
  const std::string all = Printable(text);
  const std::string cut = CutToWidth(all, kMostColumns);
  return cut.size() < all.size() ? absl::StrCat(cut, "...") : cut;
}

}  // namespace paceline
