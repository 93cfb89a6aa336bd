"""The learning benchmark: a run of its plan, and its update, which reads a shared prompt once."""

import random
from collections.abc import Sequence
from pathlib import Path

import learning
import learning_policy
import pytest
import torch
from learning_policy import WORDS
from learning_run import Row, add_gradient
from transformers import LlamaConfig, LlamaForCausalLM

from longhaul_core.audit import audit_run
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.losses import ActionTokens, ppo_loss

LOSS = LossConfig()


def make_rows(*, num_prompts: int, num_rows: int) -> list[Row]:
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(len(WORDS)) for _ in range(8)) for _ in range(num_prompts)]
    return [
        Row(
            prompt=draw.choice(prompts),
            token=draw.randrange(len(WORDS)),
            old_logprob=-2.7 + draw.gauss(0, 0.3),
            advantage=draw.gauss(0, 1),
            weight=draw.random() / num_rows,
            training_step=1,
            group_index=0,
            sample_index=0,
            step_index=place,
        )
        for place in range(num_rows)
    ]


def make_model() -> LlamaForCausalLM:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]: torch's own
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )


def gradients(model: LlamaForCausalLM) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def add_gradient_row_by_row(model: LlamaForCausalLM, rows: Sequence[Row]) -> None:
    for row in rows:
        logits_V = model(input_ids=torch.tensor([row.prompt])).logits[0, -1]
        tokens = ActionTokens(
            policy_logprobs_BT=logits_V.log_softmax(-1)[row.token].reshape(1, 1),
            old_logprobs_BT=torch.tensor([[row.old_logprob]]),
            advantages_BT=torch.tensor([[row.advantage]]),
            loss_weights_BT=torch.tensor([[row.weight]]),
            actions_BT=torch.zeros(1, 1, dtype=torch.int64),
        )
        ppo_loss(
            tokens, clip_low=LOSS.clip_low, clip_high=LOSS.clip_high, dual_clip=LOSS.dual_clip
        ).loss.backward()  # pyright: ignore[reportUnknownMemberType]: torch's own


@pytest.mark.parametrize("num_prompts", [1, 5, 40])
def test_reading_a_shared_prompt_once_gives_the_gradient_of_reading_every_row(
    num_prompts: int,
) -> None:
    once, each = make_model(), make_model()
    rows = make_rows(num_prompts=num_prompts, num_rows=30)
    add_gradient(once, rows, LOSS, prompts_at_once=3)
    add_gradient_row_by_row(each, rows)
    torch.testing.assert_close(gradients(once), gradients(each), rtol=1e-4, atol=1e-6)


def test_a_run_of_the_plan_is_trained_scored_and_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_policy, "WARM_START_UPDATES", 2)
    for constant in ("WARMUP_TRAINING_STEPS", "VALIDATE_EVERY"):
        monkeypatch.setattr(learning, constant, 1)
    monkeypatch.setattr(learning, "NUM_PANEL_TASKS", 4)
    learning_policy.warm_started(tmp_path)
    trial = learning.Trial("gigpo", 1e-3, seed=0, tuning=False, num_training_steps=1)

    learning.train(tmp_path, trial)

    run = learning.finished(tmp_path)[trial.name]
    assert sorted(learning.read_curve(run, trial).success) == [0, 1]
    with learning.opened(run.store) as session:
        report = audit_run(session, run.run_id)
    assert report.num_findings == 0
    assert report.num_steps > 8
