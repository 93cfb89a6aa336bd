"""Writes `action_penalties.json.gz`: random groups, and what verl-agent's own code makes of them.

    uv run python tests/golden/make_action_penalties.py CHECKOUT

with a checkout of verl-agent, github.com/langfengQ/verl-agent; what is recorded came of the copies
shatianming5/verl-agent at 3483665 and, for recipe/hgpo, OliverLeeXZ/SERL at 5a2a85b. Its functions
are read from the checkout and called; none of them is kept here. They calculate in float32, so they
are given small binary fractions alone.
"""

import ast
import gzip
import json
import sys
import uuid
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from verl import DataProto

FILE = Path(__file__).parent / "action_penalties.json.gz"
NUM_GROUPS = 2000
NUM_TOKENS = 2
"""Of every prompt and every reply."""
FUNCTIONS = {
    "verl/trainer/ppo/ray_trainer.py": ("apply_invalid_action_penalty",),
    "verl/trainer/ppo/core_algos.py": ("compute_grpo_outcome_advantage",),
    "gigpo/core_gigpo.py": (
        *("to_hashable", "are_similar", "summarize_group_size", "build_step_group"),
        *("episode_norm_reward", "step_norm_reward", "compute_gigpo_outcome_advantage"),
        "compute_step_discounted_returns",
    ),
    "recipe/GraphGPO/core_graph.py": (
        *("nested_defaultdict", "StateCanonicalizer", "ComplexGraph"),
        *("compute_graph_path_returns", "compute_graphgpo_outcome_advantage"),
    ),
    "recipe/hgpo/core_hgpo.py": ("hgpo_advantage_estimate", "compute_hgpo_outcome_advantage"),
}
"""What is called, and what that calls."""
MORE = {"graphgpo": {"episode_advantage_w": 1.0}, "hgpo": {"history_length": 2}}
"""Arguments of one estimator alone."""


def functions(checkout: Path) -> dict[str, Any]:
    """The functions by their names."""
    found: dict[str, Any] = {
        "np": np,
        "torch": torch,
        "uuid": uuid,
        "Counter": Counter,
        "defaultdict": defaultdict,
        "SequenceMatcher": SequenceMatcher,
        "DataProto": DataProto,
        "Dict": dict,
        "List": list,
    }
    for path, names in FUNCTIONS.items():
        module = ast.parse((checkout / path).read_text(encoding="utf-8"))
        kept = [node for node in module.body if getattr(node, "name", "") in names]
        exec(compile(ast.Module(kept, []), path, "exec"), found)
    return found


def drawn(random: Random) -> dict[str, Any]:
    """A group of 2 to 5 episodes of 1 to 6 steps, in half of the groups without a success."""
    succeeds = random.random() < 0.5
    episodes: list[dict[str, Any]] = []
    for _ in range(random.randint(2, 5)):
        length = random.randint(1, 6)
        success = succeeds and random.random() < 0.5
        episodes.append(
            {
                "states": [random.choice("abcd") for _ in range(length)],
                "final": "success" if success else random.choice("abcd"),
                "rewards": [random.choice((0, 0, -0.25)) for _ in range(length)],
                "valid": [random.random() < 0.7 for _ in range(length)],
            }
        )
        episodes[-1]["rewards"][-1] += 10 if success else 0
    return {
        "penalty": random.choice((0.125, 1)),
        "scale_by_std": random.random() < 0.5,
        "episodes": episodes,
    }


def batch_of(group: dict[str, Any]) -> Any:  # noqa: ANN401  verl's types are partly unknown
    """The group as verl-agent has it before advantages: a row for each step."""
    rows = [
        (number, episode, step)
        for number, episode in enumerate(group["episodes"])
        for step in range(len(episode["states"]))
    ]
    ones = torch.ones(len(rows), 2 * NUM_TOKENS, dtype=torch.long)
    scores = torch.zeros(len(rows), NUM_TOKENS)
    scores[:, -1] = torch.tensor([float(sum(episode["rewards"])) for _, episode, _ in rows])
    seen = [[*e["states"][1:], e["final"]] for e in group["episodes"]]
    columns: dict[str, list[Any]] = {
        "uid": ["group"] * len(rows),
        "traj_uid": [f"episode {number}" for number, _, _ in rows],
        "rewards": [episode["rewards"][step] for _, episode, step in rows],
        "episode_rewards": [sum(episode["rewards"]) for _, episode, _ in rows],
        "active_masks": [True] * len(rows),
        "is_action_valid": [episode["valid"][step] for _, episode, step in rows],
        "anchor_obs": [episode["states"][step] for _, episode, step in rows],
        "next_obs": [seen[number][step] for number, _, step in rows],
        "text_actions": ["act"] * len(rows),
    }
    objects = ("uid", "traj_uid", "anchor_obs", "next_obs", "text_actions")
    proto: Any = DataProto
    return proto.from_single_dict(
        {
            "input_ids": ones,
            "prompts": ones[:, :NUM_TOKENS],
            "attention_mask": ones,
            "response_mask": ones[:, NUM_TOKENS:],
            "token_level_scores": scores,
            **{
                name: np.array(values, dtype=object if name in objects else None)
                for name, values in columns.items()
            },
        }
    )


def advantages(group: dict[str, Any], name: str, of: dict[str, Any]) -> list[list[float]]:
    """Of each step of each episode, by one estimator, as the trainers there call it."""
    batch = batch_of(group)
    if name in ("gigpo", "hgpo"):
        batch.batch["step_rewards"] = of["compute_step_discounted_returns"](batch, 0.5)
    if name == "graphgpo":
        graphs = of["ComplexGraph"].from_data(batch)
        of["ComplexGraph"].Calculate_all_shortest_path(graphs)
        batch.batch["step_rewards"] = of["compute_graph_path_returns"](batch, graphs, 0.5, False)
    batch, _ = of["apply_invalid_action_penalty"](batch, group["penalty"])
    columns = batch.non_tensor_batch
    given: dict[str, Any] = {
        "token_level_rewards": batch.batch["token_level_scores"],
        "response_mask": batch.batch["response_mask"],
        "index": columns["uid"],
        "traj_index": columns["traj_uid"],
    }
    if name == "grpo":
        found, _ = of["compute_grpo_outcome_advantage"](
            **given, norm_adv_by_std_in_grpo=group["scale_by_std"]
        )
    else:
        found, _ = of[f"compute_{name}_outcome_advantage"](
            **given,
            step_rewards=batch.batch["step_rewards"],
            anchor_obs=columns["anchor_obs"],
            mode="mean_std_norm" if group["scale_by_std"] else "mean_norm",
            **MORE.get(name, {}),
        )
    steps = iter([float(f"{value:.7g}") for value in found[:, 0].tolist()])
    return [[next(steps) for _ in episode["states"]] for episode in group["episodes"]]


def main() -> None:
    """Write the file."""
    of = functions(Path(sys.argv[1]))
    random = Random(20261126)
    groups = [drawn(random) for _ in range(NUM_GROUPS)]
    for group in groups:
        group["advantages"] = {
            name: advantages(group, name, of) for name in ("grpo", "gigpo", "graphgpo", "hgpo")
        }
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        file.write(json.dumps(groups, separators=(",", ":")).encode())
    sys.stdout.write(f"{FILE.name}: {len(groups)} groups, {FILE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
