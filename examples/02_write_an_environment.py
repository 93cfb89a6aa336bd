"""Check an environment of your own, list its tasks, and see what a guess scores.

The environment is `capitals.py` beside this file: under 30 lines with its task data. A run
trains on it by `environment.id = "mine/Capitals-v0"` and `environment.import_modules =
["capitals"]`. Run: `uv run python examples/02_write_an_environment.py`
"""

from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.baselines import baseline_scores
from longhaul_envs.check import check_environment
from longhaul_envs.sources import environment_source

SPEC = GymEnvironmentSpec(environment_id="mine/Capitals-v0", import_modules=("capitals",))


def main() -> None:
    problems = check_environment(SPEC.environment_id, import_modules=SPEC.import_modules)
    print("problems:", problems or "none")
    source = environment_source(SPEC)
    for split in Split:
        print(f"{split}:", [task.task_id for task in source.tasks(split)])
    tasks, others = source.tasks(Split.TEST), source.tasks(Split.TRAIN)
    for score in baseline_scores(SPEC, tasks, chosen_on=others, horizon=1):
        print(f"{score.policy}: {score.success_rate:.0%} solved")


if __name__ == "__main__":
    main()
