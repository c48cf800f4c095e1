// The page that shows the mesh in a browser.
#pragma once

#include <string>

#include "paceline/v1/control.pb.h"

namespace paceline {

// Its script and its style, as they are in page/.
extern const char* const kPageScript;
extern const char* const kPageStyle;

// The page, with the mesh in tables that can be read without its script.
// `mesh` is a whole update.
std::string RenderPage(const v1::MeshUpdate& mesh);

}  // namespace paceline
