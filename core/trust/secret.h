// The secret of a mesh: users of its machine who cannot read the file are
// strangers to it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace paceline {

// Writes 256 fresh random bits into the file, which its owner alone may read.
// Errors: those of WriteFileAtomically()
absl::Status MakeSecret(const std::string& path);

// Calls of this process show the secret in the file from then on, and its
// servers want it.  Before the first of them.
// Errors: InvalidArgument  it cannot be read, has no secret, or others may read
//                          it; the message says what to do
absl::Status UseSecret(const std::string& path);

// 'paceline up' leaves a link there to the secret of its mesh, while it runs.
// Empty: the coordinator is none on loopback, or the user has no home.
std::string SecretLink(const std::string& coordinator);

// As above with the file `named`, else with that of this user's `up`, where its
// coordinator is meant; else uses none.
absl::Status UseSecretOf(const std::string& coordinator,
                         const std::string& named);

// That of this process; empty: it uses none.
const std::string& UsedSecret();

// Calls show this one from then on.  Returns the one before.  For whoever looks
// what a call without it gets, while this process makes no other.
std::string ExchangeSecret(std::string secret);

// Takes as long for a wrong secret of the right length as for the right one.
bool IsUsedSecret(absl::string_view shown);

}  // namespace paceline
