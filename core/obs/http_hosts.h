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
// Asks the resolver where nothing but this machine's domain can be meant.
bool IsOwnHost(const std::string& authority,
               const std::vector<std::string>& given);

}  // namespace paceline
