// The check of the chunks of pieces, which piece_client.cc keeps to itself.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace paceline {

// Bytes of one v1::PieceChunk after the other, each after its length (a byte).
void FuzzPieces(absl::Span<const uint8_t> bytes);

}  // namespace paceline
