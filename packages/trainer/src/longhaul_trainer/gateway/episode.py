"""One episode of the gateway: what is answered, and what is recorded.

    ChatRequest ──▶ which model, within which limits ──▶ session.answer ─┐
                                        └─▶ upstream.answer ─▶ session.record ──▶ ChatReply

A call of the policy is a step: its observation is what came since the call that it goes on from,
its action is the reply. Other calls (of an upstream, of the frozen weights, or those that a program
or a rule of the run marks with `train: false`) belong to the step that was opened last, or to the
first one if they come before it, and are not trained.
"""

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, Protocol, runtime_checkable

from longhaul_core.errors import (
    EnvironmentFailure,
    EpisodeError,
    HorizonReached,
    LimitReached,
    PolicyFailure,
    RendererFailure,
    TokensSpent,
    attributed_to,
)
from longhaul_core.policy import (
    ChatRenderer,
    ReadReply,
    Renderer,
    ReplyPart,
    Sampling,
    offers,
    with_thoughts,
)
from longhaul_core.rollout.conversations import ChatPrompt
from longhaul_core.rollout.program_calls import MOST_INLINE_CHARACTERS
from longhaul_core.rollout.responder import Responder
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.text import well_formed
from longhaul_core.types import Call, Message, Observation, Picture, Task, ToolCall
from longhaul_trainer.config.calls import CallKind
from longhaul_trainer.gateway.authentication import EpisodeAccess
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    CreditReport,
    Delta,
    Usage,
)
from longhaul_trainer.gateway.idempotency import IdempotentRequests, ProgramRequest, Sent
from longhaul_trainer.gateway.reading import ReplyWatch, TextReader
from longhaul_trainer.gateway.upstream import Upstream

__all__ = ["AUTO", "CallRules", "OpenEpisode", "Reported"]

logger = logging.getLogger(__name__)

AUTO = "auto"
"""The policy, by the name that agent-lightning's programs use."""

REFERENCE = "reference"
"""What programs call the weights that the policy started from."""
_NO_REFERENCE = (
    ". The run has engines of the policy alone, whose weights change; serve the weights that it "
    "started from by an engine of their own, and name that as [agent.upstreams.reference]"
)

ASIDE = "aside"
"""Purpose of a call that a kind of the run's takes out of the training."""

Altered = Literal["ignore", "refuse", "allow"]
"""`ignore`: they are left out of account, and the answer says so. `refuse`: a call that is trained
is refused; elsewhere they are in force. `allow`: they are in force, so that logprobs of trained
calls are not the policy's."""

_MAX_SHOWN = 32
"""Of what is left out of a request, how many an answer's header names."""

WISHES: Mapping[str, str] = {"tool_choice": "auto", "parallel_tool_calls": "true"}
"""What a client demands of a reply and an engine of ours holds no model to, and what holds instead.
It changes no probability, so the call is answered without it."""


@runtime_checkable
class TextTokenizer(Protocol):
    """A renderer that makes text into tokens without a template, for raw prompts."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Tokens of the text, nothing added."""
        ...


@runtime_checkable
class KnowsVocabulary(Protocol):
    """A renderer that knows how many tokens there are."""

    @property
    def vocabulary_size(self) -> int:
        """Tokens are below it."""
        ...


@runtime_checkable
class PictureRenderer(Protocol):
    """A renderer that knows whether its model reads pictures."""

    @property
    def reads_pictures(self) -> bool:
        """Whether the model is shown the pictures of its prompts."""
        ...

    def require_places(self, tokens: Sequence[int], messages: Sequence[Message]) -> None:
        """Refuse tokens whose places for pictures are not those of the messages' pictures.

        Raises:
            ValueError: The engine would read a picture where none stands.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What the calls of an episode may ask for.

    Temperature, `top_p` and the longest reply of the run are the `Responder`'s, of each model its
    own.
    """

    trains: bool
    """Whether the policy's calls are trained on: False in validation and test."""
    allows_sampling: bool = False
    """Whether a client's own temperature and `top_p` are in force for the policy, in place of the
    run's. Calls that are not the agent's own have their client's in any case."""
    altered: Altered = "ignore"
    """Of a client's settings that change the distribution (`Sampling.altered`), for the policy's
    own calls. Calls that are not the agent's own have their client's in any case."""
    max_calls: int | None = None
    """Most calls of an episode, those of upstreams included; None for no such limit."""
    kinds: tuple[CallKind, ...] = ()
    """Of calls that are treated in a way of their own; the first one that fits."""
    keeps_final_prompt: bool = False
    """Whether the prompt of the policy that a limit refused is kept, for a critic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a program posted of its episode as a whole."""

    reward: float | None = None
    """The last one that it posted for the episode, which is not paid to any step yet; None if it
    posted none."""
    success: bool | None = None
    done: bool = False
    num_step_rewards: int = 0
    """How often it paid a step of its own; those are in the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    choices: Sequence[Choice]
    usage: Usage
    prompt_tokens: tuple[int, ...]


class OpenEpisode:
    """An episode that a program may call; made by `Gateway.open`, on the gateway's event loop."""

    def __init__(
        self,
        session: EpisodeSession,
        *,
        access: EpisodeAccess,
        models: Mapping[str, Responder | Upstream],
        rules: CallRules,
        task: Task,
        max_kept_replies: int = 64,
    ) -> None:
        """See `Gateway.open`."""
        if not models:
            raise ValueError("an episode needs at least one model: the policy")
        self.access = access
        self.task = task
        self.requests = IdempotentRequests(max_kept=max_kept_replies)
        self.closed: str | None = None
        """Why it is over; None while it is open."""
        self._session = session
        self._models = models
        self._policy_name = next(iter(models))
        self._rules = rules
        self._reported = Reported()
        self._num_calls = 0
        self._num_of_kind = Counter[CallKind]()
        self._limit: LimitReached | None = None
        self._failures: dict[bytes, EpisodeError] = {}
        self._newest_step: int | None = None
        self._opening: int | None = None
        """A step of calls that are not the agent's own, which came before it: its first call takes
        the step."""
        self._opening_is_taken = False
        self._opening_action: str | None = None
        self._acted: dict[str, int] = {}
        """The newest step that was acted in, of each agent; of all of them under `""`."""
        self._announced: CreditReport | None = None
        """What was reported apart from a call, for the next one."""
        self._refused: dict[int, float] = {}
        """What calls that got no reply have paid to a step: a program that shortens a prompt which
        was too long sends it again."""
        self._report_keys: set[str] = set()
        self._over = asyncio.Event()
        self._on_close: Callable[[str], None] = lambda cause: None

    def environ(self) -> dict[str, str]:
        """Environment variables of a program: addresses, and the key."""
        return self.access.environ(mode="train" if self._rules.trains else "val")

    @property
    def model_names(self) -> tuple[str, ...]:
        """What a request's `model` may be, patterns such as `claude-*` included."""
        return (AUTO, *(name for name in self._models if name != AUTO))

    def has_model(self, name: str) -> bool:
        """Whether a request's `model` may be this."""
        return self._named(name) in self._models

    @property
    def reported(self) -> Reported:
        """What the program posted so far."""
        return self._reported

    @property
    def num_calls(self) -> int:
        """Requests that have a reply or wait for one; repetitions are not counted."""
        return self._num_calls

    @property
    def limit(self) -> LimitReached | None:
        """The limit that the program met: the episode is truncated there.

        None again where the policy has answered a later call: a program may shorten a prompt that
        was too long.
        """
        return self._limit

    @property
    def failure(self) -> EpisodeError | None:
        """The first failure of the engine that no repetition of the request has made good.

        The program did not get the policy's reply; what it did then is not the policy's doing.
        """
        return next(iter(self._failures.values()), None)

    def overridden(self, request: ChatRequest) -> dict[str, str]:
        """What a client named and is not in force: what is instead, by its name.

        Empty where the model is unknown.
        """
        model = self._models.get(self._named(request.model))
        wishes = dict.fromkeys(request.left_out[:_MAX_SHOWN], "off")
        if not isinstance(model, Responder):
            return wishes
        wishes |= {name: WISHES[name] for name in request.altered if name in WISHES}
        if self._ignores_altered(model, self._credit_of(request)):
            wishes |= dict.fromkeys(_altered(request), "off")
        longest = self._longest_reply(request, model)
        if request.max_tokens is not None and request.max_tokens > longest:
            wishes["max_tokens"] = str(longest)
        if not self._decides(request, model):
            return wishes
        asked = (("temperature", request.temperature), ("top_p", request.top_p))
        decided = {
            name: f"{getattr(model, name):g}"
            for name, value in asked
            if value is not None and value != getattr(model, name)
        }
        return decided | wishes

    async def answer(
        self,
        request: ChatRequest,
        on_delta: Callable[[Delta], None] | None,
        *,
        asked: ProgramRequest | None = None,
    ) -> ChatReply:
        """Reply to a request of the program. Cancelled, it cancels the request in the engine.

        Args:
            request: What it asks for.
            on_delta: Called with each piece of the reply, where the program reads a stream.
            asked: Of `repeats`, for a request that may repeat another one; None for a new one.

        Raises:
            ApiError: What is wrong with it, or with us.
        """
        if asked is None:
            asked = self.requests.request_of(Sent(fingerprint=b"", num_retries=0))

        def sample(emit: Callable[[Delta], None]) -> Coroutine[None, None, ChatReply]:
            return self._sample(request, asked, emit if request.stream else None)

        return await asked.reply(sample, on_delta)

    async def count_tokens(self, request: ChatRequest) -> int:
        """How many tokens a request's prompt has, its pictures' too, rendered from nothing.

        Raises:
            ApiError: There is no such model here, it is somebody else's, or it cannot read the
                messages.
        """
        name, model = self._model(request.model)
        if not isinstance(model, Responder):
            raise ApiError(
                "unsupported", f"the tokens of model {name!r} are not known here", parameter="model"
            )
        renderer = _chat_renderer(model)
        _require_readable(request, renderer, name=name)
        with self._refusing(b""), attributed_to(RendererFailure, "renderer.render_chat"):
            tokens = await asyncio.to_thread(
                renderer.render_chat, request.messages, tools=request.tools
            )
        return len(tokens)

    def report(self, credit: CreditReport, *, idempotency_key: str | None = None) -> None:
        """What the program says of its step, apart from a call.

        The reward is for the last step; the state and what else is said, for the next call.

        Args:
            credit: What it says.
            idempotency_key: A second report with the key of one before is none.

        Raises:
            ApiError: There is no step to be paid, or the episode is closed.
        """
        self._require_open()
        if idempotency_key in self._report_keys:
            return
        self._pay(credit)
        if idempotency_key is not None:
            self._report_keys.add(idempotency_key)
        self._announced = self._credit(replace(credit, reward=None, done=False))
        if credit.done:
            self._finish()

    def report_reward(self, value: float | None, *, success: bool | None = None) -> None:
        """What the program says of the episode as a whole; the last one counts.

        Raises:
            ApiError: The value is not finite, or the episode is closed.
        """
        self._require_open()
        if value is not None and not math.isfinite(value):
            raise ApiError("invalid_request", f"a reward must be finite, got {value}")
        known = self._reported
        if value is not None and known.reward is not None and value != known.reward:
            logger.warning(
                "episode %s of task %s: the reward %s that it posted before is replaced by %s",
                self.access.id,
                self.task.task_id,
                known.reward,
                value,
            )
        self._reported = replace(
            known,
            reward=known.reward if value is None else value,
            success=known.success if success is None else success,
        )

    async def wait_done(self) -> None:
        """Return when the program has reported its end, or can make no further call.

        Calls that were in flight then are within the limits: they have been answered.
        """
        await self._over.wait()
        await self.requests.settled()

    async def close(self, *, cause: str = "it has ended") -> None:
        """Let the key die, cancel what is in flight, and return when nothing is.

        Args:
            cause: What later requests are told, with 410.
        """
        if self.closed is None:
            self.closed = cause
            self._on_close(cause)
        self._over.set()
        await self.requests.close(f"the episode is over: {self.closed}")
        step, action = self._opening, self._opening_action
        if step is not None and action is not None and not self._acted:  # no call was its own
            self._act(step, action)

    def on_close(self, called: Callable[[str], None]) -> None:
        """Have a function called with the cause as soon as the episode is closed."""
        self._on_close = called

    def _finish(self) -> None:
        self._reported = replace(self._reported, done=True)
        self._over.set()

    def _named(self, model: str) -> str:
        if model in self._models:
            return model
        matches = model != REFERENCE and any(
            fnmatchcase(model, name) for name in self._models if _is_pattern(name)
        )
        return self._policy_name if model == AUTO or matches else model

    def _model(self, name: str) -> tuple[str, Responder | Upstream]:
        named = self._named(name)
        model = self._models.get(named)
        if model is None:
            known = ", ".join(map(repr, self.model_names))
            why = _NO_REFERENCE if name == REFERENCE else ""
            raise ApiError(
                "not_found",
                f"model {name!r} is not here; there are {known}{why}",
                parameter="model",
            )
        return self._policy_name if self._is_policy(model) else named, model

    def _is_policy(self, model: Responder | Upstream) -> bool:
        return model is self._models[self._policy_name]

    def _decides(self, request: ChatRequest, model: Responder) -> bool:
        """Whether the run's own temperature and `top_p` are in force."""
        own = self._is_policy(model) and self._credit_of(request).train
        return own and not self._rules.allows_sampling

    def _ignores_altered(self, model: Responder | Upstream, credit: CreditReport) -> bool:
        return self._rules.altered == "ignore" and self._is_policy(model) and credit.train

    def _kind(self, request: ChatRequest) -> CallKind | None:
        return next((kind for kind in self._rules.kinds if _fits(request, kind)), None)

    def _longest_reply(self, request: ChatRequest, model: Responder) -> int:
        kind = self._kind(request)
        own = None if kind is None else kind.max_reply_tokens
        return min(own or model.max_reply_tokens, model.max_reply_tokens)

    def _credit_of(self, request: ChatRequest) -> CreditReport:
        """What is reported of a call, and what the run says of its kind."""
        kind = self._kind(request)
        if kind is None:
            return self._credit(request.credit)
        credit = self._credit(request.credit) if kind.train else request.credit
        aside = not kind.train and credit.purpose == "act"
        return replace(
            credit,
            train=credit.train and kind.train,
            agent=kind.agent or credit.agent,
            purpose=ASIDE if aside else credit.purpose,
        )

    def _is_aside(self, request: ChatRequest) -> bool:
        """Whether the run says that a call is not the agent's own."""
        kind = self._kind(request)
        return kind is not None and not kind.train

    def _credit(self, given: CreditReport) -> CreditReport:
        """What is reported of the next call: now, and before it apart from it."""
        announced = self._announced
        if announced is None:
            return given
        return replace(
            given,
            anchor_state=announced.anchor_state
            if given.anchor_state is None
            else given.anchor_state,
            train=given.train and announced.train,
            agent=given.agent or announced.agent,
            purpose=announced.purpose if given.purpose == "act" else given.purpose,
        )

    def _pay(self, credit: CreditReport, *, with_call: bool = False) -> int | None:
        """Pay the step before; which one that is, if it was paid.

        Args:
            credit: What is reported.
            with_call: Whether a call brings it, in place of what one without a reply has paid.
        """
        if credit.reward is None:
            return None
        if not math.isfinite(credit.reward):
            raise ApiError("invalid_request", f"a reward must be finite, got {credit.reward}")
        step = self._acted.get(credit.agent)
        if step is None:
            if credit.reward == 0:
                return None
            whose = f" of agent {credit.agent!r}" if credit.agent else ""
            raise ApiError(
                "invalid_request",
                f"the reward {credit.reward} is for the step before, and no call{whose} was "
                "answered yet",
            )
        refused = self._refused.pop(step, None) if with_call else None
        self._session.reward(credit.reward - (refused or 0.0), step_index=step)
        if refused is None:
            num_rewards = self._reported.num_step_rewards + 1
            self._reported = replace(self._reported, num_step_rewards=num_rewards)
        return step

    def _require_open(self) -> None:
        """Refuse what comes after the end: a function that was left behind may still go on."""
        if self.closed is not None:
            raise ApiError("gone", f"the episode is over: {self.closed}")

    async def _sample(
        self, request: ChatRequest, asked: ProgramRequest, emit: Callable[[Delta], None] | None
    ) -> ChatReply:
        self._require_open()
        if self._reported.done:
            raise ApiError("gone", "the episode is over: its program reported its end")
        name, model = self._model(request.model)
        credit, paid = asked.credit, None
        if credit is None:
            credit = self._credit_of(request)
            self._require_unaltered(request, model, credit)
            if isinstance(model, Responder):
                _require_readable(request, model.renderer, name=name)
            paid = self._pay(credit, with_call=True)
            asked.credit = credit
        before = self._acted.get(credit.agent)
        announced = None
        if not self._is_aside(request):
            announced, self._announced = self._announced, None
        try:
            with (
                self._refusing(asked.sent.fingerprint, own=self._is_policy(model)),
                self._counted(request),
            ):
                if isinstance(model, Responder):
                    answered = await self._sampled(name, model, request, credit, emit)
                else:
                    answered = await self._forwarded(name, model, request, credit, emit)
        except BaseException as error:
            if paid is not None and credit.reward is not None:
                self._refused[paid] = self._refused.get(paid, 0.0) + credit.reward
            self._announced = self._announced or announced
            if isinstance(error.__cause__, LimitReached | EnvironmentFailure):
                await self._keep_final_prompt(request, model, credit)
            raise
        self._failures.pop(asked.sent.fingerprint, None)
        if paid is None and before is not None and credit.reward is not None:
            self._refused.pop(before, None)  # a repetition of the call that paid it: it stands
        if credit.done:
            self._finish()
        return ChatReply(
            id=asked.reply_id,
            created=int(time.time()),
            model=request.model,
            choices=answered.choices,
            usage=answered.usage,
            prompt_tokens=answered.prompt_tokens if request.returns_token_ids else (),
        )

    async def _keep_final_prompt(
        self, request: ChatRequest, model: Responder | Upstream, credit: CreditReport
    ) -> None:
        """Keep the prompt that a limit has refused, if it is one of the policy."""
        own = self._is_policy(model) and credit.train
        if not (self._rules.keeps_final_prompt and own and isinstance(model, Responder)):
            return
        try:
            prompt = await _prompt(request, _chat_renderer(model))
            with attributed_to(RendererFailure, "renderer.render_chat"):
                await self._session.keep_final_prompt(prompt, responder=model)
        except (ApiError, EpisodeError) as error:
            logger.warning("episode %s: its refused prompt is not kept: %s", self.access.id, error)

    @contextmanager
    def _counted(self, request: ChatRequest) -> Generator[None]:
        """Count a call, unless it gets no reply."""
        most, kind = self._rules.max_calls, self._kind(request)
        if most is not None and self._num_calls >= most:
            raise HorizonReached(f"the episode has its {most} calls (max_calls)")
        if kind is not None:
            if kind.max_calls is not None and self._num_of_kind[kind] >= kind.max_calls:
                raise ApiError(
                    "episode_limit",
                    f"the episode has its {kind.max_calls} calls of this kind "
                    "(agent.calls.max_calls), and goes on without them",
                )
            self._num_of_kind[kind] += 1
        self._num_calls += 1
        try:
            yield
        except BaseException:
            self._num_calls -= 1
            if kind is not None:
                self._num_of_kind[kind] -= 1
            raise

    async def _sampled(
        self,
        name: str,
        model: Responder,
        request: ChatRequest,
        credit: CreditReport,
        emit: Callable[[Delta], None] | None,
    ) -> _Answered:
        """The reply of an engine of ours."""
        renderer = _chat_renderer(model)
        own = self._is_policy(model) and credit.train
        limit_before = self._limit
        prompt = await _prompt(request, renderer)
        step, acts = self._step(request, prompt, credit, renderer, own=own)
        overridden = tuple(self.overridden(request))
        if self._ignores_altered(model, credit):
            request = replace(request, altered={})
        sampling = self._sampling(request, model, own=own)
        watches = [
            ReplyWatch(
                TextReader(renderer.decode)
                if isinstance(prompt, tuple)
                else renderer.reader(
                    tools=(*request.tools, *request.loaded_tools),
                    salt=f"{step}/{choice}",
                    after_result=request.messages[-1].role == "tool",
                ),
                stop=request.stop,
                on_part=None if emit is None else _part_of(choice, emit),
            )
            for choice in range(request.num_choices)
        ]
        try:
            calls = await _all_of(
                self._session.answer(
                    prompt,
                    step_index=step,
                    sampling=sampling,
                    agent=credit.agent,
                    purpose=credit.purpose,
                    model="" if self._is_policy(model) else name,
                    trained=own,
                    overridden=overridden,
                    responder=model,
                    on_tokens=None if emit is None else watch.feed,
                    read=watch.read,
                )
                for watch in watches
            )
        except BaseException:
            self._refuse(step, acts=acts)
            raise
        choices = [watch.choice(call) for watch, call in zip(watches, calls, strict=True)]
        self._take(step, choices[0], agents={credit.agent, request.credit.agent}, acts=acts)
        if own and self._limit is limit_before and not isinstance(limit_before, HorizonReached):
            self._limit = None
            self._session.forget_final_prompt()
        prompt_tokens = calls[0].sampled.prompt_tokens if calls[0].sampled else ()
        usage = Usage(
            prompt_tokens=len(prompt_tokens),
            reply_tokens=sum(len(choice.tokens) for choice in choices),
            cached_tokens=calls[0].num_cached_tokens or 0,
        )
        if request.returns_logprobs:
            choices = [
                replace(choice, token_bytes=renderer.token_bytes(choice.tokens))
                for choice in choices
            ]
        elif not request.returns_token_ids:
            choices = [replace(choice, tokens=(), logprobs=()) for choice in choices]
        return _Answered(
            choices=choices,
            usage=usage,
            prompt_tokens=prompt_tokens if request.returns_token_ids else (),
        )

    async def _forwarded(
        self,
        name: str,
        model: Upstream,
        request: ChatRequest,
        credit: CreditReport,
        emit: Callable[[Delta], None] | None,
    ) -> _Answered:
        """The reply of somebody else's model."""
        own = self._is_policy(model) and credit.train
        # A hosted model may call what it is offered, and nothing that its messages tell of.
        tools = (*request.tools, *request.loaded_tools)
        request = replace(request, tools=tools, loaded_tools=())
        prompt = ChatPrompt(request.messages, request.tools)
        step, acts = self._step(request, prompt, credit, None, own=own)
        began = time.perf_counter()
        try:
            answer = await model.answer(replace(request, model=name), on_delta=emit)
            choices = answer.reply.choices
            if not choices:
                raise ApiError("upstream", f"upstream {name!r} returned no choice")
        except BaseException:
            self._session.abandon(step)
            self._refuse(step, acts=acts)
            raise
        seconds = time.perf_counter() - began
        for place, choice in enumerate(choices):
            read = ReadReply(
                text=choice.text, reasoning=choice.reasoning, tool_calls=choice.tool_calls
            )
            call = Call(
                messages=request.messages,
                reply=with_thoughts(read),
                sampled=None,
                purpose=credit.purpose,
                agent=credit.agent,
                model=name,
                finish_reason=choice.finish_reason,
                tools=request.tools,
                tool_calls=choice.tool_calls,
                cost_usd=answer.cost_usd if place == 0 else None,
                trained=False,
                queue_seconds=answer.queue_seconds,
                generate_seconds=max(0.0, seconds - answer.queue_seconds),
            )
            self._session.record(call, step_index=step, read=read)
        self._take(step, choices[0], agents={credit.agent, request.credit.agent}, acts=acts)
        return _Answered(choices=choices, usage=answer.reply.usage, prompt_tokens=())

    def _step(
        self,
        request: ChatRequest,
        prompt: ChatPrompt | tuple[int, ...],
        credit: CreditReport,
        renderer: ChatRenderer | None,
        *,
        own: bool,
    ) -> tuple[int, bool]:
        """The step that a call belongs to, and whether it acts in it."""
        if not own and self._newest_step is not None:
            return self._newest_step, False
        if isinstance(prompt, ChatPrompt):
            if renderer is not None:
                self._session.require_few_messages(prompt)
            observation = _observation(self._session.new_messages(prompt))
        elif isinstance(request.raw_prompt, str):
            observation = Observation(text=request.raw_prompt)
        else:
            observation = Observation(text="" if renderer is None else renderer.decode(prompt))
        observation = replace(observation, anchor_state=credit.anchor_state)
        is_free = not self._opening_is_taken and not self._acted
        if own and self._opening is not None and is_free:
            step = self._opening
            self._session.reopen(step, observation)
            self._opening_is_taken = True
        else:
            step = self._session.open_step(observation)
        self._newest_step = step
        if self._is_aside(request):
            self._opening = step
            return step, False
        return step, True

    def _refuse(self, step: int, *, acts: bool) -> None:
        """A call got no reply: those beside it do not belong to a step that comes to nothing."""
        if acts and step == self._opening:
            self._opening_is_taken = False
        elif acts and self._newest_step == step:
            self._newest_step = self._acted.get("", self._opening)

    def _take(self, step: int, choice: Choice, *, agents: Set[str], acts: bool) -> None:
        """What was done in a step is its first choice: what a program makes of it is not known."""
        if acts:
            self._act(step, _action(choice), agents=agents)
        elif step == self._opening and self._opening_action is None:
            self._opening_action = _action(choice)

    def _act(self, step: int, action: str, *, agents: Set[str] = frozenset()) -> None:
        """An agent may have two names: the program's, and that of its kind of calls."""
        self._session.acted(action, valid=True, step_index=step)
        for name in {*agents, ""}:
            self._acted[name] = max(step, self._acted.get(name, step))

    def _sampling(self, request: ChatRequest, model: Responder, *, own: bool) -> Sampling | None:
        """How to draw a reply; None is as the run says."""
        decides = own and not self._rules.allows_sampling
        temperature = None if decides else request.temperature
        top_p = None if decides else request.top_p
        longest = self._longest_reply(request, model)
        asked = Sampling(
            seed=0,  # the session has its own
            temperature=model.temperature if temperature is None else temperature,
            top_p=model.top_p if top_p is None else top_p,
            max_tokens=min(request.max_tokens or longest, longest),
            stop=request.stop,
            altered=tuple(
                (name, json.dumps(value, sort_keys=True))
                for name, value in sorted(_altered(request).items())
            ),
        )
        usual = Sampling(
            seed=0,
            temperature=model.temperature,
            top_p=model.top_p,
            max_tokens=model.max_reply_tokens,
        )
        return None if asked == usual else asked

    def _require_unaltered(
        self, request: ChatRequest, model: Responder | Upstream, credit: CreditReport
    ) -> None:
        """Refuse what would make the logprobs of a trained call wrong."""
        trains = self._rules.trains and self._is_policy(model) and credit.train
        altered = _altered(request)
        if not trains or not altered or self._rules.altered != "refuse":
            return
        names = ", ".join(f"{name} = {value!r}" for name, value in sorted(altered.items()))
        raise ApiError(
            "unsupported",
            f"{names}: with it the engine draws from another distribution than the one that is "
            "trained, so its logprobs would be wrong. Leave it out, mark the call with "
            '`train: false`, or have the run leave it out (agent.altered = "ignore")',
            parameter=min(altered),
        )

    @contextmanager
    def _refusing(self, fingerprint: bytes, *, own: bool = True) -> Generator[None]:
        """Turn limits and failures into answers, and keep them for whoever plays the episode.

        What another model's server fails at is no failure of the policy, unless it is the policy.
        """
        try:
            with attributed_to(PolicyFailure, "gateway"):
                yield
        except LimitReached as limit:
            self._limit = limit
            if isinstance(limit, HorizonReached):
                self._over.set()
                raise ApiError(
                    "episode_limit", f"{limit}; the episode ends here, and counts as truncated"
                ) from limit
            raise ApiError(
                "prompt_too_long",
                f"{limit}; send a shorter one, or the episode ends here, and counts as truncated",
            ) from limit
        except RendererFailure as failure:
            raise ApiError("invalid_request", str(failure), parameter="messages") from failure
        except EnvironmentFailure as failure:  # what is new in the prompt is too long to be kept
            self._limit = TokensSpent(str(failure))
            raise ApiError(
                "prompt_too_long",
                f"{failure}; shorten it (or raise environment.max_observation_characters), or the "
                "episode ends here, and counts as truncated",
                parameter="messages",
            ) from failure
        except EpisodeError as failure:
            if isinstance(failure.__cause__, ApiError):
                if own and failure.__cause__.kind == "upstream":
                    self._failures[fingerprint] = failure
                raise failure.__cause__ from None
            self._failures[fingerprint] = failure
            raise ApiError("upstream", str(failure)) from failure


def _fits(request: ChatRequest, kind: CallKind) -> bool:
    """Whether a call meets all conditions of a kind."""
    if kind.model is not None and not fnmatchcase(request.model, kind.model):
        return False
    if kind.tools is not None and kind.tools != bool(request.tools):
        return False
    if kind.header is not None:
        name, _, pattern = kind.header.partition(":")
        value = request.headers.get(name.lower())
        if value is None or not fnmatchcase(value, pattern.strip() or "*"):
            return False
    return kind.system is None or any(
        isinstance(part, str) and part.lstrip().startswith(kind.system)
        for message in request.messages
        if message.role == "system"
        for part in message.parts
    )


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _altered(request: ChatRequest) -> dict[str, object]:
    """What the engine is to draw otherwise."""
    return {name: value for name, value in request.altered.items() if name not in WISHES}


def _require_readable(request: ChatRequest, renderer: Renderer, *, name: str) -> None:
    """Refuse pictures for a model of text, which would answer blindly."""
    num_pictures = sum(
        len(message.pictures)
        for message in request.messages
        if not isinstance(message.content, str)
    )
    if num_pictures and not (isinstance(renderer, PictureRenderer) and renderer.reads_pictures):
        raise ApiError(
            "unsupported",
            f"the messages have pictures ({num_pictures}), and model {name!r} reads text alone; "
            "describe them in text, or ask a model that reads pictures (the run's model.path, or "
            "an upstream)",
            parameter="messages",
        )


def _chat_renderer(model: Responder) -> ChatRenderer:
    if not offers(model.renderer, ChatRenderer):
        raise TypeError(f"{type(model.renderer).__name__} renders no chat of programs")
    return model.renderer


async def _prompt(request: ChatRequest, renderer: ChatRenderer) -> ChatPrompt | tuple[int, ...]:
    raw = request.raw_prompt
    if raw is None:
        return ChatPrompt(request.messages, request.tools, request.loaded_tools)
    if isinstance(raw, tuple):
        _require_known(raw, renderer)
        _require_no_pictures(raw, renderer)
        return raw
    if not isinstance(renderer, TextTokenizer):
        raise ApiError(
            "unsupported",
            "a prompt as text is not read here; send its token ids, or messages",
            parameter="prompt",
        )
    if len(raw) <= MOST_INLINE_CHARACTERS:
        tokens = renderer.tokenize(raw)
    else:
        tokens = await asyncio.to_thread(renderer.tokenize, raw)
    _require_no_pictures(tokens, renderer)
    return tokens


def _require_known(tokens: tuple[int, ...], renderer: ChatRenderer) -> None:
    """Refuse a token that the model does not have, which no engine reads."""
    largest = max(tokens, default=0)
    if isinstance(renderer, KnowsVocabulary) and largest >= renderer.vocabulary_size:
        raise ApiError(
            "invalid_request",
            f"token {largest} is none of the model's: they lie in "
            f"[0, {renderer.vocabulary_size - 1}]",
            parameter="prompt",
        )


def _require_no_pictures(tokens: tuple[int, ...], renderer: ChatRenderer) -> None:
    """Refuse places for pictures in a prompt that has none beside it."""
    if not isinstance(renderer, PictureRenderer):
        return
    try:
        renderer.require_places(tokens, messages=())
    except ValueError as error:
        raise ApiError("invalid_request", f"{error}; send messages", parameter="prompt") from error


def _part_of(choice: int, emit: Callable[[Delta], None]) -> Callable[[ReplyPart], None]:
    def on_part(part: ReplyPart) -> None:
        emit(Delta(choice=choice, part=part))

    return on_part


async def _all_of(answers: Iterable[Coroutine[None, None, Call]]) -> list[Call]:
    """What all of them return; where one raises, the others are cancelled first."""
    first, *others = answers
    if not others:
        return [await first]
    tasks = [asyncio.create_task(answer) for answer in (first, *others)]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


def _observation(messages: Sequence[Message]) -> Observation:
    """What came, as text and pictures; with the roles where there are several messages."""
    pictures: list[Picture] = []
    texts: list[str] = []
    for message in messages:
        text = message.content
        if not isinstance(text, str):  # most are, and there may be 100,000 of them
            pictures += message.pictures
            text = message.text
        if message.tool_calls:
            text = "\n".join(filter(None, (text, _as_json(message.tool_calls))))
        texts.append(text if len(messages) == 1 else f"{message.role}: {text}")
    return Observation(text=well_formed("\n\n".join(texts)), pictures=tuple(pictures))


def _action(choice: Choice) -> str:
    return well_formed(_as_json(choice.tool_calls) if choice.tool_calls else choice.text)


def _as_json(tool_calls: Sequence[ToolCall]) -> str:
    """Tool calls as a JSON list of names and arguments; malformed arguments are a string."""

    def arguments(text: str) -> object:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    calls = [{"name": one.name, "arguments": arguments(one.arguments)} for one in tool_calls]
    return json.dumps(calls, ensure_ascii=False)
