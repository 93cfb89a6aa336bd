"""The tree of an episode's conversations: which earlier call a program's prompt goes on from.

A program sends its whole conversation with each request. Its messages are the edges of a tree from
the empty conversation; a call ends at the node that its reply leads to. A prompt goes on from the
call at the deepest node on its way, so finding it compares no histories: a message that was seen
before costs one look-up, and only a new one is read.

Programs rewrite what they send back. Messages that differ in nothing but a `Rewrite` are one edge.

A conversation is a chain of calls. Where two go on from one call the first has its conversation,
and the other begins one of its own. A call that is not trained does not take a trained one's
place: it is in no row, and a program may ask for a title between two turns.
"""

import json
from array import array
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, NamedTuple, cast

from longhaul_core.policy import Renderer
from longhaul_core.rollout.differences import Difference, difference_from
from longhaul_core.rollout.packed_calls import PackedCall, packed_tokens
from longhaul_core.types import Continuation, Message, Part, Tool

__all__ = ["ChatPrompt", "ConversationTree", "Rewrite", "Turn"]

_ROOT = 0
_LONGEST_KEY = 64
"""In characters."""
_LOOKED_AT = 100
"""Messages of a new conversation that are compared with earlier replies."""
_FOLLOWERS = 8
"""Messages after the same ones; a prompt that differs is compared with the most similar one."""
_TELLING = 20
"""Characters of a reply that no example of a prompt has by chance."""
_Defaults = Mapping[str, Mapping[str, str]]
"""Of each tool that has some: its arguments' defaults, as JSON."""
_NO_DEFAULTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What a program asks: the whole conversation as it has it, and the tools it offers."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    """That the prompt begins with."""
    loaded_tools: tuple[Tool, ...] = ()
    """That its messages tell of."""

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """What the reply may ask for."""
        return (*self.tools, *self.loaded_tools)


class Rewrite(StrEnum):
    """A change that means nothing, in what a program sends back of a conversation."""

    ARGUMENTS = "arguments"
    """Spaces, key order, or `1.0` for `1`, in the JSON of a tool's arguments."""
    DEFAULTS = "defaults"
    """An argument that the reply left out has the default of the tool's schema, or the reverse."""
    REASONING = "reasoning"
    """The thoughts of a reply are left out, or are sent after they were left out."""
    WHITE_SPACE = "white_space"
    """At the beginning or the end of a text."""
    PARTS = "parts"
    """A text is split, or joined."""
    TOOL_IDS = "tool_ids"
    """Tool calls have other ids."""
    TOOLS = "tools"
    """The schemas of the tools are written otherwise: spaces, or key order."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Ended:
    """A call that has its reply."""

    call: PackedCall
    reply: Message
    """As the program read it."""
    tools: int | None
    """Number of what its tools mean; None for a prompt of tokens."""
    renderer: Renderer | None
    """Whose tokens it has; None where it has none."""
    parent: "_Ended | None"
    """The call that it went on from within its conversation."""
    num_next: int = 0
    """Calls that went on from it in its conversation, those in flight included."""
    num_next_trained: int = 0
    """Of those, and of what went on from them through calls that are not trained."""

    def is_taken(self, *, trained: bool) -> bool:
        """Whether a call that goes on from here begins a conversation of its own."""
        if not trained:
            return self.num_next > 0
        return any(each.num_next_trained for each in self._up_to_trained())

    def count_next(self, change: int, *, trained: bool) -> None:
        """Take note of one more call that goes on from here, or of one less."""
        self.num_next += change
        if trained:
            for each in self._up_to_trained():
                each.num_next_trained += change

    def _up_to_trained(self) -> "Iterator[_Ended]":
        """This call, and the ones before it, up to the nearest that is trained."""
        each: _Ended | None = self
        while each is not None:
            yield each
            each = None if each.call.trained else each.parent


class _Way(NamedTuple):
    """How far a prompt's messages lead in the tree."""

    node: int
    shared: tuple[Message | None, ...]
    """Of each message up to there, the instance that calls share; None if none was sent as it."""
    ended_node: int
    """The deepest node before the last message where a call ended; the root without one."""
    ended_depth: int
    """Messages up to there, the call's reply included."""
    by_defaults: tuple[tuple[int, Message, int], ...]
    """Messages that are edges but for defaults, each with the nodes before and behind it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """A call that is being made, until `ConversationTree.end` or `give_up`."""

    prompt: ChatPrompt | tuple[int, ...]
    trained: bool
    renderer: Renderer | None
    conversation: int
    continuation: Continuation
    base: PackedCall | None
    """The call whose tokens those of the prompt can go on from."""
    new_messages: tuple[Message, ...] = ()
    """What came after that call's reply; all messages without one."""
    rewrites: frozenset[Rewrite] = frozenset()
    """What was looked through."""
    difference: Difference | None = None
    """Where it parts from what calls had read and written, if it is `changed`."""
    parent: _Ended | None = None
    """The call that it goes on from within its conversation."""


class ConversationTree:
    """The calls of one episode's programs, by their conversations."""

    def __init__(self) -> None:
        """A tree without a call."""
        self.rewrites: Counter[Rewrite] = Counter()
        """Calls that looked through a change, by its kind; one may count for several."""
        self._num_conversations = 0
        self._num_nodes = 1
        self._edges: dict[tuple[int, int] | tuple[int, int, str], int] = {}
        """Node and message → the node it leads to; with its thoughts, where they differ."""
        self._followers: dict[int, deque[Message]] = {}
        """Node → the newest messages that lead on from it."""
        self._thoughts: dict[int, set[str] | None] = {}
        """Thoughts that the message which leads to a node may have; None for any."""
        self._ended: defaultdict[int, list[_Ended]] = defaultdict(list)
        self._exact: dict[Message, tuple[Message, int]] = {}
        """A message as it was sent → the instance that calls share, and the number of what it
        means."""
        self._exact_tools: dict[tuple[Tool, ...], tuple[tuple[Tool, ...], int]] = {}
        self._numbers: dict[object, int] = {}
        """Meanings of messages and tools."""
        self._defaults: dict[tuple[Tool, ...], _Defaults] = {}
        self._asked: set[int] = set()
        """Nodes that a call was made at."""
        self._replies: set[int] = set()
        """Numbers of what replies mean, if they are telling."""
        self._answers: set[tuple[int, int]] = set()
        """The same of all replies, after that of the message that they answered."""
        self._raw: defaultdict[bytes, list[_Ended]] = defaultdict(list)
        """Calls whose prompts were tokens, by the hash of what was read and written."""
        self._raw_lengths: list[int] = []
        """In tokens, ascending."""
        self._newest_way: tuple[ChatPrompt, _Way] | None = None

    def new_messages(self, prompt: ChatPrompt) -> tuple[Message, ...]:
        """What came since the call that a prompt goes on from; all messages, if from none."""
        return prompt.messages[self._way(prompt).ended_depth :]

    def begin(
        self, prompt: ChatPrompt | tuple[int, ...], *, trained: bool, renderer: Renderer | None
    ) -> Turn:
        """Find what a prompt goes on from, and its conversation.

        Args:
            prompt: Messages with tools, or tokens that no template goes round.
            trained: Whether the reply's tokens will be in the loss.
            renderer: Makes the prompt's tokens; None where somebody else replies.
        """
        if not isinstance(prompt, ChatPrompt):
            parent = self._longest_raw(prompt, trained=trained)
            return self._turn(prompt, parent, trained=trained, renderer=renderer, goes_on=True)
        way = self._way(prompt)
        parent = None
        if way.ended_node != _ROOT:
            parent = self._preferred(prompt, way, trained=trained, renderer=renderer)
        goes_on = parent is not None and (
            renderer is None  # nobody reads tokens
            or (parent.renderer is renderer and parent.tools == self._number_of(prompt.tools))
        )
        turn = self._turn(prompt, parent, trained=trained, renderer=renderer, goes_on=goes_on)
        turn.new_messages = prompt.messages[way.ended_depth :]
        if parent is None and self._is_changed(prompt, way):
            turn.continuation = Continuation.CHANGED
            place = len(way.shared)
            turn.difference = difference_from(
                self._followers.get(way.node, ()), prompt.messages[place], place=place
            )
        if parent is not None and goes_on:
            turn.rewrites = _rewrites(parent, prompt, way)
            if turn.rewrites and turn.continuation is Continuation.EXACT:
                turn.continuation = Continuation.REWRITTEN
        return turn

    def _is_changed(self, prompt: ChatPrompt, way: _Way) -> bool:
        """Whether a prompt that goes on from no call has the reply of one, or has another there."""
        first = len(way.shared)
        new = prompt.messages[first:][:_LOOKED_AT]
        if new and new[0].role == "assistant" and way.node in self._asked:
            return True
        before = None if first == 0 else prompt.messages[first - 1]
        for message in new:
            if message.role == "assistant":
                reply = self._numbers.get(_meaning(message))
                answered = None if before is None else self._numbers.get(_meaning(before))
                if reply in self._replies or (answered, reply) in self._answers:
                    return True
            before = message
        return False

    def fork(self, turn: Turn) -> None:
        """Let a turn have a conversation of its own: its tokens cannot go on from the call's."""
        if turn.parent is not None:
            self.give_up(turn)
            turn.conversation = self._next_conversation()
        turn.continuation, turn.base, turn.rewrites = Continuation.FORKED, None, frozenset()

    def give_up(self, turn: Turn) -> None:
        """The call failed, or was cancelled: another may go on in its place. Nothing once ended."""
        if turn.parent is not None:
            turn.parent.count_next(-1, trained=turn.trained)
            turn.parent = None

    def shared(self, prompt: ChatPrompt) -> ChatPrompt:
        """The same prompt, of the instances of messages and tools that all calls share."""
        pairs = zip_longest(prompt.messages, self._way(prompt).shared)
        messages = [shared or self._known(message)[0] for message, shared in pairs]
        return replace(prompt, messages=tuple(messages), tools=self._known_tools(prompt.tools)[0])

    def end(self, turn: Turn, call: PackedCall, *, reply: Message) -> None:
        """The call has its reply: prompts may go on from it.

        Args:
            turn: Of the call.
            call: With the messages of `shared`.
            reply: As the program reads it.
        """
        self.rewrites.update(turn.rewrites)
        ended = _Ended(
            call=call, reply=reply, tools=None, renderer=turn.renderer, parent=turn.parent
        )
        if isinstance(turn.prompt, ChatPrompt):
            ended.reply = self._known(reply)[0]
            ended.tools = self._known_tools(turn.prompt.tools)[1]
            way = self._way(turn.prompt)
            defaults = self._defaults_of(turn.prompt)
            for before, message, found in way.by_defaults:
                self._edges.setdefault((before, self._known(message)[1]), found)
            node = way.node
            for message in turn.prompt.messages[len(way.shared) :]:
                node = self._edge(node, message)[1] or self._add_edge(node, message)
            self._asked.add(node)
            number = self._known(ended.reply)[1]
            if reply.tool_calls or len(reply.text) >= _TELLING:
                self._replies.add(number)
            if turn.prompt.messages:
                self._answers.add((self._known(turn.prompt.messages[-1])[1], number))
            self._ended[self._add_reply(node, ended, defaults)].append(ended)
        elif call.tokens is not None:
            self._add_raw(ended, call.tokens)
        turn.parent = None

    # Conversations

    def _turn(
        self,
        prompt: ChatPrompt | tuple[int, ...],
        parent: _Ended | None,
        *,
        trained: bool,
        renderer: Renderer | None,
        goes_on: bool,
    ) -> Turn:
        """A turn that goes on from `parent`, in its conversation if that is not taken."""
        if parent is None:
            continuation = Continuation.START
        elif not goes_on or parent.is_taken(trained=trained):
            continuation = Continuation.FORKED
        else:
            continuation = Continuation.EXACT
            parent.count_next(1, trained=trained)
        stays = parent if continuation is Continuation.EXACT else None
        return Turn(
            prompt=prompt,
            trained=trained,
            renderer=renderer,
            conversation=stays.call.bare.conversation if stays else self._next_conversation(),
            continuation=continuation,
            base=parent.call if parent is not None and goes_on else None,
            parent=stays,
        )

    def _next_conversation(self) -> int:
        self._num_conversations += 1
        return self._num_conversations - 1

    def _preferred(
        self, prompt: ChatPrompt, way: _Way, *, trained: bool, renderer: Renderer | None
    ) -> _Ended:
        """Of calls whose replies read alike, the one that the prompt best goes on from."""
        candidates = self._ended[way.ended_node]
        if len(candidates) == 1:
            return candidates[0]
        tools, sent = self._number_of(prompt.tools), prompt.messages[way.ended_depth - 1]

        def preference(each: _Ended) -> tuple[bool, ...]:
            return (
                each.tools == tools,
                each.renderer is renderer,
                _ids(each.reply) == _ids(sent),
                each.reply.reasoning == sent.reasoning,
                not each.is_taken(trained=trained),
            )

        return max(reversed(candidates), key=preference)

    # The tree

    def _way(self, prompt: ChatPrompt) -> _Way:
        """How far the messages lead. It changes nothing: what is refused leaves nothing."""
        if self._newest_way is not None and self._newest_way[0] is prompt:
            return self._newest_way[1]
        node = ended_node = _ROOT
        on_way: list[Message | None] = []
        by_defaults: list[tuple[int, Message, int]] = []
        ended_depth = 0
        for message in prompt.messages:
            shared, found = self._edge(node, message)
            if found is None and message.tool_calls:
                found = self._edge_by_defaults(node, message, self._defaults_of(prompt))
                by_defaults += [] if found is None else [(node, message, found)]
            if found is None:
                break
            node = found
            on_way.append(shared)
            if node in self._ended and len(on_way) < len(prompt.messages):
                ended_node, ended_depth = node, len(on_way)
        way = _Way(node, tuple(on_way), ended_node, ended_depth, tuple(by_defaults))
        self._newest_way = (prompt, way)
        return way

    def _edge(self, node: int, message: Message) -> tuple[Message | None, int | None]:
        """The shared instance of a message, if there is one, and the node that it leads to."""
        shared, number = self._exact.get(message) or (None, None)
        if number is None:
            number = self._numbers.get(_meaning(message))
        return shared, self._led_to(node, number, message)

    def _edge_by_defaults(self, node: int, message: Message, defaults: "_Defaults") -> int | None:
        """The node that a reply leads to which is this message but for defaults."""
        number = self._numbers.get(_meaning_but_for(defaults, message))
        return self._led_to(node, number, message)

    def _led_to(self, node: int, number: int | None, message: Message) -> int | None:
        """The node that a message of a meaning leads to."""
        if number is None:
            return None
        found = self._edges.get((node, number))
        thought = message.reasoning.strip()
        if found is None or not thought or self._may_have(found, thought):
            return found
        return self._edges.get((node, number, thought))

    def _may_have(self, node: int, thought: str) -> bool:
        """Whether the message that leads to a node may come with this thought."""
        thoughts = self._thoughts.get(node, frozenset[str]())
        return thoughts is None or thought in thoughts

    def _add_edge(self, node: int, message: Message) -> int:
        """A new node, that a message leads to."""
        number, thought = self._known(message)[1], message.reasoning.strip()
        key = (node, number, thought) if (node, number) in self._edges else (node, number)
        added = self._edges[key] = self._num_nodes
        self._num_nodes += 1
        self._followers.setdefault(node, deque(maxlen=_FOLLOWERS)).append(self._known(message)[0])
        if thought:
            self._thoughts[added] = {thought}
        return added

    def _add_reply(self, node: int, ended: _Ended, defaults: "_Defaults") -> int:
        """The node that a reply leads to, with its thoughts and without."""
        bare = self._edges.get((node, self._known(ended.reply)[1]))
        found = self._add_edge(node, ended.reply) if bare is None else bare
        if any(call.name in defaults for call in ended.reply.tool_calls):
            meaning = _meaning_but_for(defaults, ended.reply)
            number = self._numbers.setdefault(meaning, len(self._numbers))
            self._edges.setdefault((node, number), found)
        if ended.call.tokens is None:
            self._thoughts[found] = None  # of another's model nobody knows them here
        elif ended.reply.reasoning:
            thoughts = self._thoughts.setdefault(found, set())
            if thoughts is not None:
                thoughts.add(ended.reply.reasoning.strip())
        return found

    # Meanings

    def _known(self, message: Message) -> tuple[Message, int]:
        """The shared instance of a message, and the number of what it means."""
        known = self._exact.get(message)
        if known is None:
            number = self._numbers.setdefault(_meaning(message), len(self._numbers))
            known = self._exact[message] = (message, number)
        return known

    def _known_tools(self, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], int]:
        known = self._exact_tools.get(tools)
        if known is None:
            number = self._numbers.setdefault(_tools_meaning(tools), len(self._numbers))
            known = self._exact_tools[tools] = (tools, number)
        return known

    def _number_of(self, tools: tuple[Tool, ...]) -> int | None:
        """The number of what tools mean; None if no call had such tools."""
        known = self._exact_tools.get(tools)
        return self._numbers.get(_tools_meaning(tools)) if known is None else known[1]

    def _defaults_of(self, prompt: ChatPrompt) -> "_Defaults":
        tools = prompt.callable_tools
        known = self._defaults.get(tools)
        if known is None:
            known = self._defaults[tools] = _defaults_of(tools)
        return known

    # Prompts of tokens

    def _longest_raw(self, tokens: tuple[int, ...], *, trained: bool) -> _Ended | None:
        """The call of which a prompt of tokens repeats most, all of it that is."""
        hashed, at, found = blake2b(digest_size=16), 0, list[_Ended]()
        size = packed_tokens(()).itemsize
        packed = memoryview(packed_tokens(tokens)).cast("B")
        for length in self._raw_lengths:
            if length > len(tokens):
                break
            hashed.update(packed[at * size : length * size])
            at = length
            found = self._raw.get(hashed.digest(), found)
        free = (each for each in reversed(found) if not each.is_taken(trained=trained))
        return next(free, found[-1] if found else None)

    def _add_raw(self, ended: _Ended, tokens: "array[int]") -> None:
        digest = blake2b(tokens, digest_size=16).digest()
        self._raw[digest].append(ended)
        if len(tokens) not in self._raw_lengths:
            insort(self._raw_lengths, len(tokens))


def _ids(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls]


def _meaning(message: Message, defaults: _Defaults = _NO_DEFAULTS) -> tuple[object, ...]:
    """What is left of a message without all that is looked through; its thoughts are apart."""
    parts: list[Part] = []
    for part in message.parts:
        if parts and isinstance(part, str) and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    bare = [_brief(part.strip()) if isinstance(part, str) else part for part in parts]
    calls = [
        (call.name, _json_meaning(call.arguments or "{}", defaults.get(call.name, {})))
        for call in message.tool_calls
    ]
    return (message.role, tuple(part for part in bare if part), tuple(calls))


def _meaning_but_for(defaults: _Defaults, message: Message) -> tuple[object, ...]:
    """What a message means, less the arguments that have their tool's defaults."""
    return ("but for defaults", *_meaning(message, defaults))


def _defaults_of(tools: tuple[Tool, ...]) -> _Defaults:
    found: dict[str, Mapping[str, str]] = {}
    for tool in tools:
        try:
            properties = _object(_object(_parsed(tool.parameters)).get("properties"))
        except (ValueError, RecursionError):
            continue
        schemas = {name: _object(schema) for name, schema in properties.items()}
        own = {
            name: _written(schema["default"])
            for name, schema in schemas.items()
            if "default" in schema
        }
        if own:
            found[tool.name] = own
    return found


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _brief(text: str) -> str | bytes:
    """A text, or the hash of a long one: the text itself is kept once, in its message."""
    if len(text) <= _LONGEST_KEY:
        return text
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _tools_meaning(tools: tuple[Tool, ...]) -> tuple[object, ...]:
    return tuple(
        (tool.name, tool.description.strip(), _json_meaning(tool.parameters)) for tool in tools
    )


def _json_meaning(text: str, defaults: Mapping[str, str] = _NO_DEFAULTS) -> str | bytes:
    """JSON in one way of writing it; text that is no JSON without the white space around it."""
    try:
        value = _parsed(text)
        if defaults and isinstance(value, dict):
            given = cast("dict[str, object]", value).items()
            value = {name: one for name, one in given if defaults.get(name) != _written(one)}
        meant = _written(value)
    except (ValueError, RecursionError):  # a program may send anything, and as deep as it likes
        meant = text.strip()
    return _brief(meant)


def _parsed(text: str) -> object:
    return json.loads(text, parse_float=_number)


def _written(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _number(text: str) -> float:
    """A number as JavaScript would write it: without a fraction that is zero."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _rewrites(parent: _Ended, prompt: ChatPrompt, way: _Way) -> frozenset[Rewrite]:
    """What is looked through where a prompt goes on from a call."""
    found: set[Rewrite] = set()
    if prompt.tools != parent.call.bare.tools:
        found.add(Rewrite.TOOLS)
    repeated = (*parent.call.bare.messages, parent.reply)
    for known, shared, message in zip(repeated, way.shared, prompt.messages, strict=False):
        if known is shared:
            continue
        if known.reasoning != message.reasoning:
            found.add(Rewrite.REASONING)
        if known.parts != message.parts:
            split = "".join(_texts(known)) == "".join(_texts(message))
            found.add(Rewrite.PARTS if split else Rewrite.WHITE_SPACE)
        for one, other in zip(known.tool_calls, message.tool_calls, strict=True):
            if one.arguments != other.arguments:
                means, sent = (_json_meaning(call.arguments or "{}") for call in (one, other))
                found.add(Rewrite.ARGUMENTS if means == sent else Rewrite.DEFAULTS)
        if _ids(known) != _ids(message) or known.tool_call_id != message.tool_call_id:
            found.add(Rewrite.TOOL_IDS)
    return frozenset(found)


def _texts(message: Message) -> list[str]:
    return [part for part in message.parts if isinstance(part, str)]
