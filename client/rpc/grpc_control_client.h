// ControlClient and TrustClient over gRPC.
#pragma once

#include <memory>
#include <string>

#include "client/rpc/control_client.h"

namespace paceline {

// Keeps gRPC's own lines off the terminal, unless GRPC_VERBOSITY is set: errors
// of calls say what a person can use.
void SilenceGrpcLog();

struct ControlDeadlines {
  // Connecting, and then the call.  A coordinator that is down refuses at
  // once; these are for one that hangs.  Together with the two seconds for
  // which submit repeats itself, less than the five that "no" may take.
  absl::Duration connect = absl::Seconds(2);
  absl::Duration call = absl::Seconds(10);
  // Between two messages of an export.  What is missing where the connection
  // breaks is asked for in another call.
  absl::Duration export_weights = absl::Minutes(2);
  // A connection that broke in an export is made again within this time.
  absl::Duration reconnect = absl::Seconds(5);
  // Before the first byte of an export of a job that runs: so often nothing
  // may come.  1 GB comes over 2 Mbit/s in 33 times 2 min.
  int silences = 60;
};

// Connects at the first call; a later call connects again when the connection
// was lost.
std::unique_ptr<ControlClient> MakeControlClient(
    std::string address, const ControlDeadlines& deadlines = {});

// folder: of the certificate for this coordinator
std::unique_ptr<TrustClient> MakeTrustClient(std::string coordinator,
                                             std::string folder);

// Uses the certificate of the folder for all later channels, and renews it
// where that is due.  Without one: nothing.
// Errors: those of UseTls()
absl::Status UseClientTls(const std::string& coordinator,
                          const std::string& folder);

}  // namespace paceline
