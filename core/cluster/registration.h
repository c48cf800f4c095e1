// What a worker says of itself when it attaches.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/ids.h"

namespace paceline {

struct Registration {
  std::string name;        // unique in the mesh; [a-zA-Z0-9._-]{1,63}
  std::string machine_id;  // workers of one machine fall together
  Incarnation incarnation;
  std::string address;       // host:port, as neighbours dial it
  std::string http_address;  // host:port of /metrics; empty: none
  int64_t pid = 0;
  std::string cpu_capability;  // default, avx2, avx512, avx512_bf16
  std::string cpu_model;       // for people
  std::string architecture;    // uname -m
  int64_t memory_bytes = 0;    // 0: not known
  int32_t cores = 0;
  std::string version;
};

// Whether a worker of ours could have sent this.
//
// Errors: InvalidArgument  names the field and what would be right.
absl::Status CheckRegistration(const Registration& registration);

// default 0, avx2 1, avx512 2, avx512_bf16 3; -1 for a word that is none of
// them.  What runs on one runs on every greater one.
int CapabilityRank(absl::string_view capability);

// The highest capability that a job of this precision (core/model/precision.h)
// gains from; above it workers would only start anew for nothing.
std::string HighestUseful(absl::string_view precision);

}  // namespace paceline
