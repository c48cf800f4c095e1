// The names by which the HTTP port is called.
#pragma once

#include <string>
#include <vector>

namespace paceline {

// A page of a stranger can have its own name looked up as this machine's
// address (DNS rebinding), and its reader's browser then gives it whatever this
// machine serves; but the browser says the name.  So only those count that no
// stranger can have: addresses, "localhost", this machine's names, with domain
// and with ".local", and those that were given.
//   authority  as the header Host has it: "pi-1.local:7480", "[::1]"
// Never waits for the resolver: knows the domain once that has told it, which
// is asked at most once a minute.
bool IsOwnHost(const std::string& authority,
               const std::vector<std::string>& given);

// Asks for the domain, so that the first IsOwnHost() can know it.
void AskForDomain();

}  // namespace paceline
