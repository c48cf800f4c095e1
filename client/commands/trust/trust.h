// `paceline token ...`, `paceline login` and `paceline tls ...`.
#pragma once

#include <cstdint>
#include <string>

#include "client/commands/command.h"
#include "client/rpc/control_client.h"

namespace paceline {

struct TokenOptions {
  std::string role = "worker";
  int64_t uses = 1;
  absl::Duration ttl = absl::Hours(1);
  std::string for_name = {};  // empty: any that is free
};

// Prints the token, and what to type on the other machine.
ExitCode CreateTokenCommand(TrustClient& client, Console& console,
                            const std::string& coordinator,
                            const TokenOptions& options);
ExitCode ListTokensCommand(TrustClient& client, Console& console);
ExitCode RevokeTokenCommand(TrustClient& client, Console& console,
                            const std::string& id);

// Locks out the holders of certificates of that role and name.
ExitCode RevokeCommand(TrustClient& client, Console& console,
                       const std::string& role, const std::string& name);

// settings: the user's file of settings, where `coordinator` is remembered if
// the file names none yet.
ExitCode LoginCommand(TrustClient& client, Console& console,
                      const std::string& coordinator, const std::string& token,
                      const std::string& user, const std::string& settings);
ExitCode CheckTlsCommand(TrustClient& client, Console& console,
                         const std::string& coordinator);

}  // namespace paceline
