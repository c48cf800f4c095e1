// Which versions of its weights a stage keeps, and
// which it may let go.  The values themselves are the engine's `Payload`.
#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/errors.h"

namespace paceline {

// Versions are numbered by the updates before them, from 0.  A version stays
// while a micro-batch that went forward at it waits for its backward, and while
// forwards to come may ask for it; the newest always.  Thread-compatible.
template <typename Payload>
class VersionRing {
 public:
  explicit VersionRing(Payload first) {
    versions_.push_back({0, 0, std::move(first)});
  }

  // The next forward computes at `version`, and no later forward at an older
  // one.  The version need not exist before that forward: newest() + 1 means
  // that no later forward wants the newest.  Returns the payloads that it
  // releases.
  // Errors: FailedPrecondition  the version is gone, or more than one ahead
  absl::StatusOr<std::vector<Payload>> Use(int64_t version) {
    if (version > newest() + 1 || (version <= newest() && !Find(version))) {
      return FailedPrecondition("version ", version,
                                " of the weights: here are ",
                                versions_.front().number, " to ", newest());
    }
    next_ = version;
    return LetGo();
  }

  // A forward begins: holds its version until Release().
  // Errors: FailedPrecondition  the version that Use() named is not made yet
  absl::StatusOr<int64_t> Acquire() {
    Version* version = Find(next_);
    if (version == nullptr) {
      return FailedPrecondition("a forward at version ", next_,
                                " of the weights, but the newest is ",
                                newest());
    }
    ++version->users;
    return version->number;
  }

  // Its backward is done.  Returns what was let go.
  std::vector<Payload> Release(int64_t number) {
    Version* version = Find(number);
    PACELINE_CHECK(version != nullptr && version->users > 0,
                   "version=", number);
    --version->users;
    return LetGo();
  }

  // Whether the next update may write over the newest version.
  bool MayOverwrite() const {
    return versions_.back().users == 0 && next_ > newest();
  }

  // An update was made in place: the newest has the next number now.
  void Overwrite() {
    PACELINE_CHECK(MayOverwrite(), "newest=", newest());
    ++versions_.back().number;
  }
  // An update was made beside the newest.
  std::vector<Payload> Push(Payload payload) {
    versions_.push_back({newest() + 1, 0, std::move(payload)});
    return LetGo();
  }

  // The version exists.
  Payload& at(int64_t number) {
    Version* version = Find(number);
    PACELINE_CHECK(version != nullptr, "version=", number);
    return version->payload;
  }
  Payload& newest_payload() { return versions_.back().payload; }

  int64_t newest() const { return versions_.back().number; }
  int size() const { return static_cast<int>(versions_.size()); }

 private:
  struct Version {
    int64_t number = 0;
    int users = 0;
    Payload payload;
  };

  // Null when it is not here.
  Version* Find(int64_t number) {
    for (Version& version : versions_) {
      if (version.number == number) return &version;
    }
    return nullptr;
  }

  std::vector<Payload> LetGo() {
    std::vector<Payload> gone;
    std::erase_if(versions_, [&, last = newest()](Version& version) {
      if (version.users > 0 || version.number >= next_ ||
          version.number == last) {
        return false;
      }
      gone.push_back(std::move(version.payload));
      return true;
    });
    return gone;
  }

  std::list<Version> versions_;  // ascending; payloads stay where they are
  int64_t next_ = 0;             // of the next forward
};

}  // namespace paceline
