#include "worker/rounds/parts/round_payload.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/round/rules/rule_blocks.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

constexpr std::align_val_t kAlignment{64};
// When memory is read and written from end to end, half of the cost of small
// pages is their lookup.  Less than two huge pages keeps small ones.
constexpr size_t kHugePage = size_t{2} << 20;

MemoryPool::Block Allocate(size_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  const std::align_val_t alignment =
      huge ? std::align_val_t{kHugePage} : kAlignment;
  MemoryPool::Block block(
      static_cast<uint8_t*>(
          ::operator new[](std::max<size_t>(bytes, 1), alignment)),
      [alignment](uint8_t* data) { ::operator delete[](data, alignment); });
  // A kernel without huge pages uses small ones.
  if (huge) madvise(block.get(), bytes, MADV_HUGEPAGE);
  return block;
}

// `values` as a tensor that owns nothing.
Tensor Borrow(float* values, size_t count) {
  Tensor tensor;
  tensor.dtype = DType::kF32;
  tensor.shape = {static_cast<int64_t>(count)};
  tensor.data = std::shared_ptr<uint8_t>(std::shared_ptr<void>(),
                                         reinterpret_cast<uint8_t*>(values));
  return tensor;
}

}  // namespace

RoundPayload::RoundPayload(uint8_t* data, size_t size,
                           std::shared_ptr<void> owner,
                           const ChunkLayout& layout)
    : data_(data),
      size_(size),
      owner_(std::move(owner)),
      layout_(layout),
      hashes_count_((size + layout.chunk_bytes - 1) / layout.chunk_bytes),
      hashes_(hashes_count_),
      ready_(hashes_count_, false) {}

std::shared_ptr<RoundPayload> RoundPayload::Over(uint8_t* data, size_t size,
                                                 std::shared_ptr<void> owner,
                                                 const ChunkLayout& layout) {
  return std::shared_ptr<RoundPayload>(
      new RoundPayload(data, size, std::move(owner), layout));
}

absl::Span<uint8_t> RoundPayload::chunk(int index) const {
  PACELINE_CHECK(index >= 0 && index < chunks(), "a chunk of another payload");
  const auto before = static_cast<size_t>(index);
  const size_t at = before * layout_.chunk_bytes;
  return {data_ + at + before * layout_.gap_bytes,
          std::min(layout_.chunk_bytes, size_ - at)};
}

absl::Span<uint8_t> RoundPayload::mutable_bytes() const {
  PACELINE_CHECK(layout_.gap_bytes == 0 || chunks() <= 1, "a gap in between");
  return {data_, size_};
}

void RoundPayload::MarkReady(int chunk, uint64_t hash) {
  std::vector<OnReady> subscribers;
  {
    const absl::MutexLock lock(&mutex_);
    if (ready_.at(chunk)) return;
    ready_[chunk] = true;
    hashes_[chunk] = hash;
    ++ready_count_;
    subscribers = subscribers_;
  }
  for (const OnReady& each : subscribers) each(chunk);
}

uint64_t RoundPayload::hash() const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_count_ == hashes_count_, "a hash of half a payload");
  uint64_t hash = MixSeed({size_});
  for (const uint64_t each : hashes_) hash = MixSeed({hash, each});
  return std::max<uint64_t>(hash, 1);
}

uint64_t RoundPayload::chunk_hash(int chunk) const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_.at(chunk), "a hash of a chunk that is not here");
  return hashes_[chunk];
}

void RoundPayload::Subscribe(OnReady on_ready) {
  std::vector<int> here;
  {
    const absl::MutexLock lock(&mutex_);
    for (int i = 0; i < chunks(); ++i) {
      if (ready_[i]) here.push_back(i);
    }
    subscribers_.push_back(on_ready);
  }
  for (const int chunk : here) on_ready(chunk);
}

void MarkAllReady(RoundPayload& payload) {
  for (int chunk = 0; chunk < payload.chunks(); ++chunk) {
    payload.MarkReady(chunk, HashBytes(payload.chunk(chunk)));
  }
}

// --- Pool -------------------------------------------------------------------

BlockPool::BlockPool(size_t kept_bytes) : pool_(kept_bytes, &Allocate) {}

std::shared_ptr<RoundPayload> BlockPool::Make(size_t bytes,
                                              size_t chunk_bytes) {
  MemoryPool::Block block = pool_.Take(bytes);
  uint8_t* const memory = block.get();
  return RoundPayload::Over(memory, bytes, std::move(block), {chunk_bytes, 0});
}

// --- Shape and own part
// -------------------------------------------------------

// As few chunks a shard as their greatest size allows.
RoundShape::RoundShape(size_t values, int shards, Codec codec)
    : values_(values), shards_(shards), codec_(codec) {
  const size_t most = shards * (kRoundChunkBytes / value_bytes());
  const size_t chunks =
      shards * std::max<size_t>(1, (values + most - 1) / most);
  const size_t blocks = (values + kRuleBlock - 1) / kRuleBlock;
  chunk_values_ =
      kRuleBlock * std::max<size_t>(1, (blocks + chunks - 1) / chunks);
}

size_t RoundShape::values(int shard) const {
  PACELINE_CHECK(shard >= 0 && shard < shards_, "a shard of another round");
  if (shard >= chunks()) return 0;
  const int last = chunks() - 1;
  const size_t whole = ((last - shard) / shards_ + 1) * chunk_values_;
  return shard_of(last) == shard ? whole - (begin(last + 1) - values_) : whole;
}

void DecodeValues(Codec codec, absl::Span<const uint8_t> bytes,
                  absl::Span<float> values) {
  if (values.empty()) return;
  if (codec == Codec::kRaw) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  Tensor into = Borrow(values.data(), values.size());
  Decode(codec, bytes, into);
}

void EncodeValues(Codec codec, absl::Span<const float> values,
                  absl::Span<uint8_t> bytes) {
  if (values.empty()) return;
  if (codec == Codec::kRaw) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return;
  }
  // Encode() only reads.
  const Tensor encoded =
      Encode(codec, Borrow(const_cast<float*>(values.data()), values.size()));
  std::memcpy(bytes.data(), encoded.data.get(), bytes.size());
}

RoundPart::RoundPart(const PartOptions& options, const RoundShape& shape,
                     BlockPool& pool)
    : options_(options),
      shape_(shape),
      released_(std::make_shared<absl::Notification>()) {
  PACELINE_CHECK(options.gradient.size() == shape.values(),
                 "a gradient of another model");
  // The last payload over the gradient's memory drops this.
  const std::shared_ptr<void> lease(
      options_.gradient.data(),
      [released = released_](void*) { released->Notify(); });
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    if (shape_.values(shard) == 0) {
      payloads_.push_back(nullptr);
    } else if (shape_.codec() == Codec::kRaw) {
      const size_t chunk_bytes = shape_.chunk_values() * sizeof(float);
      float* const first = options_.gradient.data() + shape_.begin(shard);
      payloads_.push_back(RoundPayload::Over(
          reinterpret_cast<uint8_t*>(first), shape_.bytes(shard), lease,
          {chunk_bytes, (shape_.shards() - 1) * chunk_bytes}));
    } else {
      payloads_.push_back(shape_.Make(shard, pool));
    }
  }
  marked_from_ = shape_.chunks();
}

void RoundPart::MarkReady(size_t begin) {
  while (marked_from_ > 0 && shape_.begin(marked_from_ - 1) >= begin) {
    MarkChunk(--marked_from_);
  }
}

void RoundPart::MarkChunk(int chunk) {
  RoundPayload& payload = *payloads_[shape_.shard_of(chunk)];
  const int index = shape_.index_of(chunk);
  const absl::Span<uint8_t> bytes = payload.chunk(index);
  const absl::Span<const float> values = options_.gradient.subspan(
      shape_.begin(chunk), bytes.size() / shape_.value_bytes());
  if (shape_.codec() != Codec::kRaw) {
    EncodeValues(shape_.codec(), values, bytes);
  }
  finite_ = finite_ && FindNonFinite(values) == values.size();
  // The transport's checksum is that of these bytes; only the offer's differs.
  if (options_.corrupts && chunk == 0) bytes[0] ^= 1;
  payload.MarkReady(index, HashBytes(bytes));
}

std::vector<PartOffer> RoundPart::Offers(int64_t samples) const {
  const bool usable = samples > 0 && (finite_ || options_.lies);
  std::vector<PartOffer> offers;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    PartOffer offer{options_.step,         shard, 0, 0, options_.division,
                    samples > 0 && !usable};
    const RoundPayload* const payload = payloads_[shard].get();
    if (usable) {
      offer.samples = samples;
      offer.hash = payload == nullptr ? 1 : payload->hash();
      // Stands for the hash of the bytes before they were spoilt.
      if (options_.corrupts && shard == 0) offer.hash ^= 1;
    }
    offers.push_back(offer);
  }
  return offers;
}

// --- Store
// --------------------------------------------------------------------

std::shared_ptr<RoundPayload> RoundStore::Incoming(const MemberId& from,
                                                   const PayloadKey& key) {
  const absl::MutexLock lock(&mutex_);
  const auto found = incoming_.find({key, from});
  if (found != incoming_.end()) return found->second;
  int variants = 0;
  std::set<int64_t> steps = {key.step};
  for (const auto& [sender, payload] : incoming_) {
    if (sender.second != from) continue;
    steps.insert(sender.first.step);
    variants +=
        sender.first.step == key.step && sender.first.shard == key.shard;
  }
  if (variants >= limits_.variants || steps.size() > limits_.steps) {
    return nullptr;
  }
  std::shared_ptr<RoundPayload> payload = shape_.Make(key.shard, pool_);
  incoming_[{key, from}] = payload;
  return payload;
}

void RoundStore::AddResult(int64_t step, int shard, uint64_t variant,
                           std::shared_ptr<RoundPayload> payload) {
  const uint64_t hash = payload->hash();
  const absl::MutexLock lock(&mutex_);
  results_.try_emplace({step, shard, hash},
                       Result{std::move(payload), variant});
}

RoundStore::Result RoundStore::FindResult(int64_t step, int shard,
                                          uint64_t hash) {
  if (shape_.values(shard) == 0) return {pool_.Make(0), hash};
  const absl::MutexLock lock(&mutex_);
  const auto found = results_.find({step, shard, hash});
  if (found != results_.end()) return found->second;
  for (const auto& [sender, payload] : incoming_) {
    const PayloadKey& key = sender.first;
    if (key.step != step || key.shard != shard || !payload->complete() ||
        payload->hash() != hash) {
      continue;
    }
    return results_[{step, shard, hash}] = Result{payload, hash};
  }
  return {};
}

void RoundStore::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  const absl::MutexLock lock(&mutex_);
  while (!results_.empty() && std::get<0>(results_.begin()->first) < step) {
    dropped.push_back(std::move(results_.begin()->second.payload));
    results_.erase(results_.begin());
  }
  std::erase_if(incoming_, [&](auto& each) {
    if (each.first.first.step >= step) return false;
    dropped.push_back(std::move(each.second));
    return true;
  });
}

void RoundStore::Retain(const std::vector<GroupWorker>& peers) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  const absl::MutexLock lock(&mutex_);
  std::erase_if(incoming_, [&](auto& each) {
    if (std::ranges::count(peers, each.first.second, &GroupWorker::id) > 0) {
      return false;
    }
    dropped.push_back(std::move(each.second));
    return true;
  });
}

}  // namespace paceline
