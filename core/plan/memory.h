// Counts the bytes that layers keep and that a member of a round group needs,
// and writes byte counts for people.  Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/model/precision.h"
#include "core/plan/problem.h"

namespace paceline {

// A number of bytes, at least 0.  Sums and products that do not fit are
// INT64_MAX: a hostile spec must not wrap one around into a number that fits.
struct Bytes {
  // Implicit: formulas mix both.
  Bytes(int64_t count = 0) : count(count) {}

  friend Bytes operator+(Bytes a, Bytes b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.count, b.count, &sum) ? kMost : sum;
  }
  friend Bytes operator*(Bytes a, Bytes b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a.count, b.count, &product) ? kMost : product;
  }
  Bytes& operator+=(Bytes other) { return *this = *this + other; }
  friend auto operator<=>(Bytes, Bytes) = default;

  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t count;
};

// "512 B", "1.5 GiB": the largest binary unit that gives at least 1, one
// decimal, rounded down so that a bound never reads larger than it is.
// bytes >= 0.
std::string BytesText(int64_t bytes);
// The same of a sum, at most what an int64_t holds.
std::string BytesTextOfSum(double bytes);

// Values of a layer's parameters that steps change.
int64_t TrainableElements(const Layer& layer);
int64_t TrainableElements(const ModelDescription& model);

// Bytes of a layer's weights and buffers, by what training keeps beside them.
struct WeightBytes {
  int64_t own = 0;       // a gradient, and the optimizer's state
  int64_t borrowed = 0;  // a gradient
  int64_t frozen = 0;    // nothing; own ones and borrowed ones
};
WeightBytes WeightBytesOf(const Layer& layer);

// Bytes of a sample's input to a layer of a model.
int64_t InputBytes(const ModelDescription& model, int layer);

// Bytes of a sample that a layer keeps from forward to backward, its input
// included.
int64_t KeptBytes(const ModelDescription& model, int layer,
                  Precision precision);

// A member has these for the rounds alone, beside what it has for training.
struct RoundBytes {
  int64_t gradient = 0;  // all trainable parameters', as they travel
  // Its own part: 0 where the gradient's own memory travels (fp32).
  int64_t part = 0;
  int64_t held = 0;    // the result that it holds until commit
  int64_t kept = 0;    // kKeptResults before it
  int64_t served = 0;  // parts of all members, of the shards it serves at once
  int64_t trial = 0;   // zeno: the weights that it tries a part's step on
};

// members: at least 1.
RoundBytes RoundBytesOf(const JobSpec& spec, const ModelDescription& model,
                        int64_t members);

// Bytes that a member of `members` needs at most: the whole model as one stage,
// with one micro-batch at a time, and what it has for the rounds.  The state
// that a joiner is sent comes and goes: JoinerBytes().  INT64_MAX when the sum
// does not fit.  MakePlan() counts this for a data-parallel spec, of which
// it is asked for each member alone, with pipeline.stages 1.
int64_t MemberBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members);

// Bytes of the order of an epoch of so many samples, and of what says which
// member has them.  Inference takes them as they are.
int64_t OrderBytes(const JobSpec& spec, int64_t train_samples);
// Bytes that each worker which reads the job's data keeps for as long as the
// job runs, as far as it is known how many samples there are: members, and
// those with the first layer.
int64_t DataBytes(const JobSpec& spec);

// Bytes of the state of these layers: parameters, buffers, and what the
// optimizer keeps.
int64_t StateBytes(const JobSpec& spec, const ModelDescription& model,
                   const LayerRange& layers);
// The same of all layers: what a joiner is sent.
int64_t GroupStateBytes(const JobSpec& spec, const ModelDescription& model);

// A joiner needs at most so much to become one of `members`: MemberBytes(), or,
// while it takes the state over, all that stays and the copy beside it.
int64_t JoinerBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members);

// Gives each need a place of its own that holds it: that of its own index where
// it does, else the first one that is free.  Larger needs come first, so that
// all find places if they can at all; else the result is empty.
//   sizes  0: not known, holds anything
std::vector<int> PlacesFor(const std::vector<double>& needs,
                           const std::vector<double>& sizes);

// How many members there will be at least, as the spec says.
int64_t LeastMembers(const AggregationSpec& aggregation);

}  // namespace paceline
