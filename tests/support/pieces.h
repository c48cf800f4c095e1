// Pieces for tests.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "core/transfer/checksum.h"
#include "worker/pipeline/piece_store.h"

namespace paceline {

inline PiecePtr MakePiece(Cut cut, int layer, const std::string& bytes) {
  auto piece = std::make_shared<StoredPiece>();
  piece->piece = {cut, layer};
  piece->size = bytes.size();
  piece->data = std::make_shared<uint8_t[]>(piece->size);
  std::copy(bytes.begin(), bytes.end(), piece->data.get());
  piece->checksum = HashBytes(piece->bytes());
  return piece;
}

// "null" for none.
inline std::string TextOf(const PiecePtr& piece) {
  if (piece == nullptr) return "null";
  return {piece->bytes().begin(), piece->bytes().end()};
}

}  // namespace paceline
