// The results of a study: a table and a plot for a terminal, a document, and
// the sections of a report.  Pure.
#pragma once

#include <string>
#include <vector>

#include "client/render/sections.h"
#include "client/study/study.h"
#include "client/values/document.h"

namespace paceline {

// A study, its trials and their jobs.  Values come from the jobs' documents.
struct StudyResults {
  const Study& study;
  const std::vector<Trial>& trials;
  const std::vector<TrialJob>& jobs;
};

// How a terminal shows them: a row a trial, then the first measure as a plot.
std::string RenderStudy(const StudyResults& results, bool unicode);

// README.md of client/ lists the keys.
Document StudyDocument(const StudyResults& results);

// plain: numbers without units, for programs; the spread in columns of its own.
Report StudyReport(const StudyResults& results, bool plain);

// Each trial from its least to its greatest value, with its median, on one
// axis; empty where no trial has a value.
struct PlottedSpread {
  std::string label = {};
  ValueSpread spread = {};
};
std::string PlotSpreads(const std::string& title,
                        const std::vector<PlottedSpread>& spreads, Unit unit,
                        bool unicode);

}  // namespace paceline
