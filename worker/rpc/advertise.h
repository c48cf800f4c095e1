// The address under which others reach this worker.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace paceline {

// advertise: --advertise; empty: `bound`, where the worker listens.  Its port 0
// becomes the port that was bound; a host that means "every address" becomes
// empty, which asks the coordinator to put in the one it sees.
// bound: host:port, with a port.
// Errors: InvalidArgument  advertise is not host:port.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound);

// Whether who dials `address` in this process reaches this worker itself, which
// listens on `bound` and is known as `advertised`.
bool IsOwnAddress(const std::string& address, const std::string& bound,
                  const std::string& advertised);

}  // namespace paceline
