// `paceline doctor`: looks at this machine and at its mesh, and says what is
// wrong and what to type.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/commands/command.h"
#include "client/rpc/control_client.h"

namespace paceline {

struct DoctorOptions {
  std::string coordinator;  // host:port
  std::string tls_folder;   // of the user's certificate
  // In front of /etc, /proc and /var: a test has its own.
  std::string root = "";
  // A disk with less is nearly full.
  int64_t least_free_bytes = int64_t{1} << 30;
};

// The coordinator, called with the certificate in `folder`.
using OpenTrust = std::function<std::unique_ptr<TrustClient>(
    const std::string& coordinator, const std::string& folder)>;

// Checks what is here: the user's certificate, the units, configuration, ports,
// disks and certificates of daemons; and, where the coordinator answers, its
// workers.  kExitFailed where something is a problem; warnings alone are none.
ExitCode DoctorCommand(const CommandContext& context, const OpenTrust& trust,
                       const DoctorOptions& options);

}  // namespace paceline
