"""A person plays an environment; the episode is stored, and found, like any other."""

from collections.abc import Sequence

import streamlit as st

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError, LonghaulError
from longhaul_core.rollout import Branch
from longhaul_core.types import Split, Task
from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, live
from longhaul_viewer.components.blocks import Badge, Fact, Link
from longhaul_viewer.components.play_view import Move, play_view, seen
from longhaul_viewer.data import play as play_data
from longhaul_viewer.play.table import Choice, Sitting

SITTING = "play_sitting"
SERVER, OPTIONS = "play_server", "play_options"
MOST_STEPS, DEFAULT_STEPS = 1000, 50
FIRST_SECONDS, STEP_SECONDS, LOOK_SECONDS = 2.0, 20.0, 2.0
"""How long the first observation and what follows an action are waited for before the page is
drawn without them, and how often it looks again."""


def page() -> None:
    """An episode, if the address names a sitting; else the choice of one."""
    if not play_data.can_play():
        blocks.html(
            blocks.title("Play"),
            blocks.note("This viewer was started with --read-only: nobody plays here."),
        )
        return
    sitting_id, episode_id = links.parameter("sitting"), links.parameter("episode")
    if sitting_id is None and episode_id is not None:
        from_step(episode_id, links.whole_number("step"))
        return
    if sitting_id is None:
        blocks.html(blocks.title("Play"))
        choose()
        return
    st.session_state[SITTING] = sitting_id
    try:
        sitting = play_data.table().sitting(sitting_id)
    except LookupError as error:
        blocks.html(
            blocks.title("Play"),
            blocks.note(str(error)),
            blocks.button(Link("Play another", links.address_here(links.PLAY, sitting=None))),
        )
        return
    playing(sitting)


def choose() -> None:
    """Which environment, which task, how many steps."""
    go_on()
    blocks.html(
        blocks.note(
            "Play an environment as a model would meet it. The episode is stored in a run of its "
            "own, and is in no training and no curve."
        )
    )
    left, right = st.columns([2, 3], gap="large")
    with left:
        chosen = environment()
        if chosen is None:
            return
        try:
            with st.spinner("Asking the environment …"):
                description = play_data.described(chosen)
            task = task_of(chosen)
        except LonghaulError as error:
            blocks.html(blocks.alert(f"{chosen.environment_id} cannot be played here: {error}"))
            return
        steps = controls.number(
            "Most steps",
            "steps",
            whole=True,
            hint=str(DEFAULT_STEPS),
            help_text=f"1 to {MOST_STEPS}",
        )
        horizon = DEFAULT_STEPS if steps is None else int(steps)
        if not 1 <= horizon <= MOST_STEPS:
            blocks.html(blocks.alert(f"the most steps must be 1 to {MOST_STEPS}, got {horizon}"))
            return
        if task is not None and st.button("Play", type="primary", width="stretch"):
            begin(chosen, task, horizon)
    with right:
        about(description, task)


def from_step(episode_id: str, step_index: int) -> None:
    """A stored episode that the reader can go on with, from one of its steps."""
    back = Link("Replay", links.address(links.REPLAY, episode=episode_id, step=step_index))
    blocks.html(blocks.trail([back]), blocks.title(f"Play on from step {step_index}"))
    try:
        with st.spinner("Asking the environment …"):
            chosen, branch = play_data.from_step(episode_id, step_index)
    except LonghaulError as error:
        blocks.html(blocks.alert(str(error)))
        return
    recorded, before = branch.recorded, branch.stored.observation
    blocks.html(
        blocks.note(
            "The environment starts anew, the actions before this step are played again, and each "
            "answer must equal the stored one. Then you act. The episode is stored in a run of its "
            "own, and is in no training and no curve."
        ),
        blocks.facts(
            [
                Fact("environment", f"{chosen.environment_id}, version {recorded.task.version}"),
                Fact("task", recorded.task.task_id),
                Fact("steps left", str(recorded.horizon - step_index)),
                Fact("stored action", branch.stored.action or "none could be read"),
            ]
        ),
        blocks.label("Observation"),
        blocks.text_block(before.text),
    )
    if st.button("Play on", type="primary"):
        begin(chosen, recorded.task, recorded.horizon, branch=branch)


def go_on() -> None:
    """A way back to what this tab was playing."""
    try:
        sitting_id = str(st.session_state[SITTING])
        state = play_data.table().state(sitting_id)
    except LookupError:
        return
    if state.stage != "over":
        blocks.html(
            blocks.button(
                Link("Go on with the open episode", links.address(links.PLAY, sitting=sitting_id))
            )
        )


def environment() -> Choice | None:
    """What is to be played; None until it is chosen."""
    address = str(st.session_state.get(SERVER, "")).strip()
    name = of_server(address) if address else of_this_machine()
    with st.expander("Options, and environments on a server"):
        if not address:
            st.text_area(
                "Options of the environment",
                key=OPTIONS,
                placeholder='observation = "image"',
                help="As in a run's file, a line each",
            )
        st.text_input(
            "Environment server",
            key=SERVER,
            placeholder="http://127.0.0.1:8300",
            help="Of `trainer serve-env`; empty for environments of this machine",
        )
    if name is None:
        return None
    try:
        if address:
            options = play_data.served(address)[name]
            return play_data.choice(name, options=options, server=address)
        written = str(st.session_state.get(OPTIONS, ""))
        return play_data.choice(name, options=play_data.options_in(written))
    except ConfigError as error:
        blocks.html(blocks.alert(str(error)))
        return None


def of_this_machine() -> str | None:
    """One of the registered environments."""
    return controls.choice(
        "Environment", "environment", play_data.environments(), every="choose one"
    )


def of_server(address: str) -> str | None:
    """One of a server's environments."""
    try:
        return st.selectbox("Environment", list(play_data.served(address)))
    except ConfigError as error:
        blocks.html(blocks.alert(str(error)))
        return None


def task_of(chosen: Choice) -> Task | None:
    """The task that the address names: by its place in a split, or drawn by a seed."""
    of, place, seed = st.columns(3)
    with of:
        split = controls.choice(
            "Split", "split", [each.value for each in Split], default=Split.TRAIN.value
        )
    with st.spinner("Listing the tasks …"):
        tasks = play_data.tasks(chosen, Split(split or Split.TRAIN.value))
    with place:
        number = controls.number(
            "Task", "task", whole=True, hint="0", help_text=f"0 to {len(tasks) - 1:,}"
        )
    with seed:
        drawn_by = controls.number(
            "or a seed",
            "seed",
            whole=True,
            hint="none",
            help_text="Draws a task of the split, always the same",
        )
    at = int(number or 0) if drawn_by is None else play_data.drawn(tasks, int(drawn_by))
    if not 0 <= at < len(tasks):
        blocks.html(blocks.alert(f"the split has the tasks 0 to {len(tasks) - 1:,}, got {at}"))
        return None
    return tasks[at]


def about(description: EnvironmentDescription, task: Task | None) -> None:
    """What one is going to play."""
    facts = [Fact("environment", f"{description.id}, version {description.version}")]
    if description.actions:
        facts.append(Fact("an action is", description.actions.replace("`", "")))
    if task is not None:
        facts += [Fact("task", task.task_id), Fact("goal", task.goal or "in the observation")]
    blocks.html(blocks.label(description.summary or description.id), blocks.facts(facts))
    if description.prompt is not None:
        blocks.html(
            blocks.label("What a model is told"), blocks.text_block(description.prompt.system)
        )


def begin(chosen: Choice, task: Task, horizon: int, *, branch: Branch | None = None) -> None:
    """Open the environment, and give up what this tab was playing."""
    before = str(st.session_state.get(SITTING, ""))
    with st.spinner("Starting the environment …"):
        sitting_id = play_data.table().begin(
            chosen, task, horizon=horizon, sitting_id=before, branch=branch
        )
    st.session_state[SITTING] = sitting_id
    links.set_parameters(sitting=sitting_id, episode=None, step=None)
    st.rerun()


def playing(sitting: Sitting) -> None:
    """The open episode, and what can come after it."""
    play_data.table().state(sitting.id, wait_seconds=FIRST_SECONDS)
    with st.container(key="playing"):
        live.follow(episode, seconds=LOOK_SECONDS)(sitting.id)


def episode(sitting_id: str) -> None:
    """The episode as it stands now."""
    table = play_data.table()
    sitting = table.sitting(sitting_id)
    state, game = table.state(sitting_id), sitting.game
    task, branch = game.spec.task, sitting.branch
    blocks.html(
        blocks.trail(
            [
                Link("Play", links.address_here(links.PLAY, sitting=None)),
                *_origin(branch),
                Link(task.task_id),
            ]
        ),
        blocks.title(task.goal or task.task_id),
        blocks.badges(
            [
                Badge(f"{task.environment} · {task.task_id}"),
                Badge(f"{task.split.value} split"),
                *([Badge(f"played by {sitting.choice.server}")] if sitting.choice.server else []),
                *([Badge(f"from step {branch.step_index} on")] if branch else []),
            ]
        ),
    )

    if state.stage == "over":
        after(sitting)

    def move(wanted: Move) -> None:
        table.act(sitting_id, episode=wanted.episode, step=wanted.step, action=wanted.action)
        table.state(sitting_id, wait_seconds=STEP_SECONDS)

    def leave() -> None:
        table.leave(sitting_id)
        table.state(sitting_id, wait_seconds=STEP_SECONDS)

    play_view(
        seen(
            state,
            environment=task.environment,
            number=game.number,
            horizon=sitting.horizon,
        ),
        key=f"play-{sitting_id}",
        on_move=move,
        on_leave=leave,
    )


def _origin(branch: Branch | None) -> list[Link]:
    if branch is None:
        return []
    at = links.address(links.REPLAY, episode=branch.episode_id, step=branch.step_index)
    return [Link("The stored episode", at)]


def after(sitting: Sitting) -> None:
    """Play on: the same, the next, or something else."""
    branch, tasks = sitting.branch, sitting.source.tasks(sitting.game.spec.task.split)
    again, following, elsewhere = st.columns([1, 1, 2], vertical_alignment="center")
    with again:
        if st.button("The same step again" if branch else "The same task again", width="stretch"):
            begin(sitting.choice, sitting.game.spec.task, sitting.horizon, branch=branch)
    with following:
        if st.button("The next task", width="stretch", type="primary"):
            begin(sitting.choice, next_task(tasks, sitting.game.spec.task), sitting.horizon)
    with elsewhere:
        episodes = links.address(links.EPISODES, run=sitting.run_id)
        blocks.html(
            blocks.trail(
                [
                    Link("Another environment", links.address(links.PLAY)),
                    Link("Episodes of this run", episodes),
                ]
            )
        )


def next_task(tasks: Sequence[Task], task: Task) -> Task:
    """The one after `task`; the first after the last, and after one that is not listed."""
    at = next((place for place, each in enumerate(tasks) if each.task_id == task.task_id), -1)
    return tasks[(at + 1) % len(tasks)]


page()
