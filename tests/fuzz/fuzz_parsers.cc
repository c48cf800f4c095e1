// libFuzzer's entry: every parser of bytes that others wrote, one at a time.
//
//   PACELINE_FUZZ=NAME fuzz_parsers [-max_total_time=S ...] [CORPUS...]
//
// A parser may refuse whatever it likes, and must not crash, hang or hold much
// more memory than its input.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/files/job_file.h"
#include "client/files/plan_file.h"
#include "client/files/settings.h"
#include "client/study/study.h"
#include "core/os/daemon_process.h"
#include "core/predict/curve.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/convert/round_convert.h"
#include "core/rpc/enrol.h"
#include "core/transfer/frame_codec.h"
#include "core/weights/safetensors.h"
#include "google/protobuf/stubs/logging.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/round.pb.h"
#include "paceline/v1/stage.pb.h"
#include "tests/fuzz/fuzz_pieces.h"
#include "worker/data/image_reader.h"
#include "worker/data/sample_set.h"

namespace paceline {
namespace {

using Bytes = absl::Span<const uint8_t>;

std::string TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The path of a file in memory with these bytes.
const std::string& FileOf(Bytes bytes) {
  static const int file = memfd_create("fuzz", MFD_CLOEXEC);
  static const auto* const path =
      new std::string(absl::StrCat("/proc/self/fd/", file));
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes.data(), bytes.size(), 0) !=
                                     static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return *path;
}

// In two slices, as gRPC may have cut it.
struct Cut {
  explicit Cut(Bytes bytes)
      : slices{bytes.first(bytes.size() / 3), bytes.subspan(bytes.size() / 3)} {
  }
  const ByteSpan slices[2];
};

void Frame(Bytes bytes) {
  const Cut cut(bytes);
  ParseFirstChunk(cut.slices).IgnoreError();
  const auto layout = ParseFrame(cut.slices);
  if (!layout.ok()) return;
  ReadPayload(cut.slices, *layout).IgnoreError();
}

void RoundFrame(Bytes bytes) {
  const Cut cut(bytes);
  const auto layout = ParseRoundFrame(cut.slices);
  if (!layout.ok() || !layout->message.has_value()) return;
  v1::RoundMessage message;
  if (message.ParseFromString(CopyBytes(cut.slices, layout->message->offset,
                                        layout->message->bytes))) {
    FromProto(message, 1, MemberId{WorkerId{1}, Incarnation{2}}).IgnoreError();
  }
}

void Messages(Bytes bytes) {
  const std::string text = TextOf(bytes);
  v1::WorkerMessage up;
  if (up.ParseFromString(text) && up.has_heartbeat()) {
    CheckHeartbeat(*up.mutable_heartbeat()).IgnoreError();
  }
  v1::CoordinatorMessage down;
  if (down.ParseFromString(text) && down.has_order()) {
    KeepFromProto(down.order()).IgnoreError();
    if (down.order().has_run()) FromProto(down.order().run()).IgnoreError();
  }
  v1::PieceRequest request;
  if (request.ParseFromString(text)) {
    FromProto(request, Incarnation{request.to()}).IgnoreError();
  }
}

void Safetensors(Bytes bytes) {
  const std::string& path = FileOf(bytes);
  SummarizeSafetensors(path).IgnoreError();
  const auto all = [](const std::vector<TensorPlace>& tensors)
      -> absl::StatusOr<std::set<std::string>> {
    std::set<std::string> names;
    for (const TensorPlace& tensor : tensors) names.insert(tensor.name);
    return names;
  };
  ReadSafetensors(path, all).IgnoreError();
}

void Job(Bytes bytes) {
  ParseJobFile({"job.yaml", TextOf(bytes), {}}).IgnoreError();
}

void Set(Bytes bytes) {
  ParseJobFile({"job.yaml", "model: {name: lenet}", {TextOf(bytes)}})
      .IgnoreError();
}

void Plan(Bytes bytes) { ParsePlanFile("plan", TextOf(bytes)).IgnoreError(); }

void Profile(Bytes bytes) {
  ParseProfileFile("profile", TextOf(bytes)).IgnoreError();
}

void Study(Bytes bytes) {
  ParseStudyFile("study.yaml", TextOf(bytes)).IgnoreError();
}

void Times(Bytes bytes) {
  ParseTimingCsv("times", TextOf(bytes)).IgnoreError();
}

void Idx(Bytes bytes) {
  const auto any = [](const IdxFile&) { return absl::OkStatus(); };
  ReadIdx(FileOf(bytes), any).IgnoreError();
}

void Image(Bytes bytes) {
  for (const int channels : {1, 3}) {
    const auto image = OpenImage(bytes, channels);
    // The header of a large picture is enough.
    if (!image.ok() || (*image)->size().width * (*image)->size().height > 4096)
      continue;
    const auto size = (*image)->Start(/*most_shrink=*/2);
    if (!size.ok()) continue;
    std::vector<uint8_t> row(size->width * channels);
    absl::Status read;
    for (int64_t y = 0; y < size->height && read.ok(); ++y) {
      read = (*image)->ReadRow(absl::MakeSpan(row));
    }
    if (read.ok()) (*image)->Finish().IgnoreError();
  }
}

void Text(Bytes bytes) {
  DataSpec data;
  data.path = FileOf(bytes);
  data.block = 8;
  data.test_fraction = 0.5;
  for (const char* const name : {"text-labels", "text-pairs"}) {
    data.name = name;
    OpenTextLines(data).IgnoreError();
  }
  data.name = "text";
  OpenText(data).IgnoreError();
}

void Token(Bytes bytes) { JoinTokenText::Parse(TextOf(bytes)).IgnoreError(); }

void Configuration(Bytes bytes) {
  ReadConfigFile(FileOf(bytes)).IgnoreError();
  ParseSettingsFile("paceline.yaml", TextOf(bytes)).IgnoreError();
}

struct Target {
  const char* name;
  void (*parse)(Bytes bytes);
};
constexpr Target kTargets[] = {
    {"frame", Frame},
    {"round_frame", RoundFrame},
    {"pieces", FuzzPieces},
    {"messages", Messages},
    {"safetensors", Safetensors},
    {"job", Job},
    {"set", Set},
    {"plan", Plan},
    {"profile", Profile},
    {"study", Study},
    {"times", Times},
    {"idx", Idx},
    {"image", Image},
    {"text", Text},
    {"token", Token},
    {"configuration", Configuration},
};

const Target* Chosen() {
  const char* const name = std::getenv("PACELINE_FUZZ");
  const auto* const found = std::find_if(
      std::begin(kTargets), std::end(kTargets), [name](const Target& target) {
        return name != nullptr && std::strcmp(name, target.name) == 0;
      });
  google::protobuf::SetLogHandler(nullptr);  // it complains of each bad text
  if (found != std::end(kTargets)) return found;
  std::fprintf(stderr, "PACELINE_FUZZ must be one of:");
  for (const Target& target : kTargets) {
    std::fprintf(stderr, " %s", target.name);
  }
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace
}  // namespace paceline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const target = paceline::Chosen();
  target->parse({data, size});
  return 0;
}
