#include "core/job/job_model.h"

#include <memory>
#include <utility>

#include "core/base/errors.h"
#include "core/job/made_with.h"
#include "core/model/stage_drop.h"

namespace paceline {

ModelSpec TeacherOf(const JobSpec& spec) {
  ModelSpec teacher = BareModel(spec.model);
  teacher.sizes.clear();
  teacher.weights = spec.train.distill.weights;
  return teacher;
}

absl::StatusOr<ModelDescription> DescribeModel(const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(
      ModelDescription described,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  PACELINE_RETURN_IF_ERROR(SkipBlocksOf(spec, described));
  described.made_with = MadeWithOf(spec, described);
  if (!spec.train.distill.weights.empty() && !IsInference(spec)) {
    JobSpec of_teacher = spec;
    of_teacher.model = TeacherOf(spec);
    of_teacher.train.distill = {};
    of_teacher.faults.clear();
    PACELINE_ASSIGN_OR_RETURN(ModelDescription teacher,
                              DescribeModel(of_teacher));
    described.teacher =
        std::make_shared<const ModelDescription>(std::move(teacher));
  }
  return described;
}

}  // namespace paceline
