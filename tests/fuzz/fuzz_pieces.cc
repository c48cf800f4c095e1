#include "tests/fuzz/fuzz_pieces.h"

// The reader is in there, in a namespace without a name.
#include "worker/transport/piece/piece_client.cc"

namespace paceline {

void FuzzPieces(absl::Span<const uint8_t> bytes) {
  PieceAsk ask;
  ask.cut = {1, 10};
  ask.layers = {{0, 3}};
  ask.bytes = {{0, 8}, {1, 0}, {2, 100}};
  PieceReader reader(ask);
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes[0], bytes.size() - 1);
    v1::PieceChunk chunk;
    if (!chunk.ParseFromArray(bytes.data() + 1, static_cast<int>(size))) break;
    if (!reader.Take(chunk).ok()) break;
    bytes.remove_prefix(1 + size);
  }
  reader.CheckEnd().IgnoreError();
}

}  // namespace paceline
