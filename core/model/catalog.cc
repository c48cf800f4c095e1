#include "core/model/catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/models.h"

namespace paceline {
namespace {

const Shape& SmallImage() {
  static const Shape shape = {1, 28, 28};
  return shape;
}

const Shape& ImageNetImage() {
  static const Shape shape = {3, 224, 224};
  return shape;
}

constexpr int32_t kImageNetClasses = 1000;

const std::vector<std::string>& VitKeys() {
  static const std::vector<std::string> keys = {"depth", "width", "heads",
                                                "patch", "dropout"};
  return keys;
}

CatalogEntry Small(const char* name, std::vector<std::string> keys,
                   decltype(CatalogEntry::describe) describe) {
  CatalogEntry entry{{}, std::move(keys), SmallImage(), 10, describe};
  entry.model.name = name;
  return entry;
}

// A vision transformer for ImageNet: twelve blocks, patches of 16 pixels,
// heads of 64 (Dosovitskiy et al. 2021, table 1; Touvron et al. 2021, table 1).
CatalogEntry ImageNetVit(const char* name, int32_t width) {
  CatalogEntry entry{
      {}, VitKeys(), ImageNetImage(), kImageNetClasses, DescribeVit};
  entry.model.name = name;
  entry.model.depth = 12;
  entry.model.width = width;
  entry.model.heads = width / 64;
  entry.model.patch = 16;
  return entry;
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
  };
  std::sort(catalog.begin(), catalog.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) {
              return a.model.name < b.model.name;
            });
  return catalog;
}

std::string ValueText(const ModelSpec& model, const std::string& key) {
  if (key == "hidden") return absl::StrJoin(model.hidden, "-");
  if (key == "depth") return absl::StrCat(model.depth);
  if (key == "width") return absl::StrCat(model.width);
  if (key == "heads") return absl::StrCat(model.heads);
  if (key == "patch") return absl::StrCat(model.patch);
  return absl::StrCat(model.dropout);
}

}  // namespace

const std::vector<CatalogEntry>& ModelCatalog() {
  static const std::vector<CatalogEntry> catalog = MakeCatalog();
  return catalog;
}

const CatalogEntry* FindModel(const std::string& name) {
  const std::vector<CatalogEntry>& catalog = ModelCatalog();
  const auto found = std::find_if(
      catalog.begin(), catalog.end(),
      [&](const CatalogEntry& entry) { return entry.model.name == name; });
  return found == catalog.end() ? nullptr : &*found;
}

ModelSpec DefaultModel(const std::string& name) {
  if (const CatalogEntry* entry = FindModel(name)) return entry->model;
  ModelSpec model;
  model.name = name;
  return model;
}

bool ModelReads(const std::string& name, const std::string& key) {
  const CatalogEntry* entry = FindModel(name);
  return entry != nullptr && std::find(entry->keys.begin(), entry->keys.end(),
                                       key) != entry->keys.end();
}

std::string SizesText(const ModelSpec& model) {
  const CatalogEntry* entry = FindModel(model.name);
  if (entry == nullptr) return "";
  return absl::StrJoin(entry->keys, ",",
                       [&](std::string* out, const std::string& key) {
                         absl::StrAppend(out, key, "=", ValueText(model, key));
                       });
}

}  // namespace paceline
