"""A small policy in this process: what it draws, and by which probabilities."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.types import FinishReason, SampledTokens
from longhaul_trainer.models.prepare import prepare_model
from longhaul_trainer.play.small_policy import SmallModel, SmallPolicy, is_small, token_shares
from longhaul_trainer.play.truth.logprobs import reply_logprobs
from longhaul_trainer.rendering.renderer import load_renderer
from trainer.play.truth.conftest import small_model

__all__ = ["small_model"]  # a fixture

LOGITS = np.log([0.5, 0.3, 0.15, 0.05])
PROMPTS = ((5, 9, 31), (40, 41, 42, 43, 44, 45), (7,))


@pytest.fixture(scope="module")
def model(small_model: Path) -> SmallModel:
    return SmallModel(small_model)


def test_shares_by_hand() -> None:
    # 0.05 + 0.15 = 0.2 is the tail that top_p = 0.8 leaves out; 0.5 and 0.3 share the rest.
    assert token_shares(LOGITS, temperature=1.0, top_p=0.79) == pytest.approx([5 / 8, 3 / 8, 0, 0])
    assert token_shares(LOGITS, temperature=1.0, top_p=0.81) == pytest.approx(
        [50 / 95, 30 / 95, 15 / 95, 0]
    )
    # At temperature 1/2 they are squared: 25, 9, 2.25 and 0.25 of 36.5.
    assert token_shares(LOGITS, temperature=0.5, top_p=1.0) == pytest.approx(
        np.array([25, 9, 2.25, 0.25]) / 36.5
    )
    assert token_shares(LOGITS, temperature=1.0, top_p=1e-9).tolist() == [1, 0, 0, 0]


@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=8),
    st.floats(0.1, 3.0),
    st.floats(0.01, 1.0),
)
def test_shares_are_of_the_fewest_likeliest_tokens(
    logits: list[float], temperature: float, top_p: float
) -> None:
    shares = token_shares(np.array(logits), temperature=temperature, top_p=top_p)

    assert shares.sum() == pytest.approx(1.0)
    whole = np.exp(np.array(logits) / temperature - max(logits) / temperature)
    whole /= whole.sum()
    kept = shares > 0.0
    assert whole[kept].min() >= max(whole[~kept], default=0.0)
    assert whole[kept].sum() >= top_p - 1e-9
    assert len(whole[kept]) == 1 or whole[kept].sum() - whole[kept].min() <= top_p + 1e-9
    assert shares[kept] == pytest.approx(whole[kept] / whole[kept].sum())


def drawn(policy: SmallPolicy, asked: list[tuple[tuple[int, ...], Sampling]]) -> list[Completion]:
    async def together() -> list[Completion]:
        return await asyncio.gather(
            *(
                policy.act(Prompt(messages=(), tokens=prompt), sampling, episode_id="one")
                for prompt, sampling in asked
            )
        )

    return asyncio.run(together())


def test_a_reply_is_its_seeds_alone_and_beside_others(model: SmallModel, small_model: Path) -> None:
    policy = SmallPolicy(model, load_renderer(small_model))
    asked = [
        (prompt, Sampling(seed=seed, temperature=0.8, top_p=0.9, max_tokens=1 + seed % 4))
        for seed in range(40)
        for prompt in PROMPTS
    ]

    together = drawn(policy, asked)

    assert [drawn(policy, [one])[0] for one in asked] == together
    assert len({reply.action_tokens for reply in together}) > 20
    ends = [reply.action_tokens[-1] in model.end_tokens for reply in together]
    assert [reply.finish_reason is FinishReason.STOP for reply in together] == ends
    assert {*ends} == {True, False}
    for (_, sampling), reply in zip(asked, together, strict=True):
        if reply.finish_reason is FinishReason.LENGTH:
            assert len(reply.action_tokens) == sampling.max_tokens


def test_logprobs_are_those_by_which_it_was_drawn(model: SmallModel, small_model: Path) -> None:
    policy = SmallPolicy(model, load_renderer(small_model))
    sampling = [Sampling(seed=seed, temperature=0.8, top_p=0.9, max_tokens=3) for seed in range(30)]
    replies = drawn(policy, [(PROMPTS[1], one) for one in sampling])

    calls = [
        SampledTokens(
            prompt_tokens=PROMPTS[1],
            action_tokens=reply.action_tokens,
            behavior_logprobs=reply.behavior_logprobs,
            policy_version=0,
        )
        for reply in replies
    ]

    again = reply_logprobs(model, calls, temperature=0.8, top_p=0.9)
    for call, logprobs in zip(calls, again, strict=True):
        assert logprobs == pytest.approx(call.behavior_logprobs, abs=1e-5)
    hotter = reply_logprobs(model, calls, temperature=1.2, top_p=1.0)
    assert np.abs(np.concatenate(hotter) - np.concatenate(again)).max() > 0.1


def test_a_greedy_reply_is_the_likeliest(model: SmallModel, small_model: Path) -> None:
    policy = SmallPolicy(model, load_renderer(small_model))

    replies = drawn(policy, [(one, Sampling(seed=1, temperature=0.0)) for one in PROMPTS])

    for prompt, reply in zip(PROMPTS, replies, strict=True):
        text = prompt
        for token in reply.action_tokens:
            assert token == int(model.next_logits([text])[0].argmax())
            text = (*text, token)


@pytest.mark.parametrize(
    "sampling", [Sampling(seed=0, stop=("\n",)), Sampling(seed=0, altered=(("top_k", "1"),))]
)
def test_what_only_the_engine_knows_is_refused(
    model: SmallModel, small_model: Path, sampling: Sampling
) -> None:
    policy = SmallPolicy(model, load_renderer(small_model))
    with pytest.raises(ValueError, match=r"drawn by temperature and top_p alone"):
        drawn(policy, [(PROMPTS[0], sampling)])


def test_small_is_a_matter_of_parameters_and_of_text(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_small(small_model)
    assert not is_small(prepare_model("tiny-vision"))
    monkeypatch.setattr("longhaul_trainer.play.small_policy.MOST_PARAMETERS", 10_000)
    assert not is_small(small_model)
