#include "core/model/catalog.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(Catalog, IsSortedByName) {
  EXPECT_TRUE(std::is_sorted(ModelCatalog().begin(), ModelCatalog().end(),
                             [](const CatalogEntry& a, const CatalogEntry& b) {
                               return a.model.name < b.model.name;
                             }));
}

TEST(Catalog, SizesTextNamesWhatTheModelReads) {
  EXPECT_EQ(SizesText(DefaultModel("vit")),
            "depth=4,width=64,heads=4,patch=7,dropout=0");
  EXPECT_EQ(SizesText(DefaultModel("mlp")), "hidden=256-128,dropout=0");
  EXPECT_EQ(SizesText(DefaultModel("nobody")), "");
  EXPECT_TRUE(ModelReads("vit", "depth"));
  EXPECT_FALSE(ModelReads("mlp", "depth"));
  EXPECT_FALSE(ModelReads("nobody", "depth"));
}

TEST(Catalog, AnUnknownNameKeepsTheStructsSizes) {
  EXPECT_EQ(FindModel("nobody"), nullptr);
  EXPECT_EQ(DefaultModel("nobody").name, "nobody");
  EXPECT_EQ(DefaultModel("nobody").width, ModelSpec().width);
}

}  // namespace
}  // namespace paceline
