"""Seeds of episodes and steps."""

import hashlib
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.rollout import continuation_seed, episode_seed, retry_seed, step_seed


def test_seeds_are_the_same_on_every_machine() -> None:
    digest = hashlib.blake2b(b"episode/train/1/2/3/4", digest_size=8).hexdigest()
    by_hand = int(digest, 16) // 2**11
    assert episode_seed(1, training_step=2, group_index=3, sample_index=4) == by_hand


def test_no_two_draws_of_a_run_share_a_seed() -> None:
    episodes = [
        episode_seed(
            run, training_step=step, group_index=group, sample_index=sample_index, phase=phase
        )
        for run, step, group, sample_index, phase in product(
            range(2), range(5), range(12), range(12), ("train", "validation")
        )
    ]
    assert len(set(episodes)) == len(episodes)
    steps = [step_seed(seed, step_index=index) for seed in episodes[:50] for index in range(50)]
    assert len(set(steps) | set(episodes)) == len(steps) + len(episodes)


@given(seed=st.integers(0, 2**53 - 1), number=st.integers(0, 1000))
def test_seeds_fit_a_double(seed: int, number: int) -> None:
    for derived in (
        step_seed(seed, step_index=number),
        retry_seed(seed, retry=number),
        continuation_seed(seed, num_tokens=number),
    ):
        assert 0 <= derived < 2**53


def test_the_rest_of_a_reply_is_not_drawn_with_what_drew_its_beginning() -> None:
    assert len({continuation_seed(5, num_tokens=number) for number in range(100)} | {5}) == 101


def test_the_first_try_keeps_its_seed_and_later_ones_do_not() -> None:
    assert retry_seed(5, retry=0) == 5
    assert len({retry_seed(5, retry=retry) for retry in range(10)}) == 10
