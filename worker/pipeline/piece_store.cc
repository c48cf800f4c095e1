#include "worker/pipeline/piece_store.h"

#include "absl/algorithm/container.h"
#include "core/base/errors.h"
#include "core/transfer/checksum.h"

namespace paceline {

bool Contains(absl::Span<const LayerRange> ranges, int layer) {
  return absl::c_any_of(ranges, [&](const LayerRange& range) {
    return range.first <= layer && layer < range.last;
  });
}

void AddLayer(int layer, std::vector<LayerRange>& ranges) {
  if (ranges.empty() || ranges.back().last != layer) {
    ranges.push_back({layer, layer});
  }
  ++ranges.back().last;
}

PiecePtr CopyPiece(const Piece& piece, const ScatteredBytes& state) {
  auto copy = std::make_shared<StoredPiece>();
  copy->piece = piece;
  copy->size = state.size();
  copy->data = std::make_shared_for_overwrite<uint8_t[]>(copy->size);
  state.CopyTo(copy->data.get());
  copy->checksum = HashBytes(copy->bytes());
  return copy;
}

PiecePtr AsOf(Cut cut, const StoredPiece& piece) {
  return std::make_shared<StoredPiece>(StoredPiece{
      {cut, piece.piece.layer}, piece.data, piece.size, piece.checksum});
}

void PieceStore::AddLocked(Job& job, const PiecePtr& piece) {
  const bool is_new = job.pieces.emplace(piece->piece, piece).second;
  if (!is_new) return;
  ++stats_.pieces;
  stats_.bytes += static_cast<int64_t>(piece->size);
}

void PieceStore::Deposit(JobId job, absl::Span<const PiecePtr> pieces) {
  {
    absl::MutexLock lock(&mutex_);
    Job& into = jobs_[job];
    for (const PiecePtr& piece : pieces) {
      AddLocked(into, piece);
      into.newest[piece->piece.layer] = {++deposits_, piece};
    }
    PruneLocked(into);
  }
  Tell();
}

absl::Status PieceStore::AdmitLocked(JobId job, const Piece& piece,
                                     int64_t bytes) {
  if (jobs_[job].pieces.contains(piece) ||
      bytes <= most_bytes_ - stats_.bytes) {
    return absl::OkStatus();
  }
  ++stats_.refused;
  ++stats_.refused_lately;
  return ResourceExhausted("no room for layer ", piece.layer, " of ",
                           CutText(piece.cut), " of job ", job.value, ": ",
                           bytes, " bytes, and ", stats_.bytes, " of ",
                           most_bytes_, " are taken");
}

absl::Status PieceStore::Admit(JobId job, const Piece& piece, int64_t bytes) {
  absl::Status admitted;
  {
    absl::MutexLock lock(&mutex_);
    admitted = AdmitLocked(job, piece, bytes);
  }
  if (!admitted.ok()) Tell();
  return admitted;
}

void PieceStore::Decline() {
  {
    absl::MutexLock lock(&mutex_);
    declines_ = true;
    declines_since_.reset();
  }
  Tell();
}

absl::Status PieceStore::Put(JobId job, PiecePtr piece) {
  absl::Status admitted;
  {
    absl::MutexLock lock(&mutex_);
    admitted =
        AdmitLocked(job, piece->piece, static_cast<int64_t>(piece->size));
    if (admitted.ok()) {
      AddLocked(jobs_[job], piece);
      PruneLocked(jobs_[job]);
    }
  }
  Tell();
  return admitted;
}

void PieceStore::Offer(JobId job, absl::Span<const PiecePtr> pieces) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(offers_,
                [](const auto& each) { return each.second.expired(); });
  for (const PiecePtr& piece : pieces) offers_[{job, piece->piece}] = piece;
}

PiecePtr PieceStore::Find(JobId job, const Piece& piece) const {
  absl::MutexLock lock(&mutex_);
  if (const auto found = jobs_.find(job); found != jobs_.end()) {
    const auto held = found->second.pieces.find(piece);
    if (held != found->second.pieces.end()) return held->second;
  }
  const auto offer = offers_.find({job, piece});
  return offer == offers_.end() ? nullptr : offer->second.lock();
}

PieceStore::Deposited PieceStore::NextDeposit(
    JobId job, int64_t attempt, absl::Span<const LayerRange> layers,
    int64_t number) const {
  absl::MutexLock lock(&mutex_);
  Deposited next;
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return next;
  for (const auto& [layer, newest] : found->second.newest) {
    if (newest.piece->piece.cut.attempt != attempt || newest.number <= number ||
        (next.piece != nullptr && next.number < newest.number)) {
      continue;
    }
    if (Contains(layers, layer)) next = newest;
  }
  return next;
}

std::map<JobId, PieceStore::HeldCuts> PieceStore::Holdings() const {
  std::map<JobId, HeldCuts> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, job] : jobs_) {
    for (const auto& [piece, held] : job.pieces) {
      AddLayer(piece.layer, all[id][piece.cut]);
    }
  }
  return all;
}

PieceStore::Stats PieceStore::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats = stats_;
  if (declines_) ++stats.refused_lately;
  return stats;
}

void PieceStore::DropUnfinished(JobId job, int64_t attempt,
                                const LayerRange& layers) {
  {
    absl::MutexLock lock(&mutex_);
    std::map<Cut, int> held;  // layers
    const auto is_meant = [&](const Piece& piece) {
      return piece.cut.attempt == attempt && Contains({layers}, piece.layer);
    };
    for (const auto& [piece, bytes] : jobs_[job].pieces) {
      if (is_meant(piece)) ++held[piece.cut];
    }
    DropLocked(jobs_[job], [&](const Piece& piece) {
      return is_meant(piece) && held[piece.cut] < layers.last - layers.first;
    });
  }
  Tell();
}

void PieceStore::PruneLocked(Job& job) {
  DropLocked(job,
             [&job](const Piece& piece) { return MayDrop(piece, job.keep); });
}

void PieceStore::DropLocked(Job& job,
                            absl::FunctionRef<bool(const Piece&)> may_go) {
  std::erase_if(
      job.pieces, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const auto& [piece, held] = entry;
        if (!may_go(piece)) return false;
        const auto newest = job.newest.find(piece.layer);
        if (newest != job.newest.end() && newest->second.piece == held) {
          job.newest.erase(newest);
        }
        --stats_.pieces;
        stats_.bytes -= static_cast<int64_t>(held->size);
        return true;
      });
}

void PieceStore::OnKeep(const std::map<JobId, KeepRule>& keep, Instant now) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, rule] : keep) {
    Job& job = jobs_[id];
    const std::optional<Cut> floor = FloorAfter(job.keep.floor, rule);
    job.keep = rule;
    job.keep.floor = floor;
    job.is_named = true;
    job.unnamed_since.reset();
    PruneLocked(job);
  }
  for (auto& [id, job] : jobs_) {
    if (keep.contains(id)) continue;
    job.is_named = false;
    if (!job.unnamed_since.has_value()) job.unnamed_since = now;
  }
}

void PieceStore::OnAcknowledged(Instant now) {
  bool forgot = false;
  {
    absl::MutexLock lock(&mutex_);
    if (declines_ && !declines_since_.has_value()) declines_since_ = now;
    if (declines_ && now - *declines_since_ >= kDeclines) {
      declines_ = false;
      forgot = true;
    }
    std::erase_if(jobs_,
                  [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                    const Job& job = entry.second;
                    if (!job.unnamed_since.has_value() ||
                        now - *job.unnamed_since < kForgetAfter) {
                      return false;
                    }
                    for (const auto& [piece, held] : job.pieces) {
                      --stats_.pieces;
                      stats_.bytes -= static_cast<int64_t>(held->size);
                    }
                    stats_.refused_lately = 0;
                    forgot = true;
                    return true;
                  });
  }
  if (forgot) Tell();
}

std::optional<Cut> PieceStore::Floor(JobId job) const {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? std::nullopt : found->second.keep.floor;
}

bool PieceStore::IsNamed(JobId job) const {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.is_named;
}

int PieceStore::Listen(std::function<void()> changed) {
  absl::MutexLock lock(&mutex_);
  listeners_[next_listener_] =
      std::make_shared<const std::function<void()>>(std::move(changed));
  return next_listener_++;
}

void PieceStore::Unlisten(int id) {
  const auto quiet = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return telling_ == 0;
  };
  absl::MutexLock lock(&mutex_);
  listeners_.erase(id);
  mutex_.Await(absl::Condition(&quiet));
}

void PieceStore::Tell() {
  std::vector<std::shared_ptr<const std::function<void()>>> told;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, listener] : listeners_) told.push_back(listener);
    ++telling_;
  }
  for (const auto& listener : told) (*listener)();
  absl::MutexLock lock(&mutex_);
  --telling_;
}

}  // namespace paceline
