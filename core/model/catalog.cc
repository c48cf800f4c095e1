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

// A convolutional network for ImageNet; `width` counts the first channels.
CatalogEntry ImageNetConvolutions(const char* name,
                                  std::vector<std::string> keys,
                                  decltype(CatalogEntry::describe) describe) {
  CatalogEntry entry{
      {}, std::move(keys), ImageNetImage(), kImageNetClasses, describe};
  entry.model.name = name;
  entry.model.width = 64;
  return entry;
}

CatalogEntry Vgg(const char* name) {
  CatalogEntry entry =
      ImageNetConvolutions(name, {"width", "dropout"}, DescribeVgg);
  entry.model.dropout = 0.5;
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
      ImageNetConvolutions("resnet18", {"width"}, DescribeResnet),
      ImageNetConvolutions("resnet50", {"width"}, DescribeResnet),
      Vgg("vgg11"),
      Vgg("vgg16"),
  };
  std::sort(catalog.begin(), catalog.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) {
              return a.model.name < b.model.name;
            });
  return catalog;
}

// Not in the list: it has neither sizes nor data of its own.
const CatalogEntry& Script() {
  static const CatalogEntry entry =
      Small(kScriptModel, {"file"}, DescribeScript);
  return entry;
}

std::string ValueText(const ModelSpec& model, const std::string& key) {
  if (key == "hidden") return absl::StrJoin(model.hidden, "-");
  if (key == "depth") return absl::StrCat(model.depth);
  if (key == "width") return absl::StrCat(model.width);
  if (key == "heads") return absl::StrCat(model.heads);
  if (key == "patch") return absl::StrCat(model.patch);
  if (key == "file") return model.script.sha256;
  return absl::StrCat(model.dropout);
}

}  // namespace

const std::vector<CatalogEntry>& ModelCatalog() {
  static const std::vector<CatalogEntry> catalog = MakeCatalog();
  return catalog;
}

const CatalogEntry* FindModel(const std::string& name) {
  const std::vector<CatalogEntry>& catalog = ModelCatalog();
  if (name == kScriptModel) return &Script();
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
