#include "core/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

constexpr int64_t kMaxHeaderBytes = int64_t{16} << 20;

template <typename... Parts>
absl::Status Refuse(const std::string& path, const Parts&... why) {
  return InvalidArgument(path, ": not a safetensors file: ", why...);
}

// --- The header: its events are read one by one, and nothing is built that the
// format does not know, so that a hostile one costs no memory.

struct SafetensorsHeader {
  // Sorted by offset, which here counts from where the data begins.
  std::vector<TensorPlace> tensors;
  std::map<std::string, std::string> metadata;
};

constexpr size_t kMaxRank = 16;
constexpr size_t kMaxNameInMessage = 80;

std::string Shown(absl::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kMaxNameInMessage)),
                      "'");
}

// Takes the parser's events.  Every method returns false to end the parsing;
// error() then says why.  The parser pairs brackets and puts a key before each
// value of an object, so that depth, name, field and list tell what comes next:
//
//   { name: { field: "text", field: [number, number] } }
//   0       1        2              2, in a list
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  const absl::Status& error() const { return error_; }

  bool start_object(size_t) override {
    if (depth_ == 2) return Unexpected("an object");
    ++depth_;
    place_ = TensorPlace();
    offsets_.clear();
    fields_.clear();
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = text;
      return names_.insert(text).second ||
             Fail("two entries named ", Shown(text));
    }
    field_ = text;
    const bool is_first = fields_.insert(text).second;
    if (is_metadata()) {
      return is_first || Fail("two metadata entries named ", Shown(text));
    }
    if (text != "dtype" && text != "shape" && text != "data_offsets") {
      return FailTensor("unknown field ", Shown(text));
    }
    return is_first || FailTensor("two ", text, " fields");
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && is_metadata()) {
      header_.metadata[field_] = text;
      return true;
    }
    if (depth_ != 2 || list_ != nullptr || field_ != "dtype") {
      return Unexpected("a string");
    }
    // Masks, a byte a value.
    const auto dtype = text == "BOOL" ? DType::kU8 : DTypeFromName(text);
    if (!dtype.has_value()) {
      error_ = Unimplemented("tensor ", Shown(name_), ": unknown dtype ",
                             Shown(text),
                             ", which is not read: convert it, as by .float()");
      return false;
    }
    place_.dtype = *dtype;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || list_ != nullptr || is_metadata() || field_ == "dtype") {
      return Unexpected("a list");
    }
    list_ = field_ == "shape" ? &place_.shape : &offsets_;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return FailTensor(number, " is beyond every file");
    }
    if (list_ == nullptr) return Unexpected("a number");
    list_->push_back(static_cast<int64_t>(number));
    if (offsets_.size() > 2) return FailTensor("more than two data_offsets");
    return place_.shape.size() <= kMaxRank ||
           FailTensor("more than ", kMaxRank, " dimensions");
  }

  bool end_array() override {
    list_ = nullptr;
    return true;
  }

  bool end_object() override {
    return --depth_ != 1 || is_metadata() || FinishTensor();
  }

  bool number_integer(number_integer_t number) override {
    return FailTensor(number, " is negative");
  }
  bool number_float(number_float_t, const string_t& text) override {
    return FailTensor(Shown(text), " is no integer of 64 bits");
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail("the header is not JSON at byte ", position);
  }

 private:
  template <typename... Parts>
  bool Fail(const Parts&... why) {
    error_ = InvalidArgument(why...);
    return false;
  }

  template <typename... Parts>
  bool FailTensor(const Parts&... why) {
    return Fail("tensor ", Shown(name_), ": ", why...);
  }

  bool Unexpected(absl::string_view what) {
    return Fail("the header has ", what, " where the format has none",
                depth_ > 0 ? absl::StrCat(", near ", Shown(name_)) : "");
  }

  bool is_metadata() const { return name_ == "__metadata__"; }

  bool FinishTensor() {
    if (fields_.size() < 3) {
      return FailTensor("one of dtype, shape and data_offsets is missing");
    }
    if (offsets_.size() != 2) {
      return FailTensor(offsets_.size(), " data_offsets, need 2");
    }
    place_.name = name_;
    place_.offset = offsets_[0];
    place_.bytes = offsets_[1] - offsets_[0];
    header_.tensors.push_back(std::move(place_));
    return true;
  }

  SafetensorsHeader& header_;
  absl::Status error_;
  int depth_ = 0;                         // of objects
  std::string name_;                      // of the entry that is read
  std::string field_;                     // of that entry
  std::vector<int64_t>* list_ = nullptr;  // the one that is read
  TensorPlace place_;
  std::vector<int64_t> offsets_;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;  // a cleared hash set keeps its buckets
};

// Sorted places must lie end to end from 0 to data_bytes.
absl::Status CheckPlaces(const std::vector<TensorPlace>& tensors,
                         int64_t data_bytes) {
  int64_t end = 0;
  for (const TensorPlace& place : tensors) {
    const std::string who = absl::StrCat("tensor ", Shown(place.name));
    if (place.bytes < 0 || place.bytes > data_bytes ||
        place.offset > data_bytes - place.bytes) {
      return InvalidArgument(who, ": ", place.bytes, " bytes from ",
                             place.offset, " on do not lie in the file's ",
                             data_bytes);
    }
    if (place.offset != end) {
      return InvalidArgument(
          who, place.offset < end ? ": overlaps" : ": leaves a hole after",
          " the tensor before it: begins at ", place.offset, ", that ends at ",
          end);
    }
    const int64_t need = TensorBytes(place.dtype, place.shape);
    if (place.bytes != need) {
      return InvalidArgument(
          who, ": ", DTypeName(place.dtype), " of shape ",
          ShapeText(place.shape), " ",
          need < 0 ? "overflows" : absl::StrCat("takes ", need, " bytes"),
          ", its data_offsets hold ", place.bytes);
    }
    end += place.bytes;
  }
  if (end != data_bytes) {
    return InvalidArgument("the tensors end at byte ", end, " of ", data_bytes);
  }
  return absl::OkStatus();
}

// Parses `json` and checks that its tensors fill data_bytes exactly.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  SafetensorsHeader header;
  HeaderReader reader(header);
  const bool parsed =
      nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  PACELINE_RETURN_IF_ERROR(reader.error());
  if (!parsed) return InvalidArgument("the header is not JSON");

  std::ranges::sort(header.tensors, {}, [](const TensorPlace& place) {
    return std::tie(place.offset, place.bytes, place.name);
  });
  const absl::Status places = CheckPlaces(header.tensors, data_bytes);
  if (places.ok()) return header;
  int64_t whole = 0;
  for (const TensorPlace& each : header.tensors) {
    whole = std::max(whole, each.offset + each.bytes);
  }
  if (whole <= data_bytes || !CheckPlaces(header.tensors, whole).ok()) {
    return places;
  }
  return InvalidArgument("cut short: it has ", data_bytes, " of ", whole,
                         " bytes of tensors; get it again");
}

// --- Files that people take for weights

constexpr int64_t kNamedBytes = 4096;
constexpr char kOfPyTorch[] =
    "a file of PyTorch's; save the tensors by safetensors.torch.save_file (a "
    "scripted module is for model.name: script, with model.file)";
constexpr char kPacked[] = "packed: unpack it";

// The first bytes of files that people take for weights.
struct Kind {
  absl::string_view begin;
  const char* what;
};
constexpr Kind kKinds[] = {
    {"version https://git-lfs",
     "a Git LFS pointer, which stands for the file itself: 'git lfs pull' gets "
     "that"},
    {"GGUF", "a GGUF file of llama.cpp: take the model's safetensors"},
    {"PK\x03\x04", kOfPyTorch},
    {"\x80\x02\x8a\x0a", kOfPyTorch},  // torch.save before 1.6
    {"\x80\x02}q", kOfPyTorch},        // pickles of dictionaries
    {"\x80\x02"
     "cc",
     kOfPyTorch},
    {"\x80\x03}q", kOfPyTorch},
    {"\x80\x04\x95", kOfPyTorch},
    {"\x80\x05\x95", kOfPyTorch},
    {"\x89HDF", "an HDF5 file, as Keras writes it"},
    {"\x93NUMPY", "an array of NumPy's"},
    {"\x1f\x8b\x08", kPacked},
    {"\x28\xb5\x2f\xfd", kPacked},
    {"\xfd"
     "7zXZ",
     kPacked},
};

// Names the kind of a file by its first bytes; empty: they do not tell.
std::string WhatItIs(absl::string_view begin) {
  for (const Kind& kind : kKinds) {
    if (absl::StartsWith(begin, kind.begin)) return kind.what;
  }
  if (std::ssize(begin) <= kLengthBytes) return "";
  if (begin.find_first_not_of('\0') == begin.npos) {
    return "nothing but zeros: a download that has not ended?";
  }
  absl::ConsumePrefix(&begin, "\xef\xbb\xbf");
  begin = absl::StripLeadingAsciiWhitespace(begin);
  const absl::string_view first = begin.substr(0, kLengthBytes);
  const bool is_text =
      !first.empty() && std::ranges::all_of(first, [](unsigned char byte) {
        return absl::ascii_isprint(byte) || absl::ascii_isspace(byte);
      });
  if (!is_text) return "";
  if (first.front() == '<') {
    return "a web page: whoever got it was given an error or a login in its "
           "place";
  }
  if (first.front() == '{' && absl::StrContains(begin, "\"weight_map\"")) {
    return "an index of shards: join the files that it names, by load_file of "
           "each and one save_file of safetensors.torch";
  }
  return "a text";  // shows none of it: a submitter may have no right to read
}

// --- The file

// An open file whose header has been checked.  Thread-compatible.
class Source {
 public:
  static absl::StatusOr<std::unique_ptr<Source>> Open(const std::string& path) {
    auto file = ByteFile::Open(path);
    if (absl::IsInvalidArgument(file.status())) {
      return Refuse(path, "it is no regular file");
    }
    PACELINE_RETURN_IF_ERROR(file.status());
    auto source = std::unique_ptr<Source>(new Source(*std::move(file)));
    PACELINE_RETURN_IF_ERROR(source->ReadHeader());
    return source;
  }

  const ByteFile& file() const { return *file_; }
  int64_t data_begin() const { return data_begin_; }
  SafetensorsHeader& header() { return header_; }

  absl::StatusOr<NamedTensor> ReadTensor(TensorPlace place) const {
    Tensor tensor = Tensor::Allocate(place.dtype, std::move(place.shape));
    PACELINE_RETURN_IF_ERROR(
        ReadAt(data_begin_ + place.offset, tensor.data.get(), place.bytes));
    return NamedTensor{std::move(place.name), std::move(tensor)};
  }

  absl::Status ReadAt(int64_t offset, uint8_t* target, int64_t bytes) const {
    return file_->ReadAt(offset, absl::MakeSpan(target, bytes));
  }

 private:
  explicit Source(std::unique_ptr<ByteFile> file) : file_(std::move(file)) {}

  absl::StatusOr<int64_t> ReadHeaderBytes() const;
  absl::Status NameIt(absl::Status why) const;
  absl::Status ReadHeader();

  const std::unique_ptr<ByteFile> file_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

// Reads the length of the header, as the file states it.
absl::StatusOr<int64_t> Source::ReadHeaderBytes() const {
  if (file_->size() < kLengthBytes) {
    return Refuse(file_->path(), "only ", file_->size(), " bytes");
  }
  uint8_t encoded[kLengthBytes] = {};
  PACELINE_RETURN_IF_ERROR(ReadAt(0, encoded, kLengthBytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | encoded[i];
  if (length > uint64_t{kMaxHeaderBytes}) {
    return Refuse(file_->path(), "a header of ", length,
                  " bytes, the limit is ", kMaxHeaderBytes);
  }
  if (length > static_cast<uint64_t>(file_->size() - kLengthBytes)) {
    return Refuse(file_->path(), "cut short: a header of ", length,
                  " bytes in a file of ", file_->size());
  }
  return static_cast<int64_t>(length);
}

// Reads the first bytes of a file that turned out to have no header.
absl::Status Source::NameIt(absl::Status why) const {
  std::string begin(std::min(file_->size(), kNamedBytes), '\0');
  PACELINE_RETURN_IF_ERROR(
      ReadAt(0, reinterpret_cast<uint8_t*>(begin.data()), std::ssize(begin)));
  const std::string what = WhatItIs(begin);
  return what.empty() ? why : Refuse(file_->path(), "it is ", what);
}

absl::Status Source::ReadHeader() {
  const absl::StatusOr<int64_t> length = ReadHeaderBytes();
  if (!length.ok()) return NameIt(length.status());
  const int64_t bytes = *length;
  std::string json(bytes, '\0');
  PACELINE_RETURN_IF_ERROR(
      ReadAt(kLengthBytes, reinterpret_cast<uint8_t*>(json.data()), bytes));
  data_begin_ = kLengthBytes + bytes;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file_->size() - data_begin_);
  if (absl::IsUnimplemented(header.status())) {
    return InvalidArgument(file_->path(), ": ", header.status().message());
  }
  if (!header.ok())
    return NameIt(Refuse(file_->path(), header.status().message()));
  header_ = *std::move(header);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(
    const std::string& path, const ChooseTensors& choose,
    std::map<std::string, std::string>* metadata) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                            Source::Open(path));
  if (metadata != nullptr) *metadata = source->header().metadata;
  PACELINE_ASSIGN_OR_RETURN(const std::set<std::string> wanted,
                            choose(source->header().tensors));
  std::vector<NamedTensor> tensors;
  for (TensorPlace& place : source->header().tensors) {
    if (!wanted.contains(place.name)) continue;
    PACELINE_ASSIGN_OR_RETURN(NamedTensor tensor,
                              source->ReadTensor(std::move(place)));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<std::string> ReadSafetensorsMetadata(const std::string& path,
                                                    const std::string& key) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                            Source::Open(path));
  return source->header().metadata[key];
}

absl::StatusOr<WeightsSummary> SummarizeSafetensors(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                            Source::Open(path));
  WeightsSummary summary;
  summary.file_bytes = source->file().size();
  summary.metadata = std::move(source->header().metadata);
  summary.tensors = std::move(source->header().tensors);
  for (TensorPlace& place : summary.tensors) {
    place.offset += source->data_begin();
  }
  Sha256 hash;
  PACELINE_RETURN_IF_ERROR(source->file().Scan(1, [&](int64_t,
                                                      absl::Span<const uint8_t>
                                                          bytes) {
    hash.Update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return absl::OkStatus();
  }));
  summary.sha256 = hash.HexDigest();
  return summary;
}

}  // namespace paceline
