"""Tests for `longhaul_trainer.verl.rows`, through verl's own post-processing."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.store.packing import content_hash
from longhaul_core.types import CreditedBy, Message, Picture
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.pictures import PictureReader, load_picture_reader
from longhaul_trainer.training.merging import metadata_of
from longhaul_trainer.training.step_metadata import (
    METADATA,
    CallSpan,
    GroupName,
    RowKey,
    StepMetadata,
    read_metadata,
)
from pictures import png
from steps import sampled_of, with_call
from store_samples import make_trajectory
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

REWARDS = (0.25, -1.0, 2.0)


def rows_of_episode(updates: int = 2, **metadata: Any) -> list[Any]:  # noqa: ANN401
    from longhaul_trainer.verl.rows import to_rows

    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    return to_rows(
        trajectory,
        metadata=metadata_of(trajectory, group=GroupName(3, 5), retry=1, **metadata),
        training_step_of=lambda version: version // updates,
        form="step",
    )


def post_processed(
    rows: list[Any], monkeypatch: pytest.MonkeyPatch, *, validate: bool = False
) -> dict[str, Any]:
    """What verl's worker hands to the queue of an episode's rows."""
    import transfer_queue
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    put: dict[str, Any] = {}

    async def keep(**arguments: Any) -> None:  # noqa: ANN401  whatever verl hands to the queue
        put.update(arguments)

    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", keep)  # verl's door to the network
    actor_class: Any = AgentLoopWorkerTQ
    worker_class = actor_class.__ray_metadata__.modified_class
    worker = worker_class.__new__(worker_class)  # its constructor wants a cluster
    worker.processor = None
    worker.distillation_enabled = worker.stream_teacher_with_rollout = False
    worker.reward_loop_worker_handles = None
    asyncio.run(
        worker._agent_loop_postprocess(
            rows,
            validate,
            uid="train-3-5",
            session_id=3,
            global_steps=3,
            raw_prompt="goal",
        )
    )
    return put


def test_there_is_a_row_for_each_call_with_the_tokens_that_were_read_and_written() -> None:
    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    rows = rows_of_episode()

    assert len(rows) == len(trajectory.steps)
    for row, step in zip(rows, trajectory.steps, strict=True):
        tokens = sampled_of(step)
        assert tuple(row.prompt_ids) == tokens.prompt_tokens
        assert tuple(row.response_ids) == tokens.action_tokens
        assert tuple(row.response_logprobs) == tokens.behavior_logprobs
        assert row.response_mask == [1] * len(tokens.action_tokens)


def test_what_is_known_of_the_episode_travels_with_its_first_row_alone() -> None:
    trajectory = make_trajectory(rewards=REWARDS, sample_index=3)
    first, *others = read_metadata([row.extra_fields for row in rows_of_episode()])

    assert first.episode is not None
    assert [row.episode for row in others] == [None, None]
    assert (first.episode.environment, first.episode.task_id) == (
        trajectory.task.environment,
        trajectory.task.task_id,
    )
    assert (first.episode.horizon, first.episode.episode_return) == (50, 1.25)
    assert (first.episode.success, first.episode.truncated) == (True, False)
    step, tokens = trajectory.steps[1], sampled_of(trajectory.steps[1])
    assert first.episode.steps[1] == StepMetadata(
        reward=-1.0,
        action_valid=step.action_valid,
        anchor=content_hash(step.observation.anchor),
        trained_calls=(0,),
        prompt_tokens=len(tokens.prompt_tokens),
        action_tokens=len(tokens.action_tokens),
        cached_tokens=step.calls[0].num_cached_tokens,
        agents=("",),
    )
    assert first.episode.final_anchor == content_hash(trajectory.final_observation.anchor)


def test_each_row_says_which_calls_are_in_it() -> None:
    tokens = sampled_of(make_trajectory(rewards=REWARDS, sample_index=3).steps[1])
    row = read_metadata([row.extra_fields for row in rows_of_episode()])[1]

    place = (row.training_step, row.group_index, row.sample_index, row.retry)
    assert place == (3, 5, 3, 1)
    assert row.spans == (
        CallSpan(
            step=1,
            call=0,
            valued=True,
            start=0,
            prompt_tokens=len(tokens.prompt_tokens),
            action_tokens=len(tokens.action_tokens),
            policy_version=7,
            credit_share=1.0,
            credited_by=CreditedBy.STEP,
            purpose="act",
            split_reason="one_row_per_step",
        ),
    )


def test_the_text_of_an_anchor_travels_only_where_texts_are_compared() -> None:
    anchor = make_trajectory(rewards=REWARDS, sample_index=3).steps[1].observation.anchor
    hashes = rows_of_episode()[0].extra_fields[METADATA]
    texts = rows_of_episode(anchor_texts=True)[0].extra_fields[METADATA]

    assert anchor.encode() not in hashes
    assert anchor.encode() in texts


def test_an_episode_without_a_trained_call_is_refused() -> None:
    from longhaul_trainer.verl.rows import to_rows

    trajectory = make_trajectory(rewards=(1.0,))
    nothing_trained = replace(
        trajectory, steps=tuple(with_call(step, trained=False) for step in trajectory.steps)
    )

    with pytest.raises(ValueError, match=r"no call of the episode of task .* is trained"):
        to_rows(
            nothing_trained,
            metadata=metadata_of(nothing_trained, group=GroupName(3, 5), retry=0),
            training_step_of=lambda version: version,
            form="step",
        )


def test_an_episode_of_validation_without_a_trained_call_goes_through_verls_post_processing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from longhaul_trainer.verl.rows import to_rows

    trajectory = make_trajectory(rewards=REWARDS)
    nothing_trained = replace(
        trajectory, steps=tuple(with_call(step, trained=False) for step in trajectory.steps)
    )
    rows = to_rows(
        nothing_trained,
        metadata=metadata_of(nothing_trained, group=GroupName(3, 5), retry=0),
        training_step_of=lambda version: version,
        form="step",
        trains=False,
    )

    put = post_processed(rows, monkeypatch, validate=True)

    assert put["partition_id"] == "val"
    (beside,) = read_metadata(put["fields"].pop("extra_fields").tolist())
    assert beside.episode is not None
    assert beside.episode.episode_return == sum(REWARDS)
    assert put["fields"]["loss_mask"].tolist() == [[0]]


@pytest.mark.parametrize(("updates", "training_step"), [(1, 7), (2, 3), (7, 1)])
def test_verl_gets_policy_versions_in_training_steps(updates: int, training_step: int) -> None:
    for row in rows_of_episode(updates):  # sampled by version 7, counted in optimizer steps
        assert row.extra_fields["min_global_steps"] == training_step
        assert row.extra_fields["max_global_steps"] == training_step


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        ("train-12-3_4_5", RowKey("train-12-3", 4, 5)),
        ("validation-0-63_0_49", RowKey("validation-0-63", 0, 49)),
        ("pad0a1b2c_2_0", RowKey("pad0a1b2c", 2, 0)),
    ],
)
def test_keys_are_read_as_verl_writes_them(key: str, parsed: RowKey) -> None:
    assert RowKey.parse(key) == parsed


@pytest.mark.parametrize("key", ["train-1-2", "train_1_2_3", "a_b_c"])
def test_a_key_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RowKey.parse(key)


def test_each_step_keeps_its_reward_through_verls_post_processing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verl gives every row of a session the last row's reward; ours travel beside it."""
    put = post_processed(rows_of_episode(), monkeypatch)

    keys = [RowKey.parse(key) for key in put["keys"]]
    assert keys == [RowKey("train-3-5", 3, step) for step in range(3)]
    fields = put["fields"]
    first, *_ = read_metadata(fields.pop("extra_fields").tolist())
    assert first.episode is not None
    assert tuple(step.reward for step in first.episode.steps) == REWARDS
    assert {float(row.sum()) for row in fields["rm_scores"].unbind(0)} == {1.25}


def test_a_row_carries_the_pictures_of_its_prompt_where_the_model_reads_them(
    tmp_path: Path,
) -> None:
    from longhaul_trainer.verl.rows import to_rows

    folder = prepare_model("tiny-vision", tmp_path)
    placeholder = json.loads((folder / "config.json").read_text())["image_token_id"]
    reader = load_picture_reader(folder)
    assert reader is not None
    red, blue = (Picture.of(png(colour)) for colour in ("red", "blue"))
    trajectory = make_trajectory(rewards=REWARDS)
    shown = [
        replace(step, calls=(replace(step.calls[0], messages=messages),))
        for step, messages in zip(
            trajectory.steps,
            (
                (Message(role="user", content=("Where?", red)),),
                (Message(role="user", content="Where?"),),
                (
                    Message(role="user", content=("Where?", blue)),
                    Message(role="user", content=(red, "And now?")),
                ),
            ),
            strict=True,
        )
    ]
    trajectory = replace(
        trajectory,
        steps=tuple(shown),
        final_prompt_tokens=(5, 6, *reader.expanded([placeholder], [blue]), 7),
        final_prompt_pictures=(red, blue),
    )

    def pictures(reads: PictureReader | None) -> list[Any]:
        rows = to_rows(
            trajectory,
            metadata=metadata_of(trajectory, group=GroupName(0, 0), retry=0),
            training_step_of=lambda version: version,
            form="step",
            pictures=reads,
        )
        return [row.multi_modal_data for row in rows]

    assert pictures(None) == [None] * 4
    seen_red, seen_blue = reader.image(red), reader.image(blue)
    assert pictures(reader) == [
        {"images": [seen_red]},
        None,
        {"images": [seen_blue, seen_red]},
        {"images": [seen_blue]},  # the final prompt, which lost its beginning
    ]
