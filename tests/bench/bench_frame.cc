// Measures what a frame costs apart from the network: checksum and header on
// the way out, checksum and one copy on the way in.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/base/check.h"
#include "core/transfer/frame_codec.h"

namespace paceline {
namespace {

// As gRPC hands a message over.
constexpr size_t kSliceBytes = 8 << 10;

Frame FrameOf(int64_t bytes) {
  Frame frame;
  frame.header.fence = {JobId{1}, 1, 1};
  frame.header.batch = {3, BatchPhase::kTrain, 3, 4, 64, false};
  frame.tensors = {Tensor::Allocate(DType::kF32, {16, bytes / 64})};
  std::memset(frame.tensors[0].data.get(), 1, frame.tensors[0].bytes());
  return frame;
}

void Encode(benchmark::State& state) {
  const Frame frame = FrameOf(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(EncodeFrame(frame));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Encode)->Arg(16 << 10)->Arg(1 << 20);

void Decode(benchmark::State& state) {
  const EncodedFrame encoded = EncodeFrame(FrameOf(state.range(0)));
  std::string bytes = encoded.prefix;
  bytes.append(reinterpret_cast<const char*>(encoded.tensors[0].data.get()),
               encoded.payload_bytes);
  const ByteSpan whole(reinterpret_cast<const uint8_t*>(bytes.data()),
                       bytes.size());
  std::vector<ByteSpan> spans;
  for (size_t at = 0; at < whole.size(); at += kSliceBytes) {
    spans.push_back(whole.subspan(at, kSliceBytes));
  }
  for (auto _ : state) {
    const auto layout = ParseFrame(spans);
    PACELINE_CHECK(layout.ok(), layout.status().ToString());
    const auto tensors = ReadPayload(spans, *layout);
    PACELINE_CHECK(tensors.ok(), tensors.status().ToString());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Decode)->Arg(16 << 10)->Arg(1 << 20);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();
