// Messages from their text form.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace paceline {

// A field that `text` gives once more takes the new value.
inline void MergeText(const std::string& text,
                      google::protobuf::Message& message) {
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &message))
      << text;
}

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  MergeText(text, message);
  return message;
}

// Clears the field that is `path`, names with points between them.
inline void ClearField(absl::string_view path,
                       google::protobuf::Message& message) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(path, absl::MaxSplits('.', 1));
  const auto& values = *message.GetReflection();
  const auto* const field =
      message.GetDescriptor()->FindFieldByName(parts.first);
  ASSERT_NE(field, nullptr) << path;
  if (parts.second.empty()) {
    values.ClearField(&message, field);
  } else {
    ClearField(parts.second, *values.MutableMessage(&message, field));
  }
}

// changes: lines that are merged one after another.  "- PATH" clears a field;
// "N * TEXT" merges TEXT so many times.
inline void ChangeMessage(const std::string& changes,
                          google::protobuf::Message& message) {
  for (absl::string_view line : absl::StrSplit(changes, '\n')) {
    if (absl::ConsumePrefix(&line, "- ")) {
      ClearField(line, message);
      continue;
    }
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(" * ", 1));
    int64_t times = 0;
    if (absl::SimpleAtoi(parts.first, &times)) {
      for (; times > 0; --times) MergeText(parts.second, message);
    } else {
      MergeText(std::string(line), message);
    }
  }
}

}  // namespace paceline
