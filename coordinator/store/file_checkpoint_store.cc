#include "coordinator/store/file_checkpoint_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/store/file_system.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/os/files.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/json_convert.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

constexpr int kManifestVersion = 1;
constexpr int64_t kReadBytes = 1 << 20;
constexpr int64_t kMostManifestBytes = 64 << 20;
// A holder whose connection broke after this many bytes is asked for the rest.
constexpr int64_t kLeastBytes = 64 << 10;
// All holders are asked again this often within the patience.
constexpr int kTries = 60;
constexpr char kPartial[] = ".partial";

constexpr char kLayers[] = "/layers.safetensors";
constexpr char kManifest[] = "/manifest.json";

absl::Span<const uint8_t> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The state of one checkpoint's fetch, shared by its layers.
struct Fetching {
  const CheckpointOrder& order;
  PieceFetcher& fetcher;
  const int file;
  const std::string& path;  // of the file
  const absl::Duration patience;
  const SteadyNotification& stopped;
  // Addresses that failed before are asked last, since a machine that is gone
  // costs seconds.
  std::set<std::string> failed = {};
  std::optional<Instant> came = {};  // when bytes came last

  // Waits a while; returns whether missing bytes may still come.
  bool Waits() const {
    return came.has_value() && SteadyNow() - *came < patience &&
           !stopped.WaitFor(patience / kTries);
  }
};

// Writes a layer at its place and returns its checksum.  Once a part of the
// checkpoint is there, it asks unreachable holders again and again.
absl::StatusOr<uint64_t> FetchLayer(int layer, Fetching& all) {
  const CheckpointOrder& order = all.order;
  const StateLayout::Range& range = order.layout.layers[layer];
  const v1::Cut& cut = order.manifest.cut();
  HeldPiece ask{
      {}, order.id.job, {{cut.attempt(), cut.step()}, layer}, range.bytes};
  absl::Status last = NotFound("nobody holds it");
  std::vector<PieceHolder> holders = order.holders[layer];
  absl::c_stable_partition(holders, [&](const PieceHolder& holder) {
    return !all.failed.contains(holder.address);
  });
  Checksum checksum;  // of the bytes received
  std::set<std::string> begun_anew;
  do {
    for (auto holder = holders.begin(); holder != holders.end();) {
      ask.holder = *holder;
      const int64_t before = ask.offset;
      absl::Status written;
      const absl::StatusOr<uint64_t> said =
          all.fetcher.Fetch(ask, [&](absl::string_view data) {
            checksum.Update(BytesOf(data));
            written =
                WriteAt(all.file, all.path, range.offset + ask.offset, data);
            ask.offset += static_cast<int64_t>(data.size());
            return written;
          });
      PACELINE_RETURN_IF_ERROR(written);
      const bool is_whole = said.ok() && *said == checksum.Digest();
      last = said.ok() ? DataLoss("its checksum is wrong") : said.status();
      if (absl::IsCancelled(last)) return last;
      const bool lies = absl::IsDataLoss(last) || absl::IsInvalidArgument(last);
      const bool gave = ask.offset - before >= kLeastBytes;
      if (is_whole || (gave && !lies)) all.came = SteadyNow();
      if (is_whole) return *said;
      if (lies) {
        // The earlier bytes may be wrong too, even another holder's.
        checksum.Reset();
        ask.offset = 0;
        if (before > 0 && begun_anew.insert(holder->address).second) continue;
      }
      if (absl::IsUnavailable(last) && gave) continue;
      all.failed.insert(holder->address);
      const bool is_away =
          absl::IsUnavailable(last) || absl::IsDeadlineExceeded(last);
      holder = is_away ? holder + 1 : holders.erase(holder);
    }
  } while (!holders.empty() && all.Waits());
  return Unavailable("layer ", layer, " cannot be had: ", last.message());
}

absl::StatusOr<v1::Checkpoint> FetchAll(const CheckpointOrder& order,
                                        PieceFetcher& fetcher,
                                        const std::string& path,
                                        absl::Duration patience,
                                        const SteadyNotification& stopped) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  PACELINE_RETURN_IF_ERROR(MakeFolders(path));
  const std::string name = path + kLayers;
  const OpenFile file(
      open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.is_open()) return FileError("make", name, errno);
  const SafetensorsLayout& layout = order.layout.file;
  // Reserves all room first, so that workers send nothing in vain.
  const int error = posix_fallocate(file.get(), 0, layout.file_bytes);
  if (error != 0) return FileError("reserve room for", name, error);
  PACELINE_RETURN_IF_ERROR(WriteAt(file.get(), name, 0, layout.header));
  v1::CheckpointManifest manifest = order.manifest;
  manifest.set_version(kManifestVersion);
  manifest.set_job(order.id.job.value);
  manifest.set_file_bytes(layout.file_bytes);
  manifest.set_header_checksum(HashBytes(BytesOf(layout.header)));
  Fetching all{order, fetcher, file.get(), name, patience, stopped};
  for (size_t i = 0; i < order.layout.layers.size(); ++i) {
    PACELINE_ASSIGN_OR_RETURN(const uint64_t checksum,
                              FetchLayer(static_cast<int>(i), all));
    v1::CheckpointManifest::LayerState& layer = *manifest.add_layers();
    layer.set_offset(order.layout.layers[i].offset);
    layer.set_bytes(order.layout.layers[i].bytes);
    layer.set_checksum(checksum);
  }
  PACELINE_RETURN_IF_ERROR(SyncFile(file.get(), name));
  PACELINE_RETURN_IF_ERROR(
      WriteFileAtomically(path + kManifest, ToJson(manifest)));
  v1::Checkpoint checkpoint;
  *checkpoint.mutable_cut() = manifest.cut();
  checkpoint.set_bytes(layout.file_bytes);
  checkpoint.set_unix_ms(manifest.unix_ms());
  return checkpoint;
}

// --- Reading -----------------------------------------------------------------

}  // namespace

// A checkpoint's two files, opened and laid out once for all reads.
// Thread-compatible.
struct FileCheckpointStore::Reading {
  std::string path;
  std::string text;  // of the manifest's file
  v1::CheckpointManifest manifest;
  struct stat info = {};  // of `file`
  int64_t used = 0;       // number of its last use
  std::unique_ptr<ByteFile> file;
  // Set by LayOutOnce().
  std::optional<StateLayout> state;
  std::optional<SafetensorsLayout> weights;

  // Errors: DataLoss
  template <typename... Parts>
  absl::Status Damaged(const Parts&... what) const {
    return DataLoss("the checkpoint ", path, " is damaged: ", what...);
  }

  absl::StatusOr<std::string> Read(int64_t offset, int64_t bytes) const {
    std::string data(bytes, '\0');
    PACELINE_RETURN_IF_ERROR(file->ReadAt(
        offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()}));
    return data;
  }

  // Errors: DataLoss  the bytes have another checksum; names them as `what`
  absl::Status CheckRange(int64_t offset, int64_t bytes, uint64_t checksum,
                          const std::string& what) const {
    Checksum found;
    for (int64_t at = 0; at < bytes; at += kReadBytes) {
      PACELINE_ASSIGN_OR_RETURN(
          const std::string data,
          Read(offset + at, std::min(kReadBytes, bytes - at)));
      found.Update(BytesOf(data));
    }
    if (found.Digest() == checksum) return absl::OkStatus();
    return Damaged("the checksum of ", what, " is not the one in its manifest");
  }

  absl::Status CheckLayer(int layer) const {
    const v1::CheckpointManifest::LayerState& state = manifest.layers(layer);
    return CheckRange(state.offset(), state.bytes(), state.checksum(),
                      absl::StrCat("layer ", layer));
  }

  // Sets `state` and `weights`.
  absl::Status LayOutOnce() {
    if (weights.has_value()) return absl::OkStatus();
    const JobSpec spec = FromProto(manifest.spec());
    if (const absl::Status right = CheckSpec(spec); !right.ok()) {
      return Damaged("its manifest has a wrong job: ", right.message());
    }
    PACELINE_ASSIGN_OR_RETURN(ModelDescription model, Describe(spec));
    PACELINE_ASSIGN_OR_RETURN(state, LayOutState(model, spec.train.optimizer));
    SetClasses(manifest.classes(), model);
    PACELINE_ASSIGN_OR_RETURN(weights, LayOut(model));
    return absl::OkStatus();
  }

  // Whether both files are still as they were opened.
  bool IsCurrent() const {
    struct stat now = {};
    return stat((path + kLayers).c_str(), &now) == 0 &&
           now.st_dev == info.st_dev && now.st_ino == info.st_ino &&
           now.st_size == info.st_size &&
           ReadFile(path + kManifest, kMostManifestBytes).value_or("") == text;
  }
};

namespace {

using Reading = FileCheckpointStore::Reading;

// Errors: NotFound, DataLoss  of the checkpoint; others of this machine
absl::StatusOr<Reading> OpenCheckpoint(CheckpointId id,
                                       const std::string& path) {
  Reading opened;
  opened.path = path;
  const auto text = ReadFile(path + kManifest, kMostManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return NotFound("there is no checkpoint of job ", id.job.value, " at step ",
                    id.step, ": ", text.status().message());
  }
  if (absl::IsInvalidArgument(text.status())) {
    return opened.Damaged(text.status().message());
  }
  PACELINE_RETURN_IF_ERROR(text.status());
  opened.text = *text;
  v1::CheckpointManifest& manifest = opened.manifest;
  if (const absl::Status read = FromJson(*text, manifest); !read.ok()) {
    return opened.Damaged("its manifest cannot be read: ", read.message());
  }
  if (manifest.version() != kManifestVersion ||
      manifest.job() != id.job.value || manifest.cut().step() != id.step) {
    return opened.Damaged("its manifest is of job ", manifest.job(), ", step ",
                          manifest.cut().step(), ", version ",
                          manifest.version(), "; need job ", id.job.value,
                          ", step ", id.step, ", version ", kManifestVersion);
  }
  stat((path + kLayers).c_str(), &opened.info);
  auto file = ByteFile::Open(path + kLayers);
  if (absl::IsNotFound(file.status()) ||
      absl::IsInvalidArgument(file.status())) {
    return opened.Damaged(file.status().message());
  }
  PACELINE_RETURN_IF_ERROR(file.status());
  opened.file = *std::move(file);
  if (opened.file->size() != manifest.file_bytes()) {
    return opened.Damaged(path, kLayers, " has ", opened.file->size(),
                          " bytes, need ", manifest.file_bytes());
  }
  for (const v1::CheckpointManifest::LayerState& layer : manifest.layers()) {
    if (layer.bytes() < 0 || layer.offset() < 0 ||
        layer.bytes() > manifest.file_bytes() - layer.offset()) {
      return opened.Damaged("its manifest has a layer of ", layer.bytes(),
                            " bytes at ", layer.offset());
    }
  }
  return opened;
}

// checkpoint: laid out
absl::Status CheckAll(const Reading& checkpoint) {
  const StateLayout& has = *checkpoint.state;
  const v1::CheckpointManifest& manifest = checkpoint.manifest;
  if (manifest.layers_size() != std::ssize(has.layers) ||
      manifest.file_bytes() != has.file.file_bytes) {
    return checkpoint.Damaged("its manifest has ", manifest.layers_size(),
                              " layers in ", manifest.file_bytes(),
                              " bytes; its model has ", has.layers.size(),
                              " in ", has.file.file_bytes);
  }
  PACELINE_RETURN_IF_ERROR(
      checkpoint.CheckRange(0, static_cast<int64_t>(has.file.header.size()),
                            manifest.header_checksum(), "its header"));
  for (int layer = 0; layer < manifest.layers_size(); ++layer) {
    PACELINE_RETURN_IF_ERROR(checkpoint.CheckLayer(layer));
  }
  return absl::OkStatus();
}

absl::Status CheckFits(Reading& checkpoint, const StateLayout& wants) {
  PACELINE_RETURN_IF_ERROR(checkpoint.LayOutOnce());
  if (const absl::Status same = CheckSameState(*checkpoint.state, wants);
      !same.ok()) {
    return InvalidArgument("the checkpoint ", checkpoint.path,
                           " does not fit: ", same.message());
  }
  return CheckAll(checkpoint);
}

absl::StatusOr<v1::PieceChunk> ReadChunk(const Reading& checkpoint, int layer,
                                         int64_t offset, int64_t limit) {
  if (layer < 0 || layer >= checkpoint.manifest.layers_size()) {
    return InvalidArgument("the checkpoint ", checkpoint.path, " has ",
                           checkpoint.manifest.layers_size(),
                           " layers, and no layer ", layer);
  }
  const v1::CheckpointManifest::LayerState& state =
      checkpoint.manifest.layers(layer);
  if (offset < 0 || offset > state.bytes()) {
    return InvalidArgument("layer ", layer, " of the checkpoint ",
                           checkpoint.path, " has ", state.bytes(),
                           " bytes, and none from ", offset, " on");
  }
  if (offset == 0) PACELINE_RETURN_IF_ERROR(checkpoint.CheckLayer(layer));
  PACELINE_ASSIGN_OR_RETURN(
      std::string data,
      checkpoint.Read(state.offset() + offset,
                      std::min(limit, state.bytes() - offset)));
  v1::PieceChunk chunk;
  chunk.set_layer(layer);
  chunk.set_total_bytes(state.bytes());
  chunk.set_offset(offset);
  chunk.set_checksum(state.checksum());
  chunk.set_data(std::move(data));
  return chunk;
}

// The bytes from `offset` on of the file that Save() would make of the weights
// alone: its header, then tensors from other places in the checkpoint.
absl::StatusOr<v1::WeightsChunk> ReadWeightsPart(Reading& checkpoint,
                                                 int64_t offset,
                                                 int64_t limit) {
  PACELINE_RETURN_IF_ERROR(checkpoint.LayOutOnce());
  // The first read checks that the checkpoint is whole.
  if (offset == 0) PACELINE_RETURN_IF_ERROR(CheckAll(checkpoint));
  const SafetensorsLayout& weights = *checkpoint.weights;
  const int64_t end =
      offset + std::clamp<int64_t>(weights.file_bytes - offset, 0, limit);
  const auto header_bytes = static_cast<int64_t>(weights.header.size());
  std::string data;
  if (offset < header_bytes) data = weights.header.substr(offset, end - offset);
  auto from = checkpoint.state->file.tensors.begin();
  for (const TensorPlace& place : weights.tensors) {
    // Both are in the order of the layers.
    while (from->name != place.name) ++from;
    const int64_t first = std::max(offset, place.offset);
    const int64_t last = std::min(end, place.offset + place.bytes);
    if (first >= last) continue;
    PACELINE_ASSIGN_OR_RETURN(
        const std::string part,
        checkpoint.Read(from->offset + first - place.offset, last - first));
    data += part;
  }
  v1::WeightsChunk chunk;
  chunk.set_data(std::move(data));
  chunk.set_total_bytes(weights.file_bytes);
  chunk.set_step(checkpoint.manifest.cut().step());
  return chunk;
}

}  // namespace

FileCheckpointStore::FileCheckpointStore(std::string folder,
                                         PieceFetcher& fetcher,
                                         absl::Duration patience)
    : folder_(std::move(folder)),
      patience_(patience),
      fetcher_(fetcher),
      writes_("checkpoints"),
      reads_("pieces") {}

FileCheckpointStore::~FileCheckpointStore() { Stop(); }

void FileCheckpointStore::Stop() {
  stopped_.Notify();
  fetcher_.Cancel();
  writes_.Stop();
  reads_.Stop();
}

std::string FileCheckpointStore::FolderOf(JobId job) const {
  return absl::StrCat(folder_, "/", job.value);
}

std::string FileCheckpointStore::PathOf(CheckpointId id) const {
  return absl::StrCat(FolderOf(id.job), "/step-", id.step);
}

void FileCheckpointStore::Fetch(CheckpointOrder order,
                                Done<v1::Checkpoint> done) {
  const std::string path = PathOf(order.id) + kPartial;
  // Shared because std::function wants to be copied.
  const auto shared = std::make_shared<CheckpointOrder>(std::move(order));
  writes_.Post([this, shared, path, done] {
    absl::StatusOr<v1::Checkpoint> fetched =
        FetchAll(*shared, fetcher_, path, patience_, stopped_);
    std::error_code ignored;
    if (!fetched.ok()) std::filesystem::remove_all(path, ignored);
    done(std::move(fetched));
  });
}

void FileCheckpointStore::Keep(CheckpointId id, StatusDone done) {
  writes_.Post([this, id, done] {
    const std::string path = PathOf(id);
    std::error_code ignored;  // of an older attempt
    std::filesystem::remove_all(path, ignored);
    done(rename((path + kPartial).c_str(), path.c_str()) == 0
             ? SyncFolder(FolderOf(id.job))
             : FileError("rename to", path, errno));
  });
}

void FileCheckpointStore::Retain(JobId job, std::set<int64_t> steps) {
  writes_.Post([this, job, steps = std::move(steps)] {
    namespace fs = std::filesystem;
    std::set<std::string> kept;
    for (const int64_t step : steps) {
      kept.insert(PathOf({job, step}));
      kept.insert(PathOf({job, step}) + kPartial);
    }
    std::error_code ignored;  // the rest is deleted the next time
    std::vector<fs::path> others;
    for (fs::directory_iterator at(FolderOf(job), ignored), end;
         !ignored && at != end; at.increment(ignored)) {
      if (!kept.contains(at->path().string())) others.push_back(at->path());
    }
    for (const fs::path& other : others) fs::remove_all(other, ignored);
    if (kept.empty()) fs::remove(FolderOf(job), ignored);
    // An open file keeps its room on the disk.
    if (!others.empty()) reads_.Post([this] { open_.clear(); });
  });
}

absl::StatusOr<FileCheckpointStore::Reading*> FileCheckpointStore::Find(
    CheckpointId id, bool begins) {
  const std::string path = PathOf(id);
  auto found = open_.find(path);
  if (found != open_.end() && begins && !found->second->IsCurrent()) {
    open_.erase(found);
    found = open_.end();
  }
  if (found == open_.end()) {
    PACELINE_ASSIGN_OR_RETURN(Reading opened, OpenCheckpoint(id, path));
    if (open_.size() >= kMostOpen) {
      open_.erase(absl::c_min_element(open_, [](const auto& a, const auto& b) {
        return a.second->used < b.second->used;
      }));
    }
    found =
        open_.emplace(path, std::make_unique<Reading>(std::move(opened))).first;
  }
  found->second->used = ++uses_;
  return found->second.get();
}

void FileCheckpointStore::Check(CheckpointId id, StateLayout wants,
                                StatusDone done) {
  reads_.Post([this, id, wants = std::move(wants), done] {
    const auto checkpoint = Find(id, /*begins=*/true);
    done(checkpoint.ok() ? CheckFits(**checkpoint, wants)
                         : checkpoint.status());
  });
}

void FileCheckpointStore::ReadPiece(CheckpointId id, int layer, int64_t offset,
                                    int64_t limit, Done<v1::PieceChunk> done) {
  reads_.Post([this, id, layer, offset, limit, done] {
    const auto checkpoint = Find(id, offset == 0);
    done(checkpoint.ok() ? ReadChunk(**checkpoint, layer, offset, limit)
                         : checkpoint.status());
  });
}

void FileCheckpointStore::ReadWeights(CheckpointId id, int64_t offset,
                                      int64_t limit,
                                      Done<v1::WeightsChunk> done) {
  reads_.Post([this, id, offset, limit, done] {
    const auto checkpoint = Find(id, offset == 0);
    done(checkpoint.ok() ? ReadWeightsPart(**checkpoint, offset, limit)
                         : checkpoint.status());
  });
}

}  // namespace paceline
