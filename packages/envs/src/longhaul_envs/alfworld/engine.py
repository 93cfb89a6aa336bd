"""Plays a game: TextWorld's PDDL state and grammar, and Fast Downward's successor generator.

What `textworld.envs.PddlEnv` does, at a fraction of its cost: a problem is translated once instead
of four times, the planner that nobody asks is not loaded (on a large kitchen it searches for
minutes), and commands are formatted instead of parsed. Each engine has a copy of Fast Downward's
library to itself, and leaves it to the next one: a process that loads some 1,200 copies crashes,
even if it closes each. The translator is Python with module globals, and runs under a lock.
"""

import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from longhaul_envs.alfworld.game import UNKNOWN_GOAL, Game
from longhaul_envs.extras import required
from longhaul_envs.task_lists import content_hash

__all__ = ["NOTHING_HAPPENS", "Engine", "Facts"]

NOTHING_HAPPENS = "Nothing happens."
"""The authors' answer to what cannot be done."""

_CHANGING = (
    "atlocation",
    "opened",
    "inreceptacle",
    "holds",
    "isclean",
    "ishot",
    "iscool",
    "issliced",
    "istoggled",
    "ison",
)
"""Facts that differ between states, but for what was looked at (`checked`): nothing reads that."""

Facts = Mapping[str, frozenset[tuple[str, ...]]]
"""Predicate to the arguments of which it holds."""

_translator = threading.Lock()
_free_libraries: list[Any] = []
"""Copies that no engine has."""


def _loaded() -> Any:  # noqa: ANN401  ctypes'
    return required("fast_downward", "alfworld").load_lib()


def _give_back(library: Any) -> None:  # noqa: ANN401  ctypes'
    library.cleanup()
    _free_libraries.append(library)


class Engine:
    """One game at a time."""

    def __init__(self) -> None:
        """Load a copy of Fast Downward.

        Raises:
            ConfigError: The extra is not installed.
        """
        self._lib: Any = _free_libraries.pop() if _free_libraries else _loaded()
        self._give_back = weakref.finalize(self, _give_back, self._lib)
        self._state: Any = None
        self._grammar: Any = None
        self._actions: dict[str, Any] = {}
        self._entities: dict[str, Any] = {}
        self._operators: dict[str, Any] = {}
        self._salt = ""

    def begin(self, game: Game) -> str:
        """Start `game`; the room in words, and the goal."""
        logic = _logic(game.domain, game.grammar)
        task, sas = _translated(game.domain, game.problem)
        self._state = _state_class()(self._lib, task, sas, logic)
        self._grammar, self._actions = logic.grammar, logic.actions
        self._entities = _entities(self._state)
        self._salt = content_hash(f"{game.goal}\n{game.problem}")[:8]
        self._operators = self._applicable()
        return self._words("#intro#", {}).replace(UNKNOWN_GOAL, game.goal)

    def step(self, command: str) -> str:
        """Do `command`; what comes of it, in words."""
        operator = self._operators.get(command)
        if operator is None:
            return NOTHING_HAPPENS
        effects = (_atom_class() * operator.nb_effect_atoms)()
        self._lib.apply_operator(operator.id, effects)
        for effect in effects:
            fact = effect.get_fact(self._state.name2type)
            self._state.remove_fact(fact.negate())
            self._state.add_fact(fact)
        name, *arguments = operator.name.split()
        feedback = self._words(self._actions[name].feedback_rule, self._mapping(name, arguments))
        self._operators = self._applicable()
        return feedback

    @property
    def commands(self) -> list[str]:
        """What can be done, sorted."""
        return sorted(self._operators)

    @property
    def is_won(self) -> bool:
        """Whether the goal holds."""
        return bool(self._lib.check_goal())

    def command(self, action: str, arguments: Mapping[str, str]) -> str:
        """How an action of the domain reads, e.g. `gotolocation` with `{"r": ID}`."""
        # The grammar looks up the receptacle of a walk by its place, though it is an argument.
        template = "go to {r}" if action == "gotolocation" else self._actions[action].template
        names = {name: self._entities[entity].name for name, entity in arguments.items()}
        return str(template.format(**names))

    def facts(self) -> Facts:
        """What holds, by the ids of the problem in small letters."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for fact in self._state.facts:
            found.setdefault(fact.name, set()).add(tuple(fact.names))
        return {name: frozenset(arguments) for name, arguments in found.items()}

    def state_text(self) -> str:
        """Equal exactly when the game and its state are: a hash of the one, the facts of the other.

        Of the facts those that can change. A receptacle stands for its location.
        """
        facts = self.facts()
        at = {place: receptacle for receptacle, place in facts["receptacleatlocation"]}

        def name(entity: str) -> str:
            info = self._entities[at.get(entity, entity)]
            return str(info.name).strip()

        held = sorted(
            f"{predicate}({', '.join(map(name, arguments))})"
            for predicate in _CHANGING
            for arguments in facts.get(predicate, ())
        )
        return f"{self._salt} {'; '.join(held)}"

    def close(self) -> None:
        """Leave the library to another engine; safe to call again."""
        self._give_back()
        self._lib = None

    def _applicable(self) -> dict[str, Any]:
        """Every command to the first operator that it stands for."""
        operators = (_operator_class() * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(operators)
        found: dict[str, Any] = {}
        for operator in operators:
            name, *arguments = operator.name.split()
            parameters = (p.name.strip("?") for p in self._state.actions[name].parameters)
            # The translator adds parameters for what an action's condition quantifies over.
            bound = dict(zip(parameters, arguments, strict=False))
            found.setdefault(self.command(name, bound), operator)
        return found

    def _mapping(self, name: str, arguments: list[str]) -> dict[Any, Any]:
        logic: Any = required("textworld.logic", "textworld")
        return {
            logic.Placeholder(p.name.strip("?"), p.type_name): logic.Variable(a, p.type_name)
            for p, a in zip(self._state.actions[name].parameters, arguments, strict=False)
        }

    def _words(self, rule: str, mapping: Mapping[Any, Any]) -> str:
        context = {
            "state": self._state,
            "facts": list(self._state.facts),
            "variables": {ph.name: self._entities[v.name] for ph, v in mapping.items()},
            "mapping": mapping,
            "entity_infos": self._entities,
        }
        return str(self._grammar.derive(rule, context))


def _entities(state: Any) -> dict[str, Any]:  # noqa: ANN401
    """Every id to what the grammar knows of it, with the authors' names: `cabinet 3`."""
    game: Any = required("textworld.generator.game", "textworld")
    misc: Any = required("alfworld.agents.utils.misc", "alfworld")
    found = {v.name: v.type for fact in state.facts for v in fact.arguments}
    infos = {name: game.EntityInfo(name, kind) for name, kind in sorted(found.items())}
    for info in infos.values():
        info.definite, info.indefinite = "the", "a"
    names = misc.Demangler(game_infos=infos)
    for info in infos.values():
        info.name = str(names.demangle_alfred_name(info.id)).strip()
    return infos


@lru_cache(maxsize=4)
def _logic(domain: str, grammar: str) -> Any:  # noqa: ANN401
    logic: Any = required("textworld.envs.pddl.logic", "textworld")
    return logic.GameLogic(domain=domain, grammar=grammar)


@lru_cache(maxsize=16)  # a group plays one game several times
def _translated(domain: str, problem: str) -> tuple[Any, str]:
    downward: Any = required("fast_downward", "alfworld")
    with _translator, _kept_argv():
        return downward.pddl2sas(domain, problem)


@contextmanager
def _kept_argv() -> Generator[None]:
    """The translator writes its own command line into `sys.argv`."""
    kept = sys.argv
    try:
        yield
    finally:
        sys.argv = kept


def _atom_class() -> Any:  # noqa: ANN401
    logic: Any = required("textworld.envs.pddl.logic", "textworld")
    return logic.Atom


def _operator_class() -> Any:  # noqa: ANN401
    downward: Any = required("fast_downward", "alfworld")
    return downward.Operator


@lru_cache(maxsize=1)
def _state_class() -> Any:  # noqa: ANN401
    """TextWorld's `PddlState`, put together from a translation that is there already."""
    module: Any = required("textworld.envs.pddl.logic", "textworld")
    model: Any = required("textworld.logic", "textworld")

    class State(model.State):
        def __init__(self, lib: Any, task: Any, sas: str, logic: Any) -> None:  # noqa: ANN401
            known = {kind.name for kind in logic.types}
            for kind in task.types:  # `object` stands among them twice
                if kind.name not in known:
                    known.add(kind.name)
                    logic.types.add(model.Type(kind.name, kind.supertype_names))
            # As PddlState: State's own __init__ takes none but a GameLogic of textworld.logic.
            self._logic = logic
            self._facts: dict[Any, set[Any]] = defaultdict(set)
            self._vars_by_name: dict[str, Any] = {}
            self._vars_by_type: dict[str, set[Any]] = defaultdict(set)
            self._var_counts: Counter[Any] = Counter()
            self.actions = {action.name: action for action in task.actions}
            self.name2type = {o.name: o.type_name for o in task.objects}
            lib.load_sas(sas.encode())
            self.add_facts(
                model.Proposition(
                    atom.predicate, [model.Variable(a, self.name2type[a]) for a in atom.args]
                )
                for atom in task.init
                if getattr(atom, "predicate", "=") != "="
            )
            atoms = (module.Atom * lib.get_state_size())()
            lib.get_state(atoms)
            facts = (atom.get_fact(self.name2type) for atom in atoms)
            self.add_facts(fact for fact in facts if not fact.is_negation)

    return State
