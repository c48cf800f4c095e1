// Views as documents (the documented interface of -o json) and as text.
#pragma once

#include <string>
#include <vector>

#include "client/document.h"
#include "client/plot.h"
#include "client/views.h"

namespace paceline {

// Keys in lower snake case.  What is not there yet is null; with_curve adds
// `loss`.  README.md of this folder lists them.
Document ToDocument(const JobView& job, bool with_curve);
Document ToDocument(const WorkerView& worker);
Document ToDocument(const EventView& event);
Document ToDocument(const LogLineView& line);

// For tables.
std::string RenderJobs(const std::vector<JobView>& jobs);  // `job list`
std::string RenderJob(const JobView& job, const PlotOptions& plot);
std::string RenderWorkers(const std::vector<WorkerView>& workers);
std::string RenderWorker(const WorkerView& worker);
std::string RenderEvent(const EventView& event);  // one line
std::string RenderLogLine(const LogLineView& line);

// How an ended (or stopped watching) job stands, in lines that scripts may
// grep: "test accuracy: 0.9012", "weights: PATH", "sha256: HEX".
std::string RenderOutcome(const JobView& job);

}  // namespace paceline
