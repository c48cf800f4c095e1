// What layers keep, and byte counts for people.  Pure.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/description.h"
#include "core/model/precision.h"

namespace paceline {

// "512 B", "1.5 GiB": the largest binary unit that gives at least 1, one
// decimal, rounded down so that a bound never reads larger than it is.
// bytes >= 0.
std::string BytesText(int64_t bytes);

// What comes into a layer of a model, a sample.
int64_t InputBytes(const ModelDescription& model, int layer);

// What a layer keeps from forward to backward, its input included, a sample.
int64_t KeptBytes(const ModelDescription& model, int layer,
                  Precision precision);

}  // namespace paceline
