// The mesh as a stream of updates tells of it, and how `top` shows it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "client/render/console.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// Thread-compatible.
struct MeshView {
  // Takes the next message of a stream in.
  void Merge(const v1::MeshUpdate& update);

  v1::ListWorkersResponse Workers() const;  // by id
  v1::ListJobsResponse Jobs() const;        // newest first

  int64_t unix_ms = 0;  // of the newest update
  std::map<int64_t, v1::Worker> workers;
  std::map<int64_t, v1::Job> jobs;  // with no curve
  // All that there are, by state; not all of them are in `jobs`.
  std::map<std::string, int64_t> job_counts;
  std::deque<v1::JobEvent> events;  // the newest 200, oldest first
};

// A line of a screen, of text that can be printed.
struct ScreenLine {
  std::string text;
  bool bad = false;  // somebody should look
};

// Cuts lines at the size's columns.
//   note  what stands first, in its place
std::vector<ScreenLine> RenderTop(const MeshView& mesh, const std::string& note,
                                  ScreenSize size);

// "12:03:11  job 3  lost  w2 is lost".
std::string RenderMeshEvent(const v1::JobEvent& event);

}  // namespace paceline
