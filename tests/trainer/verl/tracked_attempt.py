"""One attempt at a tracked run, in a process of its own: `python tracked_attempt.py ARGUMENTS`.

The arguments are one JSON object: folder, trackers, resumes_after, steps, killed, and seed.
"""

import json
import os
import signal
import sys
from pathlib import Path

from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.offline import stay_offline
from longhaul_trainer.verl.trackers import Trackers

RUN_ID = "20261121-095806-tracked-3fa2"


def main() -> None:
    asked = json.loads(sys.argv[1])
    stay_offline()
    run = RunConfig(
        num_training_steps=9,
        tasks_per_training_step=4,
        seed=asked["seed"],
        trackers=tuple(asked["trackers"]),
    )
    trackers = Trackers(
        run,
        run_id=RUN_ID,
        folder=Path(asked["folder"]),
        resumes_after=asked["resumes_after"],
    )
    for step in asked["steps"]:
        values = {"episodes/mean_return": step + asked["seed"] / 10, "rows/count": 12.0}
        trackers.log(step, values)
    if asked["killed"]:
        sys.stdin.read()  # until whoever started this has it end
        os.kill(os.getpid(), signal.SIGKILL)
    trackers.finish("finished")


if __name__ == "__main__":
    main()
