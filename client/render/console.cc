#include "client/render/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace paceline {
namespace {

// As locale(7): the first of the three that is set decides.
bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = absl::AsciiStrToLower(Environment(name));
    if (value.empty()) continue;
    return absl::StrContains(value, "utf-8") ||
           absl::StrContains(value, "utf8");
  }
  return false;
}

// A terminal that says nothing has the usual 80 columns and 24 rows.
ScreenSize SizeOfScreen() {
  winsize window = {};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
  return {window.ws_col > 0 ? window.ws_col : 80,
          window.ws_row > 0 ? window.ws_row : 24};
}

}  // namespace

void Console::Print(const std::string& text) { out_ << text; }

void Console::Print(const Document& document) {
  const bool pretty = format_ == OutputFormat::kJson;
  if (pretty || format_ == OutputFormat::kJsonLines) {
    out_ << ToJson(document, pretty) << '\n';
  } else {
    out_ << ToYaml(document);
  }
}

void Console::Print(const std::string& table, const Document& document) {
  if (this->table()) {
    Print(table);
  } else {
    Print(document);
  }
}

void Console::PrintList(const std::string& table, const std::string& key,
                        Document elements) {
  if (format_ != OutputFormat::kJsonLines) {
    Print(table, Document{{key, std::move(elements)}});
    return;
  }
  for (const Document& element : elements) Print(element);
}

void Console::NoteLine(const std::string& line) {
  if (line_open_) err_ << "\r\x1b[K";
  line_open_ = false;
  err_ << line << '\n' << std::flush;
}

void Console::Redraw(const std::string& line) {
  err_ << '\r' << CutToWidth(line, traits_.columns - 1) << "\x1b[K"
       << std::flush;
  line_open_ = true;
}

void Console::EndLive() {
  if (line_open_) err_ << '\n' << std::flush;
  line_open_ = false;
}

void Console::Flush() {
  out_.flush();
  err_.flush();
}

Console::Traits DetectTraits() {
  Console::Traits traits;
  // Redrawing needs the same escape codes as color.
  const bool draws = Environment("NO_COLOR").empty() &&
                     Environment("TERM") != "dumb" &&
                     !Environment("TERM").empty();
  traits.live = draws && isatty(STDERR_FILENO) != 0;
  if (draws && isatty(STDOUT_FILENO) != 0) traits.screen = SizeOfScreen;
  traits.unicode = LocaleIsUtf8() && Environment("NO_COLOR").empty();
  winsize window = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 20) {
    traits.columns = window.ws_col;
  }
  return traits;
}

}  // namespace paceline
