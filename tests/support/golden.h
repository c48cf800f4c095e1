// Compares what a program prints with a text under tests/golden.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace paceline {

// Collects texts and compares them with tests/golden/NAME.txt when it ends.
// Thread-compatible.
class Golden {
 public:
  // replaced: what differs from run to run, and the words to write for it.
  explicit Golden(
      const std::string& name,
      std::vector<std::pair<std::string, std::string>> replaced = {})
      : path_(
            absl::StrCat(PACELINE_SOURCE_DIR, "/tests/golden/", name, ".txt")),
        replaced_(std::move(replaced)) {}
  Golden(const Golden&) = delete;

  ~Golden() {
    if (std::getenv("PACELINE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path_) << text_;
    }
    std::ifstream file(path_);
    const std::string written{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(text_, written)
        << path_ << " differs.  If the change is meant, run this test once "
        << "with PACELINE_UPDATE_GOLDEN=1 and read the difference.";
  }

  // what: a sentence about the case that printed `text`.
  void Add(const std::string& what, const std::string& text) {
    AddText(absl::StrCat("# ", what, "\n", text));
  }
  void AddText(const std::string& text) {
    absl::StrAppend(&text_, text_.empty() ? "" : "\n",
                    absl::StrReplaceAll(text, replaced_));
    if (!absl::EndsWith(text_, "\n")) text_ += "\n";
  }

 private:
  const std::string path_;
  const std::vector<std::pair<std::string, std::string>> replaced_;
  std::string text_;
};

// tests/golden/NAME.txt holds questions, lines that begin with "$ ", and below
// each its answer.  Lines that begin with "# " say why.  A new case is a new
// question in the file.  Several lines of a question are one with line breaks.
template <typename Answer>
void ExpectAnswers(const std::string& name, const Answer& answer) {
  std::ifstream file(
      absl::StrCat(PACELINE_SOURCE_DIR, "/tests/golden/", name, ".txt"));
  ASSERT_TRUE(file) << "no golden text " << name;
  Golden golden(name);
  std::string line, head, question;
  const auto end_question = [&] {
    if (!question.empty()) {
      question.pop_back();
      golden.AddText(absl::StrCat(head, answer(question)));
    }
    head.clear();
    question.clear();
  };
  bool asks = false;  // the line before was a question or a comment
  while (std::getline(file, line)) {
    const bool is_question = line.rfind("$ ", 0) == 0 || line == "$";
    if (!is_question && line.rfind("# ", 0) != 0) {
      asks = false;
      continue;
    }
    if (!asks) end_question();
    asks = true;
    absl::StrAppend(&head, line, "\n");
    if (is_question)
      absl::StrAppend(&question, line.substr(std::min<size_t>(2, line.size())),
                      "\n");
  }
  end_question();
}

}  // namespace paceline
