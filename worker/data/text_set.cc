#include "worker/data/text_set.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "worker/data/text_lines.h"

namespace paceline {
namespace {

absl::StatusOr<std::vector<std::unique_ptr<TokenSource>>> OpenSources(
    const TextOptions& options) {
  const std::vector<std::string> files =
      TextFilesOf(options.path, options.tokens == "uint16" ? ".bin" : ".txt");
  if (options.tokens == "character") {
    return OpenCharacters(files, options.classes);
  }
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const std::string& file : files) {
    PACELINE_ASSIGN_OR_RETURN(
        auto source, OpenTokenFile(file, options.tokens == "uint16" ? 2 : 1,
                                   options.classes));
    sources.push_back(std::move(source));
  }
  return sources;
}

int64_t SamplesIn(int64_t tokens, int64_t block) {
  return tokens > block ? (tokens - 1) / block : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextSet>> TextSet::Open(
    const TextOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(auto sources, OpenSources(options));
  auto set = std::unique_ptr<TextSet>(new TextSet(options, std::move(sources)));
  PACELINE_RETURN_IF_ERROR(set->CheckLengths());
  return set;
}

TextSet::TextSet(const TextOptions& options,
                 std::vector<std::unique_ptr<TokenSource>> sources)
    : options_(options),
      format_{DType::kI64, {options.block}, {options.block}},
      sources_(std::move(sources)) {
  Divide();
}

void TextSet::Divide() {
  train_tokens_ = sources_.front()->size();
  if (sources_.size() > 1) {
    test_tokens_ = sources_.back()->size();
    test_.source = sources_.back().get();
  } else {
    const auto all = static_cast<double>(train_tokens_);
    test_tokens_ = static_cast<int64_t>(all * options_.test_fraction);
    test_.source = sources_.front().get();
    // Else both splits are all of it, for inference.
    if (options_.test_fraction < 1) {
      train_tokens_ -= test_tokens_;
      test_.first = train_tokens_;
    }
  }
  train_.source = sources_.front().get();
  train_.samples = SamplesIn(train_tokens_, options_.block);
  test_.samples = SamplesIn(test_tokens_, options_.block);
}

absl::Status TextSet::CheckLengths() const {
  const auto refuse = [this](const char* part, int64_t tokens,
                             const char* remedy) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.path, ": ", part, " has ", tokens, " tokens, a block of ",
        options_.block, " needs ", options_.block + 1, "; ", remedy));
  };
  if (train_.samples == 0) {
    return refuse("the training split", train_tokens_, "lower data.block");
  }
  const bool wanted = sources_.size() > 1 || options_.test_fraction > 0;
  if (wanted && test_.samples == 0) {
    return refuse("the test split", test_tokens_,
                  "lower data.block, or set data.test_fraction, to 0 for none");
  }
  return absl::OkStatus();
}

int64_t TextSet::samples(BatchPhase split) const {
  return split == BatchPhase::kTrain ? train_.samples : test_.samples;
}

absl::Status TextSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                           Tensor& labels) const {
  const Split& from = place.split == BatchPhase::kTrain ? train_ : test_;
  const int64_t block = options_.block;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const int64_t first = from.first + place.indices[i] * block;
    PACELINE_RETURN_IF_ERROR(from.source->Read(
        first, inputs.As<int64_t>().subspan(i * block, block)));
    PACELINE_RETURN_IF_ERROR(from.source->Read(
        first + 1, labels.As<int64_t>().subspan(i * block, block)));
  }
  return absl::OkStatus();
}

}  // namespace paceline
