#include "core/model/catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/model/chain.h"

namespace paceline {
namespace {

std::vector<std::string> VitKeys() {
  return {"depth", "width", "heads", "patch", "dropout", "sizes"};
}

CatalogEntry Small(const char* name, std::vector<std::string> keys,
                   DescribeFunction* describe) {
  return {{.name = name}, std::move(keys), {1, 28, 28}, 10, describe};
}

CatalogEntry ImageNet(ModelSpec model, std::vector<std::string> keys,
                      DescribeFunction* describe) {
  return {std::move(model), std::move(keys), {3, 224, 224}, 1000, describe};
}

// A vision transformer for ImageNet: twelve blocks, patches of 16 pixels,
// heads of 64 (Dosovitskiy et al. 2021, table 1; Touvron et al. 2021, table 1).
CatalogEntry ImageNetVit(const char* name, int32_t width) {
  return ImageNet({.name = name,
                   .depth = 12,
                   .width = width,
                   .heads = width / 64,
                   .patch = 16},
                  VitKeys(), DescribeVit);
}

// `width` counts the first channels.
CatalogEntry Resnet(const char* name) {
  return ImageNet({.name = name, .width = 64}, {"width", "sizes"},
                  DescribeResnet);
}
CatalogEntry Vgg(const char* name) {
  return ImageNet({.name = name, .width = 64, .dropout = 0.5},
                  {"width", "dropout", "sizes"}, DescribeVgg);
}

struct LanguageSizes {
  const char* name;
  int32_t depth;
  int32_t heads;
  int32_t width;
};

CatalogEntry Language(const LanguageSizes& sizes, int32_t positions,
                      int32_t vocabulary, Shape input, int32_t classes,
                      DescribeFunction* describe) {
  return {{.name = sizes.name,
           .depth = sizes.depth,
           .width = sizes.width,
           .heads = sizes.heads,
           .positions = positions,
           .vocabulary = vocabulary},
          {"depth", "width", "heads", "dropout", "positions", "vocabulary"},
          std::move(input),
          classes,
          describe,
          "synthetic-tokens"};
}

// Small: learns bytes, or whatever tokens the data has.
// `gpt_mini` is minGPT's, `gpt_char` the one nanoGPT has for characters.
CatalogEntry SmallGpt(const LanguageSizes& sizes) {
  return Language(sizes, 0, 0, {128}, 256, DescribeGpt);
}

// Radford et al. 2019, table 2, as nanoGPT and Hugging Face have it.
CatalogEntry Gpt2(const LanguageSizes& sizes) {
  constexpr int32_t kPositions = 1024;
  constexpr int32_t kTokens = 50257;
  return Language(sizes, kPositions, kTokens, {kPositions}, kTokens,
                  DescribeGpt);
}

// Devlin et al. 2019, section 3; Liu et al. 2019 have two positions more, which
// no token takes.
CatalogEntry Bert(const LanguageSizes& sizes, int32_t vocabulary) {
  CatalogEntry entry = Language(sizes, 512, vocabulary, {128}, 2, DescribeBert);
  entry.synthetic = "synthetic-labels";
  return entry;
}
CatalogEntry Roberta(const LanguageSizes& sizes, int32_t vocabulary) {
  CatalogEntry entry = Bert(sizes, vocabulary);
  entry.model.positions = 514;
  entry.padding = 1;
  return entry;
}

// Small: pairs of 16 tokens each.  GNMT itself is depth 4, width 1024 and
// vocabulary 32320 as MLPerf had it, and depth 8 in Wu et al. 2016.
CatalogEntry Gnmt() {
  return {{.name = "gnmt", .depth = 2, .width = 128},
          {"depth", "width", "dropout", "vocabulary"},
          {32},
          32,
          DescribeGnmt,
          "synthetic-pairs"};
}

std::vector<CatalogEntry> MakeCatalog() {
  std::vector<CatalogEntry> catalog = {
      Small("lenet", {"dropout"}, DescribeLenet),
      Small("mlp", {"hidden", "dropout"}, DescribeMlp),
      Small("vit", VitKeys(), DescribeVit),
      ImageNetVit("deit_tiny_patch16_224", 192),
      ImageNetVit("deit_small_patch16_224", 384),
      ImageNetVit("deit_base_patch16_224", 768),
      ImageNetVit("vit_tiny_patch16_224", 192),
      ImageNetVit("vit_small_patch16_224", 384),
      ImageNetVit("vit_base_patch16_224", 768),
      ImageNetVit("vit_b_16", 768),
      Resnet("resnet18"),
      Resnet("resnet50"),
      Vgg("vgg11"),
      Vgg("vgg16"),
      Gnmt(),
      SmallGpt({"gpt", 4, 4, 128}),
      SmallGpt({"gpt_mini", 6, 6, 192}),
      SmallGpt({"gpt_char", 6, 6, 384}),
      Gpt2({"gpt2", 12, 12, 768}),
      Gpt2({"gpt2_medium", 24, 16, 1024}),
      Gpt2({"gpt2_large", 36, 20, 1280}),
      Gpt2({"gpt2_xl", 48, 25, 1600}),
      Bert({"bert", 4, 4, 128}, 256),
      Bert({"bert_base", 12, 12, 768}, 30522),
      Roberta({"roberta", 4, 4, 128}, 256),
      Roberta({"roberta_base", 12, 12, 768}, 50265),
  };
  std::ranges::sort(catalog, {}, [](const CatalogEntry& entry) {
    return absl::string_view(entry.model.name);
  });
  return catalog;
}

std::string ValueText(const ModelSpec& model, const std::string& key) {
  if (key == "hidden") return absl::StrJoin(model.hidden, "-");
  if (key == "depth") return absl::StrCat(model.depth);
  if (key == "width") return absl::StrCat(model.width);
  if (key == "heads") return absl::StrCat(model.heads);
  if (key == "patch") return absl::StrCat(model.patch);
  if (key == "positions") return absl::StrCat(model.positions);
  if (key == "vocabulary") return absl::StrCat(model.vocabulary);
  if (key == "sizes") return absl::StrJoin(model.sizes, "-");
  if (key == "file") return model.script.sha256;
  return absl::StrCat(model.dropout);
}

}  // namespace

const std::vector<CatalogEntry>& ModelCatalog() {
  static const std::vector<CatalogEntry> catalog = MakeCatalog();
  return catalog;
}

const CatalogEntry* FindModel(const std::string& name) {
  // Not in the list: it has neither sizes nor data of its own.
  static const CatalogEntry script =
      Small(kScriptModel, {"file"}, DescribeScript);
  if (name == kScriptModel) return &script;
  return FindNamed(ModelCatalog(), name, [](const CatalogEntry& entry) {
    return absl::string_view(entry.model.name);
  });
}

ModelSpec DefaultModel(const std::string& name) {
  if (const CatalogEntry* entry = FindModel(name)) return entry->model;
  ModelSpec model;
  model.name = name;
  return model;
}

DataSpec WithSyntheticData(const ModelSpec& model, DataSpec data) {
  const CatalogEntry* const entry = FindModel(model.name);
  data.name = entry == nullptr ? "synthetic" : entry->synthetic;
  const DataSetTraits* const set = FindDataSet(data.name);
  if (set->kind == SampleKind::kImages || data.shape.size() != 1) return data;
  const bool pairs = set->kind == SampleKind::kPairs;
  data.block = static_cast<int32_t>(data.shape[0] / (pairs ? 2 : 1));
  data.padding = entry->padding;
  data.vocabulary = model.vocabulary;
  return data;
}

bool ModelReads(const std::string& name, const std::string& key) {
  const CatalogEntry* entry = FindModel(name);
  return entry != nullptr &&
         std::ranges::find(entry->keys, key) != entry->keys.end();
}

std::string SizesText(const ModelSpec& model) {
  const CatalogEntry* entry = FindModel(model.name);
  if (entry == nullptr) return "";
  std::vector<std::string> parts;
  for (const std::string& key : entry->keys) {
    if (key == "sizes" && model.sizes.empty()) continue;
    parts.push_back(absl::StrCat(key, "=", ValueText(model, key)));
  }
  std::string text = absl::StrJoin(parts, ",");
  if (model.only != kTrainsAll) absl::StrAppend(&text, ",only=", model.only);
  if (model.lora.rank > 0) {
    absl::StrAppend(&text, ",lora=", model.lora.rank, ":",
                    absl::StrJoin(model.lora.targets, "+"));
  }
  return text;
}

}  // namespace paceline
