// Pieces as workers would give them, and a store that takes them to a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "coordinator/store/file_checkpoint_store.h"
#include "core/transfer/checksum.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {

inline uint64_t HashText(const std::string& text) {
  return HashBytes(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// Byte i of a piece depends on its layer and on i.  Thread-compatible.
class FakePieceFetcher final : public PieceFetcher {
 public:
  static std::string PieceText(int layer, int64_t bytes) {
    std::string text(bytes, '\0');
    for (int64_t i = 0; i < bytes; ++i) {
      text[i] = static_cast<char>(31 * (layer + 1) + i);
    }
    return text;
  }

  absl::StatusOr<uint64_t> Fetch(
      const HeldPiece& ask,
      absl::FunctionRef<absl::Status(absl::string_view)> take) override {
    asked.push_back(ask.holder.address);
    offsets.push_back(ask.offset);
    if (refuses == ask.holder.address) return absl::UnavailableError("gone");
    if (has_none == ask.holder.address) return absl::AbortedError("another");
    if (away.contains(std::ssize(asked))) return absl::UnavailableError("out");
    std::string text = PieceText(ask.piece.layer, ask.bytes);
    const uint64_t checksum = HashText(text);
    if (lies == ask.holder.address && !text.empty()) text[0] ^= 1;
    absl::string_view view = text;
    view.remove_prefix(ask.offset);
    if (breaks_after > 0 && breaks_after < std::ssize(view)) {
      const absl::Status taken = take(view.substr(0, breaks_after));
      return taken.ok() ? absl::UnavailableError("broke") : taken;
    }
    const size_t half = view.size() / 2;
    if (halts == std::ssize(asked)) {
      const absl::Status taken = take(view.substr(0, half));
      return taken.ok() ? absl::DeadlineExceededError("a halt") : taken;
    }
    for (const auto part : {view.substr(0, half), view.substr(half)}) {
      if (const absl::Status taken = take(part); !taken.ok()) return taken;
    }
    return checksum;
  }
  void Cancel() override {}

  std::vector<std::string> asked;  // holders
  std::vector<int64_t> offsets;    // of each, where it was to begin
  int64_t breaks_after = 0;        // bytes of a call; 0: it does not
  int64_t halts = 0;               // this call, from 1 on, brings half of it
  std::set<int64_t> away;          // these calls do not get through
  std::string refuses;             // this holder does not answer
  std::string has_none;            // this one has no piece any more
  std::string lies;                // this one sends a wrong byte
};

// Calls `ask` with a `done` and waits for its answer.
template <typename Answer>
Answer AwaitAnswer(
    const std::function<void(std::function<void(Answer)>)>& ask) {
  absl::Notification came;
  Answer answer;
  ask([&](Answer given) {
    answer = std::move(given);
    came.Notify();
  });
  came.WaitForNotification();
  return answer;
}

}  // namespace paceline
