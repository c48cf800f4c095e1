// The three descriptors that every program starts with.
#pragma once

namespace paceline {

// Fills those of 0, 1 and 2 that the caller closed (`<&-`) with descriptors
// that fail as closed ones do.  Left open for others, the next file or socket
// would take the number: a job file would be read from a gRPC connection, an
// answer printed into a data base.  Before anything else of the program runs,
// and of its libraries; calls nothing but the system.
void GuardStandardStreams();

}  // namespace paceline
