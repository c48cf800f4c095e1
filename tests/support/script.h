// Scripts of tests: lines of text, each a verb and its words.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace paceline {

// Plays lines and tells what became of it, for golden texts.
// Thread-compatible.
class Script {
 public:
  virtual ~Script() = default;

  // The line "look" tells what the end of each script tells too.
  std::string Play(const std::string& script) {
    for (const absl::string_view line : absl::StrSplit(script, '\n')) {
      words_ = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words_.empty()) continue;
      if (words_[0] == "look") {
        LookAgain();
      } else {
        EXPECT_TRUE(Do(words_[0])) << line;
      }
    }
    LookAgain();
    return out_;
  }

 protected:
  // Carries out the line; false: there is no such verb.
  virtual bool Do(const std::string& verb) = 0;
  // Says how things stand.
  virtual void Look() {}

  bool Has(size_t i) const { return i < words_.size(); }
  std::string Word(size_t i) const { return Has(i) ? words_[i] : ""; }
  int64_t Number(size_t i, int64_t otherwise = 0) const {
    int64_t number = otherwise;
    if (Has(i)) {
      EXPECT_TRUE(absl::SimpleAtoi(words_[i], &number)) << words_[i];
    }
    return number;
  }
  // The text from that word on.
  std::string Rest(size_t i) const {
    if (!Has(i)) return "";
    return absl::StrJoin(words_.begin() + static_cast<std::ptrdiff_t>(i),
                         words_.end(), " ");
  }
  // "5 no such file"
  absl::Status StatusAt(size_t i) const {
    return absl::Status(static_cast<absl::StatusCode>(Number(i)), Rest(i + 1));
  }

  void Say(const std::string& text) { absl::StrAppend(&out_, text, "\n"); }
  void SayOf(const absl::Status& status) {
    if (!status.ok()) Say(status.ToString());
  }

  std::vector<std::string> words_;  // of the line
  std::string out_;

 private:
  void LookAgain() {
    const std::string before = std::exchange(out_, "");
    Look();
    out_ = absl::StrCat(before, before.empty() || out_.empty() ? "" : "--\n",
                        out_);
  }
};

}  // namespace paceline
