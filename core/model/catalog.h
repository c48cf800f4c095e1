// The models there are: what each is unless a job says otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"

namespace paceline {

// Describes the model that `spec` names for samples of shape `input`.
// Errors: InvalidArgument  sizes that are impossible, or do not fit the samples
using DescribeFunction = absl::StatusOr<ModelDescription>(const ModelSpec& spec,
                                                          const Shape& input,
                                                          int32_t classes);

struct CatalogEntry {
  // With the model's own sizes, which a job file may override.
  ModelSpec model;
  // Which of the sizes it reads, as the job file calls them ("depth"), in the
  // order of ModelSpec.  The others change nothing.
  std::vector<std::string> keys;
  // The model is made for data of this shape and so many classes.  Data sets
  // that have no shape of their own take these.
  Shape input;
  int32_t classes = 0;
  DescribeFunction* describe = nullptr;
  // The data set that needs no files and has such samples.
  const char* synthetic = "synthetic";
  int32_t padding = 0;  // the token that it does not look at, where it has one
};

// All but `script`, sorted by name.  Immutable.
const std::vector<CatalogEntry>& ModelCatalog();

// Null when there is no model of that name; knows `script`.
const CatalogEntry* FindModel(const std::string& name);

// The model with its own sizes; with the struct's when nobody knows the name.
ModelSpec DefaultModel(const std::string& name);

// `data` with the name and the sizes of the synthetic data set that `model` can
// be measured on, for samples of the shape and the classes that it has.
DataSpec WithSyntheticData(const ModelSpec& model, DataSpec data);

// Whether `key` ("depth") changes anything in the model of that name.
bool ModelReads(const std::string& name, const std::string& key);

// The sizes that `model` reads: "depth=4,width=64,heads=4,patch=7,dropout=0",
// and what of it trains, unless that is all.  Equal texts, equal models.  Of a
// script, its hash.
std::string SizesText(const ModelSpec& model);

}  // namespace paceline
