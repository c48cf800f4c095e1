// The order to measure something, the same on both ends of the control stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/job/spec/job_spec.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// A neighbour to probe the link to, both ways.
struct LinkTarget {
  std::string name;
  std::string address;  // host:port of its gRPC

  friend bool operator==(const LinkTarget&, const LinkTarget&) = default;
};

// Either layers, a link or files.
struct MeasureOrder {
  int64_t id = 0;  // never used before by this coordinator's process
  // The model, micro-batch, optimizer and threads of this spec.
  std::optional<JobSpec> layers;
  std::string cpu_capability;  // of `layers`; settled, never "auto"
  std::optional<LinkTarget> link;
  std::vector<std::string> files;  // paths to look for
  std::optional<JobSpec> reader;   // of `files`: the job that is to read them
  v1::Inputs inputs = {};          // that it must find

  // An id stands for one measurement: its other fields never change.
  friend bool operator==(const MeasureOrder& a, const MeasureOrder& b) {
    return a.id == b.id;
  }
};

}  // namespace paceline
