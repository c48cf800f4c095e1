// The names by which the HTTP port is called.
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace paceline {

// A page of a stranger can have its own name looked up as this machine's
// address (DNS rebinding), and its reader's browser then gives it whatever this
// machine serves; but the browser says the name.  So only those are answered
// that no stranger can have: addresses, "localhost", this machine's names, with
// domain and with ".local", and the names that were given.
// Thread-safe.
class HttpHosts {
 public:
  explicit HttpHosts(std::vector<std::string> given);

  // authority: as the header Host has it: "pi-1.local:7480", "[::1]".
  // May ask the resolver for this machine's domain, once a minute.
  bool Allows(absl::string_view authority) const;

 private:
  bool IsOwn(const std::string& name) const;

  const std::vector<std::string> given_;
  mutable absl::Mutex mutex_;
  mutable std::string own_ ABSL_GUARDED_BY(mutex_);  // with the domain
  mutable absl::Time asked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace paceline
