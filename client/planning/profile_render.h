// Measurements as documents and as text.
#pragma once

#include <string>
#include <vector>

#include "client/document.h"
#include "client/measure_client.h"

namespace paceline {

// `profiles[], links[], failed[]`, as client/README.md lists them; what
// client/rpc/profile_file.h reads back.
Document ToDocument(const ProfileProgress& progress);

// A table of layers a worker, what it costs to move frames there, and a table
// of links.
std::string RenderProfiles(const ProfileProgress& progress);

}  // namespace paceline
