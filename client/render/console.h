// Where a command writes, and what the terminal there can do.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/values/document.h"
#include "client/values/text.h"

namespace paceline {

struct ScreenSize {
  int columns = 0;  // 0: any number
  int rows = 0;     // 0: any number
};

// Data goes to `out`, all else to `err`.  Thread-compatible; the streams
// outlive it.
class Console {
 public:
  struct Traits {
    bool live = false;     // `err` is a terminal that redraws lines
    bool unicode = false;  // both ends may show more than ASCII
    int columns = 80;      // of that terminal
    // `out` is a terminal that can be drawn on; asked again for each drawing.
    std::function<ScreenSize()> screen = nullptr;
  };

  Console(std::ostream& out, std::ostream& err, OutputFormat format,
          Traits traits)
      : out_(out), err_(err), format_(format), traits_(traits) {}

  OutputFormat format() const { return format_; }
  bool table() const { return format_ == OutputFormat::kTable || wide(); }
  // A table with all of its columns.
  bool wide() const { return format_ == OutputFormat::kWide; }
  bool live() const { return traits_.live; }
  bool unicode() const { return traits_.unicode; }
  int columns() const { return traits_.columns; }
  bool screen() const { return traits_.screen != nullptr; }
  ScreenSize screen_size() const { return traits_.screen(); }

  // Text of the table format.
  void Print(const std::string& text);
  // One document in the format asked for; not where table().
  void Print(const Document& document);
  // `table` in the table format, else `document`.
  void Print(const std::string& table, const Document& document);
  // `table` in the table format, else `elements` under `key` in one document;
  // for jsonl each on a line of its own.
  void PrintList(const std::string& table, const std::string& key,
                 Document elements);

  // A line for people, on `err`, from parts that are joined as absl::StrCat
  // joins.  Clears a live line before it.
  template <typename... Parts>
  void Note(const Parts&... line) {
    NoteLine(absl::StrCat(line...));
  }
  // A line for each of the texts, behind `before`.  Each is made printable.
  template <typename Texts>
  void NoteEach(absl::string_view before, const Texts& texts) {
    for (const std::string& text : texts) Note(before, Printable(text));
  }
  // Replaces the live line; only if live().
  void Redraw(const std::string& line);
  // Leaves the live line on the screen and goes to the next.
  void EndLive();

  void Flush();
  // `out` could not be written to, at the last Flush() or before.
  bool broken() const { return out_.fail(); }

 private:
  void NoteLine(const std::string& line);

  std::ostream& out_;
  std::ostream& err_;
  OutputFormat format_;
  Traits traits_;
  bool line_open_ = false;
};

// The traits of standard output and standard error, from the descriptors, the
// window and the environment (NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG).
Console::Traits DetectTraits();

}  // namespace paceline
