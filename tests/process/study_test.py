"""A study that is killed, and a worker under it: no trial is lost or doubled."""

import json

from mesh_case import SMALL, MeshCase

STUDY = """
name: seeds
base: job.yaml
vary:
  train.optimizer.name: [sgd, adamw]
  train.batch: [16, 32]
measure: [loss, step_time]
exclusive: true
"""


class Study(MeshCase):
    light = True

    def run_study(self, file):
        return json.loads(self.good(self.client("study", file, "-o",
                                                "json")).stdout)

    def test_goes_on_after_it_and_a_worker_were_killed(self):
        self.start(3)
        self.write(SMALL.replace("steps: 160", "steps: 800"))
        file = self.write(STUDY, "study.yaml")
        study = self.background("study", file)
        self.soon(lambda: len(self.jobs()) > 1, study)
        # The worker first: the job ends by itself.
        self.await_step_after(0, "2")
        self.kill(self.job("2")["workers"][0]["name"])
        study.kill()
        study.wait()

        document = self.run_study(file)

        jobs = self.jobs()
        self.assertEqual(sorted(each["name"] for each in jobs),
                         [f"seeds/name={name} batch={batch}"
                          for name in ("adamw", "sgd") for batch in (16, 32)])
        self.assertEqual({each["state"] for each in jobs}, {"succeeded"})
        self.assertEqual([trial["jobs"][0]["job"]
                          for trial in document["trials"]], [1, 2, 3, 4])
        for trial in document["trials"]:
            for measure in ("loss", "step_time"):
                self.assertGreater(trial["values"][measure]["median"], 0)
        self.assertEqual(self.job("2")["recovery"]["recoveries"], 1)

        self.assertEqual(self.run_study(file), document, "once more")
        self.assertEqual(len(self.jobs()), 4)
