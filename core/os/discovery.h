// How a coordinator is found on the local network, by Avahi (mDNS, DNS-SD).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// Stands in place of HOST:PORT for "the only one there is".
inline constexpr char kAutoCoordinator[] = "auto";

// The HOST:PORT of the only coordinator in what 'avahi-browse -rtp' prints.
// One that is seen on several interfaces counts once, with its first IPv4
// address.
// Errors: NotFound            there is none
//         FailedPrecondition  there are several; the message lists them
absl::StatusOr<std::string> OnlyCoordinator(absl::string_view browsed);

// `coordinator` itself; for kAutoCoordinator asks the program avahi-browse,
// which takes about a second.
// vouched: a certificate or a token says whose answer is believed.
// Errors: as OnlyCoordinator()
//         InvalidArgument  kAutoCoordinator, and nobody vouches
//         Unavailable      avahi-browse is missing, or its daemon does not run
absl::StatusOr<std::string> FindCoordinator(const std::string& coordinator,
                                            bool vouched);

}  // namespace paceline
