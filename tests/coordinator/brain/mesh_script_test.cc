// Scripts are played and tell what becomes of jobs and workers.
#include "tests/coordinator/brain/mesh_script.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

std::string Play(const std::string& script) {
  return MeshScript().Play(script);
}

TEST(MeshScripts, OfGroups) { ExpectAnswers("coordinator/groups", Play); }

TEST(MeshScripts, OfPipelines) { ExpectAnswers("coordinator/pipelines", Play); }

TEST(MeshScripts, OfMoves) { ExpectAnswers("coordinator/moves", Play); }

TEST(MeshScripts, OfCheckpoints) {
  ExpectAnswers("coordinator/checkpoints", Play);
}

TEST(MeshScripts, OfInference) { ExpectAnswers("coordinator/inference", Play); }

TEST(MeshScripts, OfMeasuring) { ExpectAnswers("coordinator/measuring", Play); }

TEST(MeshScripts, OfTrouble) { ExpectAnswers("coordinator/trouble", Play); }

}  // namespace
}  // namespace paceline
