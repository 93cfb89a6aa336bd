"""The record of one episode, kept while somebody plays it.

A session is driven from outside: `run_episode` plays an environment; a gateway answers the calls
of a program that plays by itself, and learns of its reward later; a person acts without a call.
The driver reports what is observed, done and paid, asks for calls, and ends the episode. The
session renders and samples within the episode's limits, and keeps every step and call.

A step of a loop is open from its observation to the next one. A call belongs to the step that is
open when it is requested; so the calls of a memory, which follow the action, belong to the step
just played. The steps of a program, one for each of its calls, may overlap: each has an index.
All methods are called on one event loop; calls may overlap.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from longhaul_core.errors import (
    MAX_MESSAGE_CHARACTERS,
    EnvironmentFailure,
    EpisodeError,
    MemoryFailure,
    RendererFailure,
    TokensSpent,
    attributed_to,
    message_of,
)
from longhaul_core.policy import (
    Completion,
    HostedPolicy,
    Prompt,
    ReadReply,
    Renderer,
    Sampling,
    Shortenable,
    offers,
    with_thoughts,
)
from longhaul_core.rollout.conversations import ChatPrompt, ConversationTree, Rewrite
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.packed_calls import PackedCall
from longhaul_core.rollout.program_calls import (
    as_message,
    drawn,
    finish_reason,
    own_sampling,
    prompt_of,
    read_reply,
    require_tokens,
)
from longhaul_core.rollout.replies import Replies, sampled_tokens
from longhaul_core.rollout.responder import Responder
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.rollout.steps import EpisodeSteps
from longhaul_core.rollout.tool_prompts import ToolPrompts
from longhaul_core.text import well_formed
from longhaul_core.types import (
    Call,
    CreditedBy,
    FailedEpisode,
    Message,
    Observation,
    StopReason,
    Task,
    Trajectory,
    pictures_of,
)

__all__ = ["EpisodeSession"]

logger = logging.getLogger(__name__)

_NOTHING = ChatPrompt(())
"""The messages of a prompt of tokens."""


class EpisodeSession:
    """One episode: `observe`, `complete`, `acted`, `reward`, again and again, then `end`."""

    def __init__(
        self, spec: EpisodeSpec, *, limits: EpisodeLimits, responder: Responder | None = None
    ) -> None:
        """A session in which nothing has been observed yet.

        Args:
            spec: The task, the seed and the place in the group.
            limits: Bounds of the episode.
            responder: Answers `complete`; None where nobody calls it.
        """
        self._spec = spec
        self._limits = limits
        self._responder = responder
        self._steps = EpisodeSteps(horizon=limits.horizon, seed=spec.seed)
        self._sampler = Replies(limits, episode_id=spec.episode_id)
        self._tree = ConversationTree()
        self._streams: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
        """Sampled calls by agent and purpose: what a prompt may go on from."""
        self._tool_prompts: defaultdict[str, ToolPrompts] = defaultdict(self._new_tool_prompts)
        """Of each agent, where actions are calls of tools."""
        self._final_prompt: Prompt | None = None
        self.restart_clock()

    def restart_clock(self) -> None:
        """Let the episode's time begin now: its turn has come."""
        self._started_at, self._clock_at_start = time.time(), time.perf_counter()

    @property
    def task(self) -> Task:
        """What is to be done."""
        return self._spec.task

    @property
    def episode_id(self) -> str:
        """See `EpisodeSpec.episode_id`."""
        return self._spec.episode_id

    @property
    def num_steps(self) -> int:
        """Steps that were acted in."""
        return self._steps.num_acted

    @property
    def acted_steps(self) -> tuple[int, ...]:
        """What names the steps that were acted in, in their order in the record."""
        return self._steps.acted

    @property
    def awaits_action(self) -> bool:
        """Whether a step is open in which nothing was done yet."""
        return self._steps.awaits_action

    @property
    def observation(self) -> Observation:
        """The newest one.

        Raises:
            RuntimeError: Nothing was observed yet.
        """
        return self._steps.newest().observation

    @property
    def rewrites(self) -> Mapping[Rewrite, int]:
        """Calls that a program's changes to what it sent back were looked through in, by kind."""
        return self._tree.rewrites

    def require_readable(self, observation: Observation) -> None:
        """Refuse an observation that is longer than it may be.

        Raises:
            EnvironmentFailure: It is too long; the message names both numbers.
        """
        texts = (
            observation.text,
            *(observation.admissible_actions or ()),
            observation.anchor_state or "",
        )
        length, limit = sum(map(len, texts)), self._limits.max_observation_characters
        if length > limit:
            raise EnvironmentFailure(
                f"observation of {length} characters, its admissible actions and anchor state "
                f"included, exceeds max_observation_characters = {limit}"
            )

    def observe(self, observation: Observation) -> None:
        """Close the open step, and open the next one with what is seen now.

        What is seen may be all that there is, or only what came since the step before.

        Raises:
            EnvironmentFailure: The observation is too long.
            RuntimeError: Nothing was done in the open step; act first, or make one observation of
                both.
        """
        self.require_readable(observation)
        if self.awaits_action:
            index = self._steps.newest().index
            raise RuntimeError(f"step {index} has no action yet, and cannot be followed")
        self._steps.append(observation, within_horizon=False)

    async def complete(  # noqa: PLR0913  what a driver may say of a call
        self,
        prompt: Sequence[Message] | Shortenable,
        *,
        purpose: str = "act",
        agent: str = "",
        trained: bool = True,
        credit_share: float = 1.0,
        credited_by: CreditedBy = CreditedBy.STEP,
        max_reply_tokens: int | None = None,
        responder: Responder | None = None,
    ) -> Call:
        """Have the policy reply, and record the call in the open step.

        A hosted model reads the whole prompt: how long it is, only its server knows. Its call has
        no tokens and is never trained.

        Args:
            prompt: Messages; a `Shortenable` prompt loses as few exchanges as make it fit.
            purpose: What the call is for; the last one to `act` is the one that chose the action.
            agent: Whose call it is, where a program has several agents.
            trained: Whether the reply's tokens are in the loss.
            credit_share: What the advantage is multiplied by for these tokens.
            credited_by: Which step's advantage that is.
            max_reply_tokens: Longest reply, from 1 to the responder's, which None stands for.
            responder: Who replies instead of the session's, e.g. the same at another temperature.

        Raises:
            HorizonReached: The open step would be one more than the horizon allows.
            ValueError: `max_reply_tokens` is out of range.
            TokensSpent: The prompt is longer than it may be, or the episode's tokens do not suffice
                for it and a longest reply.
            PolicyFailure: The policy failed, or gave no usable reply.
            PolicyTimeout: It did not answer within its deadline.
            RendererFailure: The messages cannot be rendered.
            MemoryFailure: Composing the prompt failed.
            RuntimeError: Nothing was observed yet, or the session has no responder.
        """
        step = self._steps.of_loop()
        responder = responder or self._required_responder()
        longest = responder.max_reply_tokens if max_reply_tokens is None else max_reply_tokens
        if not 1 <= longest <= responder.max_reply_tokens:
            raise ValueError(
                f"max_reply_tokens must lie in [1, {responder.max_reply_tokens}], got {longest}"
            )
        place = step.num_asked
        step.num_asked += 1
        sampling = Sampling(
            seed=self._steps.seed(step_index=step.index, call_index=place),
            temperature=responder.temperature,
            top_p=responder.top_p,
            max_tokens=longest,
        )
        tools = responder.tools if purpose == "act" else ()
        tool_prompts = self._tool_prompts[agent] if tools else None
        if offers(responder.policy, HostedPolicy):
            call = await self._hosted(responder.policy, prompt, sampling, tool_prompts=tool_prompts)
            step.calls[place] = call = replace(
                call,
                purpose=purpose,
                agent=agent,
                recalled_steps=_recalled(prompt) if isinstance(prompt, Shortenable) else (),
            )
            return call
        earlier = tuple(self._streams[agent, purpose])
        asked, dropped, recalled = await self._fitted(
            prompt,
            responder.renderer,
            earlier,
            begins_reply=purpose == "act",
            tool_prompts=tool_prompts,
        )
        completion, seconds = await self._sampler.get(responder, asked, sampling)
        read = ReadReply(text=completion.text, tool_calls=completion.tool_calls)
        if tools:
            read = read_reply(
                completion,
                prompt=ChatPrompt(asked.messages, tools),
                renderer=responder.renderer,
                sampling=sampling,
            )
        call = Call(
            messages=asked.messages,
            reply=well_formed(completion.text),
            sampled=sampled_tokens(asked, completion),
            purpose=purpose,
            agent=agent,
            finish_reason=finish_reason(completion, read) if tools else completion.finish_reason,
            tools=tools,
            tool_calls=read.tool_calls,
            trained=trained,
            credit_share=credit_share,
            credited_by=credited_by,
            dropped_exchanges=dropped,
            recalled_steps=recalled,
            num_cached_tokens=completion.num_cached_tokens,
            queue_seconds=completion.queue_seconds,
            generate_seconds=max(0.0, seconds - completion.queue_seconds),
        )
        step.calls[place] = call
        self._streams[agent, purpose].append(call)
        if tool_prompts is not None:
            tool_prompts.add(call, read)
        return call

    def open_step(self, observation: Observation) -> int:
        """Open a step of a program, whose steps may overlap in time.

        Unlike `observe`, it closes nothing: a program that makes two calls at once has two steps
        open. A step whose calls all failed takes no place in the record or the horizon.

        Args:
            observation: What came since the step before, see `new_messages`.

        Returns:
            What names the step in `answer`, `acted`, `reward`, `record` and `describe`, counted
            from 0 in the order of opening. In the record a step comes earlier by as many as were
            left out before it.

        Raises:
            HorizonReached: The episode has as many steps as its horizon allows, open ones included.
            EnvironmentFailure: The observation is too long.
        """
        self.require_readable(observation)
        return self._steps.append(observation, within_horizon=True).index

    def abandon(self, step_index: int) -> None:
        """Let a step of a program take no place, where nothing came of its call.

        `answer` does so by itself. Whoever has the call answered elsewhere does it here. A step in
        which something was recorded or done, or a call is in flight, keeps its place.

        Raises:
            RuntimeError: There is no such step.
        """
        self._steps.abandon(self._steps.at(step_index))

    def reopen(self, step_index: int, observation: Observation) -> None:
        """Let a step of a program, in which nothing was done yet, have another observation.

        Raises:
            HorizonReached: The step took no place any more, and the others have filled the horizon.
            EnvironmentFailure: The observation is too long.
            RuntimeError: There is no such step.
        """
        self.require_readable(observation)
        self._steps.of_program(step_index).observation = observation

    def describe(self, step_index: int, *, anchor_state: str) -> None:
        """Name the state that a step was taken in, at any time before the end.

        Raises:
            EnvironmentFailure: The observation is too long with it.
            RuntimeError: There is no such step.
        """
        step = self._steps.at(step_index)
        described = replace(step.observation, anchor_state=anchor_state)
        self.require_readable(described)
        step.observation = described

    def require_few_messages(self, prompt: ChatPrompt) -> None:
        """Refuse a chat that is too long whatever its messages say, before it is looked through.

        Raises:
            TokensSpent: It has more messages than a prompt may have tokens.
        """
        num_messages, limit = len(prompt.messages), self._limits.max_prompt_tokens
        if num_messages > limit:
            raise TokensSpent(
                f"prompt of {num_messages} messages, each of a token or more, exceeds "
                f"max_prompt_tokens = {limit}"
            )

    def new_messages(self, prompt: ChatPrompt) -> tuple[Message, ...]:
        """The messages that came since the call that a prompt goes on from; all, if from none."""
        return self._tree.new_messages(prompt)

    async def answer(  # noqa: PLR0913  what a program may say of a call
        self,
        prompt: ChatPrompt | tuple[int, ...],
        *,
        step_index: int,
        sampling: Sampling | None,
        agent: str = "",
        purpose: str = "act",
        model: str = "",
        trained: bool = True,
        credit_share: float = 1.0,
        credited_by: CreditedBy = CreditedBy.STEP,
        overridden: tuple[str, ...] = (),
        responder: Responder | None = None,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
        read: Callable[[Completion], ReadReply] | None = None,
    ) -> Call:
        """Have the policy reply to a prompt of a program, and record the call in a step.

        A prompt that goes on from a call of the episode is rendered from that call's tokens. The
        call's `reply` is all that the model wrote, its thoughts and the syntax of its tool calls
        included. Cancelled, it ends the request in the
        engine and leaves nothing. For several choices it is called several times at once.

        Args:
            prompt: Messages and tools, or tokens that no template goes round.
            step_index: Of `open_step`.
            sampling: How to draw the reply; its seed is not read, the session has its own. None
                is as the run says.
            agent: Whose call it is, where a program has several agents.
            purpose: What the call is for.
            model: Which model replies; empty for the policy that is trained.
            trained: Whether the reply's tokens are in the loss.
            credit_share: What the advantage is multiplied by for these tokens.
            credited_by: Which step's advantage that is.
            overridden: What the program asked for and does not get.
            responder: Who replies instead of the session's. Its renderer is a `ChatRenderer`.
            on_tokens: Called with the reply's tokens as they are written; all at once at the end
                where the policy does not stream.
            read: What the program will read of the reply, for one who has read it already from
                `on_tokens`: called once, when all tokens are there. None reads it by the renderer.

        Raises:
            ValueError: `sampling.max_tokens` is not in [1, the responder's `max_reply_tokens`], or
                a prompt of tokens is empty, or has one that is out of range.
            TokensSpent: The prompt is longer than it may be, or the episode's tokens do not suffice
                for it and a longest reply.
            PolicyFailure: The policy failed, or gave no usable reply.
            PolicyTimeout: It did not answer within its deadline.
            RendererFailure: The messages cannot be rendered.
            HorizonReached: The step took no place any more, and the others have filled the horizon.
            RuntimeError: There is no such step, or nobody who replies.
            TypeError: The renderer is no `ChatRenderer`.
        """
        responder = responder or self._required_responder()
        if not isinstance(prompt, ChatPrompt):
            require_tokens(prompt)
        step = self._steps.of_program(step_index)
        with self._steps.call_in_flight(step) as place:
            seed = self._steps.seed(step_index=step_index, call_index=place)
            own = own_sampling(responder, seed=seed)
            chosen = drawn(sampling, own)
            turn = self._tree.begin(prompt, trained=trained, renderer=responder.renderer)
            try:
                asked = await prompt_of(turn, responder.renderer, tree=self._tree)
                completion, seconds = await self._sampler.get(
                    responder, asked, chosen, on_tokens=on_tokens
                )
                reply = (
                    read_reply(
                        completion, prompt=prompt, renderer=responder.renderer, sampling=chosen
                    )
                    if read is None
                    else read(completion)
                )
                shared = self._tree.shared(prompt) if isinstance(prompt, ChatPrompt) else _NOTHING
                call = Call(
                    messages=shared.messages,
                    reply=well_formed(completion.text),
                    sampled=sampled_tokens(asked, completion),
                    purpose=purpose,
                    agent=agent,
                    model=model,
                    finish_reason=finish_reason(completion, reply),
                    tools=shared.tools,
                    tool_calls=reply.tool_calls,
                    conversation=turn.conversation,
                    continuation=turn.continuation,
                    sampling=None if chosen == own else chosen,
                    overridden=overridden,
                    trained=trained,
                    credit_share=credit_share,
                    credited_by=credited_by,
                    num_cached_tokens=completion.num_cached_tokens,
                    queue_seconds=completion.queue_seconds,
                    generate_seconds=max(0.0, seconds - completion.queue_seconds),
                )
                kept = PackedCall(call)
                self._tree.end(turn, kept, reply=as_message(reply, written=call.reply))
            finally:
                self._tree.give_up(turn)
            step.calls[place], step.samplings[place] = kept, chosen
            if turn.difference is not None:
                logger.info(
                    "episode %s, step %d: the prompt goes on from no call, because %s",
                    self.episode_id,
                    step_index,
                    turn.difference,
                )
        return call

    def record(
        self, call: Call, *, step_index: int | None = None, read: ReadReply | None = None
    ) -> Call:
        """Record a call that somebody else answered, e.g. a hosted model.

        Its tokens, if it has any, are not counted: the limit is on what our engine reads.

        Args:
            call: With an index of a step its conversation and continuation are found here.
            step_index: Of `open_step`; None is the open step of a loop.
            read: What the program reads of the reply, where the call's has thoughts in it too;
                None for the call's own.

        Returns:
            The call as it is recorded.

        Raises:
            HorizonReached: The step would be one more than the horizon allows.
            RuntimeError: Nothing was observed yet, or there is no such step.
        """
        if step_index is None:
            step = self._steps.of_loop()
        else:
            step = self._steps.of_program(step_index)
            prompt = ChatPrompt(call.messages, call.tools)
            turn = self._tree.begin(prompt, trained=call.trained, renderer=None)
            shared = self._tree.shared(prompt)
            call = replace(
                call,
                messages=shared.messages,
                tools=shared.tools,
                conversation=turn.conversation,
                continuation=turn.continuation,
            )
            reply = read or ReadReply(text=call.reply, tool_calls=call.tool_calls)
            kept = PackedCall(call)
            self._tree.end(turn, kept, reply=as_message(reply, written=call.reply))
            step.add(kept)
            return call
        step.add(call)
        return call

    def acted(
        self,
        action: str,
        *,
        valid: bool,
        environment_seconds: float = 0.0,
        step_index: int | None = None,
    ) -> None:
        """Report what was done in a step.

        Args:
            action: What the environment was given; the reply itself where nothing is read from it.
            valid: Whether it had the asked-for form and is an admissible action.
            environment_seconds: For how long the environment worked on it.
            step_index: Of `open_step`; None is the open step of a loop.

        Raises:
            HorizonReached: The step would be one more than the horizon allows.
            RuntimeError: Nothing was observed yet, there is no such step, or it has its action.
        """
        steps = self._steps
        step = steps.of_loop() if step_index is None else steps.of_program(step_index)
        steps.act(step, action)
        step.action_valid = valid
        step.environment_seconds = environment_seconds

    def reward(self, value: float, *, step_index: int | None = None) -> None:
        """Add to what a step was paid, at any time before the end.

        Args:
            value: In the environment's own units.
            step_index: Which step, from 0, as `open_step` counts; None is the newest one that was
                acted in.

        Raises:
            ValueError: The value is not finite.
            RuntimeError: The step was not acted in.
        """
        self._steps.pay(value, step_index)

    async def compose_final_prompt(self, prompt: Shortenable) -> None:
        """Keep the prompt that the next step would have: what a critic values of a truncated one.

        It is neither answered nor trained on, so where no shortening makes it fit its end is kept.

        Raises:
            RendererFailure: The messages cannot be rendered.
            MemoryFailure: Composing the prompt failed.
        """
        responder = self._required_responder()
        asked, _, _ = await self._fitted(
            prompt,
            responder.renderer,
            tuple(self._streams["", "act"]),
            begins_reply=True,
            tool_prompts=self._tool_prompts[""] if responder.tools else None,
        )
        self._final_prompt = asked

    async def keep_final_prompt(
        self, prompt: ChatPrompt | tuple[int, ...], *, responder: Responder | None = None
    ) -> None:
        """Keep a prompt of a program that a limit refused: what a critic values of its end.

        The first one stays until `forget_final_prompt`. Where it is too long its end is kept.

        Args:
            prompt: As for `answer`.
            responder: Who would have replied, instead of the session's.

        Raises:
            RendererFailure: The messages cannot be rendered.
        """
        renderer = (responder or self._required_responder()).renderer
        turn = self._tree.begin(prompt, trained=True, renderer=renderer)
        try:
            asked = await prompt_of(turn, renderer, tree=self._tree)
        finally:
            self._tree.give_up(turn)
        if self._final_prompt is None:
            self._final_prompt = asked

    def forget_final_prompt(self) -> None:
        """The episode goes on after all: the program has shortened its prompt."""
        self._final_prompt = None

    def end(self, stop_reason: StopReason, *, success: bool, scored: bool = False) -> Trajectory:
        """The record of an episode that ran to an end.

        The final observation is the newest one. Where none came after the last action, nothing was
        seen, and its text is empty. Calls of a step in which nothing was done, because a limit was
        reached before it acted, are no part of the record.

        Args:
            stop_reason: Why it ended.
            success: Whether the task was solved.
            scored: See `Trajectory.scored`; a scored episode has no final prompt.

        Raises:
            RuntimeError: No step was acted in.
        """
        steps = self._steps.recorded()
        if not steps:
            raise RuntimeError(f"task {self.task.task_id!r} cannot end before its first action")
        num_left_out = self._steps.num_calls_left_out
        if num_left_out:
            logger.info(
                "episode %s: calls before an action that was never chosen are left out: %d",
                self._spec.episode_id,
                num_left_out,
            )
        seen = self.observation if self.awaits_action else Observation(text="")
        has_more = stop_reason.truncated and not scored
        final_prompt = self._final_prompt if has_more else None
        return Trajectory(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            steps=steps,
            stop_reason=stop_reason,
            success=success,
            final_observation=seen,
            final_prompt_tokens=(
                final_prompt and final_prompt.tokens[-self._limits.max_prompt_tokens :]
            ),
            final_prompt_pictures=pictures_of(final_prompt.messages if final_prompt else ()),
            scored=scored,
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )

    def failed(self, error: EpisodeError) -> FailedEpisode:
        """The record of an episode that broke: its cause, and the steps that were acted in."""
        return FailedEpisode(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            cause=error.cause,
            message=message_of(error, limit=2 * MAX_MESSAGE_CHARACTERS),
            steps=self._steps.recorded(),
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )

    def _required_responder(self) -> Responder:
        if self._responder is None:
            raise RuntimeError("this session has nobody who replies; give it a responder")
        return self._responder

    def _new_tool_prompts(self) -> ToolPrompts:
        return ToolPrompts(self._required_responder().tools)

    async def _hosted(
        self,
        policy: HostedPolicy,
        prompt: Sequence[Message] | Shortenable,
        sampling: Sampling,
        *,
        tool_prompts: ToolPrompts | None,
    ) -> Call:
        """A call of a hosted model."""
        if isinstance(prompt, Shortenable):
            with attributed_to(MemoryFailure, "memory.compose"):
                messages = prompt.compose(0)
        else:
            messages = tuple(prompt)
        tools = () if tool_prompts is None else tool_prompts.tools
        if tool_prompts is not None:
            messages = tool_prompts.shown(messages)
        reply, seconds = await self._sampler.of_hosted(policy, messages, sampling, tools=tools)
        call = Call(
            messages=messages,
            reply=well_formed(with_thoughts(reply.read)),
            sampled=None,
            model=reply.model,
            finish_reason=reply.finish_reason,
            tools=tools,
            tool_calls=reply.read.tool_calls,
            cost_usd=reply.cost_usd,
            trained=False,
            queue_seconds=reply.queue_seconds,
            generate_seconds=max(0.0, seconds - reply.queue_seconds),
        )
        if tool_prompts is not None:
            tool_prompts.add(call, reply.read)
        return call

    async def _fitted(
        self,
        prompt: Sequence[Message] | Shortenable,
        renderer: Renderer,
        earlier: tuple[Call, ...],
        *,
        begins_reply: bool,
        tool_prompts: ToolPrompts | None = None,
    ) -> tuple[Prompt, int, tuple[int, ...]]:
        """The prompt, shortened as little as it takes.

        Also how many exchanges that cost, and the steps that it recalls. All is done in a thread:
        a long prompt takes seconds, and on the event loop it would cost other episodes their
        deadlines.
        """

        def rendered(messages: tuple[Message, ...]) -> Prompt:
            with attributed_to(RendererFailure, "renderer.render"):
                if tool_prompts is not None:
                    return tool_prompts.prompt(messages, renderer)
                tokens = renderer.render(messages, earlier=earlier, begins_reply=begins_reply)
                return Prompt(messages=messages, tokens=tokens)

        if not isinstance(prompt, Shortenable):
            return await asyncio.to_thread(rendered, tuple(prompt)), 0, ()

        def fitted() -> tuple[Prompt, int, tuple[int, ...]]:
            asked, dropped = _shortened(prompt, rendered, limit=self._limits.max_prompt_tokens)
            return asked, dropped, _recalled(prompt, drop=dropped)

        return await asyncio.to_thread(fitted)


def _shortened(
    prompt: Shortenable, rendered: Callable[[tuple[Message, ...]], Prompt], *, limit: int
) -> tuple[Prompt, int]:
    """The prompt of at most `limit` and `prompt.max_tokens` tokens that leaves out least.

    If none is, the one that leaves out all, where `limit` allows it, and else the whole one.
    """
    fitting = limit if prompt.max_tokens is None else min(limit, prompt.max_tokens)

    def without(drop: int) -> Prompt:
        with attributed_to(MemoryFailure, "memory.compose"):
            messages = prompt.compose(drop)
        return rendered(messages)

    whole = without(0)
    if len(whole.tokens) <= fitting:
        return whole, 0
    with attributed_to(MemoryFailure, "memory.num_remembered"):
        drops = range(1, prompt.num_droppable() + 1)
    place = bisect_left(drops, True, key=lambda drop: len(without(drop).tokens) <= fitting)
    for drop in drops[place : place + 1] or drops[-1:]:
        shortest = without(drop)
        if len(shortest.tokens) <= limit:
            return shortest, drop
    return whole, 0


def _recalled(prompt: Shortenable, *, drop: int = 0) -> tuple[int, ...]:
    with attributed_to(MemoryFailure, "memory.recalled"):
        return prompt.recalled(drop)
