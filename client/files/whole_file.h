// Whole files, read and written at once, and the three descriptors that every
// program starts with.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// The bytes of a regular file; a pipe, a folder or a device is refused, since
// it might never end.
// Errors: InvalidArgument  it cannot be read or is larger than most_bytes;
//                          names it and says why
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          int64_t most_bytes);

// Fills `text` with what an open file, a pipe or a device gives until its end,
// but no more than `most_bytes`.  Returns 0 or the error's number.
int ReadAll(int file, int64_t most_bytes, std::string& text);

// Writes `text` to a new file beside `path` and renames it, so that no reader
// ever finds half of it.
// Errors: InvalidArgument     the folder does not exist or may not be written,
//                             or `path` is a folder or a device
//         FailedPrecondition  writing failed (a full disk); the old file stays
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

// Whether WriteWholeFile() would begin, before there is a text; leaves the file
// as it is.
// Errors: InvalidArgument  as above
absl::Status CheckWritable(const std::string& path);

// Fills those of 0, 1 and 2 that the caller closed (`<&-`) with descriptors
// that fail as closed ones do.  Left open for others, the next file or socket
// would take the number: a job file would be read from a gRPC connection, an
// answer printed into a data base.  Before anything else of the program runs,
// and of its libraries; calls nothing but the system.
void GuardStandardStreams();

}  // namespace paceline
