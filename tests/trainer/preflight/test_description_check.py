"""Tests for `longhaul_trainer.preflight.description_check`, on real model folders."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.preflight.description_check import (
    problems_of,
    require_chat_template,
    require_named,
)
from longhaul_trainer.preflight.doctor import Status, check_model

REFUSES_SYSTEM = """
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{ raise_exception('no system messages') }}{%- endif -%}
{{ message['content'] }}
{%- endfor -%}
"""
REFUSES_ASSISTANT = REFUSES_SYSTEM.replace("system", "assistant")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model folder of the user's own."""
    return Path(shutil.copytree(prepare_model("tiny"), tmp_path / "model"))


def run_with(**sections: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 2,
            "tasks_per_training_step": 4,
            "environment": {"id": "longhaul/TextCraft-v0", "options": {"depth": 1}},
            "validation": {"num_tasks": 4, "test_num_tasks": 4},
        }
        | sections
    )


def test_a_run_that_names_what_is_there_has_no_problem(model: Path) -> None:
    assert problems_of(run_with(model={"path": str(model)}), deeply=True) == []


def test_a_tracker_whose_package_is_missing_is_told(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_with(model={"path": str(model)}, trackers=["tensorboard", "mlflow"])
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as where it is not installed

    (problem,) = problems_of(run)

    assert problem.startswith('trackers: the package of "mlflow" is not installed')


def test_what_is_not_there_is_told_all_at_once(tmp_path: Path) -> None:
    run = run_with(
        tasks_per_training_step=100_000,
        model={"path": str(tmp_path / "gone")},
        algorithm={"name": "gae", "reward_shaping": "no_such_module:rewards"},
        critic={"path": str(tmp_path / "gone_too")},
        validation={"num_tasks": 50_000, "test_num_tasks": 60_000},
        verl={"trainer.nodes": 3},
    )

    problems = problems_of(run, deeply=True)

    assert [line.partition(" ")[0] for line in problems[:3]] == [
        "tasks_per_training_step",
        "validation.num_tasks",
        "validation.test_num_tasks",
    ]
    assert "has 574 training tasks" in problems[0]
    assert [problem.partition(" = ")[0] for problem in problems[3:5]] == [
        "model.path",
        "critic.path",
    ]
    assert "no_such_module" in problems[5]
    assert "did you mean 'trainer.nnodes'?" in problems[6]
    assert len(problems) == 7


def test_parts_of_ones_own_that_are_not_there_are_told_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts_to_check.py").write_text("def one(): ...\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    run = run_with(
        algorithm={"name": "parts_to_check:none", "reward_shaping": "parts_to_check:two"},
        memory={"kind": "parts_to_check:one"},
        prompt={"template": "no_such_place:template"},
        actions={"format": "parts_to_check:one"},
    )

    problems = problems_of(run)

    assert [problem.partition(": ")[0] for problem in problems] == [
        "algorithm.reward_shaping = 'parts_to_check:two'",
        "algorithm.name = 'parts_to_check:none'",
        "memory.kind = 'parts_to_check:one'",
        "actions.format = 'parts_to_check:one'",
        "prompt.template = 'no_such_place:template'",
    ]
    assert "has no none" in problems[1]
    assert "is called as one(size=, template=), and takes ()" in problems[2]
    with pytest.raises(ConfigError, match=r"importing no_such_place: ModuleNotFoundError"):
        require_named(run)


@pytest.mark.parametrize("method", ["compose", "write"])
def test_a_memory_of_ones_own_that_raises_is_told_by_its_setting(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    (tmp_path / f"memory_without_{method}.py").write_text(
        "from longhaul_core.memory import WindowMemory\n"
        "class Broken(WindowMemory):\n"
        f"    def {method}(self, *args, **kwargs):\n"
        "        raise KeyError('lost')\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    kind = f"memory_without_{method}:Broken"

    (problem,) = problems_of(run_with(model={"path": str(model)}, memory={"kind": kind}))

    assert problem == f"memory.kind = '{kind}': {method}: KeyError: 'lost'"


def test_a_memory_of_ones_own_may_say_what_credits_its_calls(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory_that_credits.py").write_text(
        "from longhaul_core.memory import WindowMemory\n"
        "from longhaul_core.types import CreditedBy, Message\n"
        "class Credited(WindowMemory):\n"
        "    async def write(self, *, context, **rest):\n"
        "        await super().write(context=context, **rest)\n"
        "        asked = [Message(role='user', content='What is to be kept?')]\n"
        "        await context.complete(asked, credit_share=0.5, credited_by=CreditedBy.STEP)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    settings = {"kind": "memory_that_credits:Credited"}
    assert problems_of(run_with(model={"path": str(model)}, memory=settings)) == []


def test_extra_tasks_count_as_tasks_of_the_training_step() -> None:
    run = run_with(tasks_per_training_step=500, sampling={"extra_tasks": 75})

    (problem,) = problems_of(run, deeply=True)

    assert "tasks_per_training_step = 500 and sampling.extra_tasks = 75" in problem
    assert problems_of(run_with(tasks_per_training_step=574), deeply=True) == []


def test_a_model_that_cannot_be_read_is_told_by_its_setting(model: Path) -> None:
    (model / "config.json").write_text("{", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"critic\.path = .* cannot be read"):
        require_named(run_with(algorithm={"name": "gae"}, critic={"path": str(model)}))


def test_calls_that_are_longer_than_what_the_model_reads_are_refused(model: Path) -> None:
    file = model / "config.json"
    shape = json.loads(file.read_bytes())
    file.write_text(json.dumps({**shape, "max_position_embeddings": 600}), encoding="utf-8")
    named: dict[str, object] = {"path": str(model)}

    fits = run_with(model=named, rollout={"max_prompt_tokens": 592, "max_reply_tokens": 8})
    longer = run_with(model=named, rollout={"max_prompt_tokens": 592, "max_reply_tokens": 9})

    assert problems_of(fits) == []
    (problem,) = problems_of(longer)
    assert "592 + 9 = 601 is more than model.path" in problem
    assert "reads, 600" in problem


def test_a_model_without_a_chat_template_is_refused_by_name(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    run = run_with(model={"path": str(model)})

    with pytest.raises(ConfigError, match=f"model.path = '{model}': .*chat_template is not set"):
        require_named(run)
    finding = check_model(run)
    assert (finding.status, finding.error) == (Status.BAD, ConfigError)
    assert "chat_template is not set" in finding.found


def test_a_chat_template_that_refuses_the_runs_prompts_is_told_with_its_own_words(
    model: Path,
) -> None:
    (model / "chat_template.jinja").write_text(REFUSES_SYSTEM, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"messages of system, user: .*no system messages"):
        require_named(run_with(model={"path": str(model)}, prompt={"system": "You craft."}))
    require_named(run_with(model={"path": str(model)}, prompt={"system": ""}))


def test_a_chat_template_is_tried_on_the_second_step_too(model: Path) -> None:
    (model / "chat_template.jinja").write_text(REFUSES_ASSISTANT, encoding="utf-8")
    path, prompt = {"path": str(model)}, {"system": ""}

    with pytest.raises(ConfigError, match=r"user, assistant, user: .*no assistant messages"):
        require_named(run_with(model=path, prompt=prompt, memory={"kind": "full"}))
    require_named(run_with(model=path, prompt=prompt, memory={"kind": "window"}))


def test_a_template_of_the_runs_own_takes_the_place_of_the_models(
    model: Path, tmp_path: Path
) -> None:
    (model / "chat_template.jinja").write_text(REFUSES_SYSTEM, encoding="utf-8")
    prompt = {"system": "You craft."}

    run = run_with(model={"path": str(model), "chat_template": "chatml-thoughts"}, prompt=prompt)
    require_named(run)
    assert "enable_thinking" in (run.with_absolute_paths(tmp_path).model.chat_template or "")
    with pytest.raises(ConfigError, match=r"none\.jinja.*No such file"):
        require_named(run_with(model={"path": str(model), "chat_template": "none.jinja"}))


def test_a_template_that_writes_the_time_of_day_is_refused_with_the_remedy(model: Path) -> None:
    writes = "{% if now is not defined %}{% set now = strftime_now('FORMAT') %}{% endif %}{{ now }}"
    path = str(model)
    file = model / "chat_template.jinja"
    whole = writes + file.read_text(encoding="utf-8")

    file.write_text(whole.replace("FORMAT", "%d %b %Y"), encoding="utf-8")
    require_named(run_with(model={"path": path}))
    file.write_text(whole.replace("FORMAT", "%H:%M"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"time of day \(strftime_now\).*chat_template_kwargs"):
        require_named(run_with(model={"path": path}))
    with pytest.raises(ConfigError, match="time of day"):
        require_chat_template(
            run_with(agent={"kind": "command", "command": [sys.executable]}, model={"path": path})
        )
    require_named(run_with(model={"path": path, "chat_template_kwargs": {"now": "noon"}}))


def test_a_chat_template_that_is_not_jinja_is_refused(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{% for message in %}", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"model.path = .*TemplateSyntaxError"):
        require_named(run_with(model={"path": str(model)}))


def test_a_tokenizer_that_cannot_be_loaded_is_refused(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ConfigError, match="tokenizer cannot be loaded") as refused:
        require_named(run_with(model={"path": str(model)}))
    assert "chat_template" not in str(refused.value)
    assert "put the tokenizer's files" in str(refused.value)


def test_a_chat_template_that_refuses_what_programs_ask_is_not_taken_for_a_tokenizer(
    model: Path,
) -> None:
    refuses_user = REFUSES_SYSTEM.replace("system", "user")
    (model / "chat_template.jinja").write_text(refuses_user, encoding="utf-8")
    program: dict[str, object] = {"kind": "command", "command": ["true"]}

    with pytest.raises(ConfigError, match="no user messages") as refused:
        require_chat_template(run_of_program(program, source="tasks.jsonl", model=str(model)))

    assert "tokenizer cannot be loaded" not in str(refused.value)
    assert "[memory]" not in str(refused.value), "programs compose their messages themselves"


def test_a_training_in_bfloat16_is_refused_and_an_evaluation_is_not(model: Path) -> None:
    run = run_with(model={"path": str(model), "dtype": "bfloat16"})

    with pytest.raises(ConfigError, match=r'model\.dtype = "bfloat16" would train'):
        require_named(run)
    require_named(run, trains=False)


@pytest.mark.parametrize("built_in", [True, False])
def test_an_adapter_of_a_layer_that_the_model_does_not_have_is_refused(
    model: Path, *, built_in: bool
) -> None:
    path = "tiny" if built_in else str(model)

    def run(*modules: str) -> RunConfig:
        adapter = {"lora_rank": 4, "lora_target_modules": modules}
        return run_with(model={"path": path} | adapter)

    require_named(run("q_proj", "mlp.down_proj"))
    with pytest.raises(
        ConfigError,
        match=r"has no layer called 'query', 'attn.q_proj'; it has down_proj, .*, v_proj",
    ):
        require_named(run("query", "attn.q_proj", "v_proj"))


def test_what_is_not_there_for_a_model_that_reads_pictures_is_told_all_at_once(
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(prepare_model("tiny-vision"), tmp_path / "model"))
    model = {"path": str(folder), "lora_rank": 4}
    of_training = {"algorithm": {"name": "gae"}, "rollout": {"group_size": 2}}

    assert problems_of(run_with(model=model, **of_training)) == []
    (folder / "preprocessor_config.json").unlink()
    problems = problems_of(run_with(model=model | {"pictures": "never"}, **of_training))

    assert "lacks preprocessor_config.json" in problems[0]
    assert problems[1].startswith('model.pictures = "never"')
    assert problems_of(run_with(model={"path": "tiny-vision"}, **of_training)) == []


def test_pictures_for_a_model_that_reads_none_are_refused_unless_the_run_agrees() -> None:
    def problems(*, observation: str = "image", **model: str) -> list[str]:
        sokoban = {"id": "longhaul/Sokoban-v0", "options": {"observation": observation}}
        return problems_of(run_with(environment=sokoban, model=model))

    (refused,) = problems(path="tiny")
    (agreed_in_vain,) = problems(path="tiny-vision", pictures="never")

    assert "longhaul/Sokoban-v0 shows pictures, and model.path = 'tiny' reads none" in refused
    assert 'agree by model.pictures = "never"' in refused
    assert agreed_in_vain.startswith("model.pictures = \"never\": model.path = 'tiny-vision' reads")
    assert problems(path="tiny", pictures="never") == []
    assert problems(path="tiny-vision") == problems(path="tiny-vision", pictures="grey") == []
    assert problems(path="tiny", observation="grid") == []
    (grey,) = problems(path="tiny", observation="grid", pictures="grey")
    assert grey.startswith("model.pictures = \"grey\": model.path = 'tiny' reads no pictures")


def test_calls_of_tools_need_an_environment_that_offers_some() -> None:
    actions, prompt = {"format": "tool_call"}, {"reply_prefix": "<action>"}

    offers, prefix = problems_of(run_with(actions=actions, prompt=prompt))

    assert offers.startswith('actions.format = "tool_call" calls tools, and ')
    assert 'offers none; set actions.format = "tags"' in offers
    assert prefix.startswith("prompt.reply_prefix = '<action>' begins no call of a tool")
    assert problems_of(run_with(actions={"format": "tags"}, prompt=prompt)) == []


def test_a_chat_template_that_leaves_pictures_out_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(prepare_model("tiny-vision"), tmp_path / "model"))
    template = folder / "chat_template.jinja"
    blind = template.read_text(encoding="utf-8").replace("<|image_pad|>", "")
    template.write_text(blind, encoding="utf-8")

    (problem,) = problems_of(run_with(model={"path": str(folder)}))
    program: dict[str, object] = {"kind": "command", "command": ["true"]}
    of_program = run_of_program(program, source="tasks.jsonl", model=str(folder))
    with pytest.raises(ConfigError) as refused:
        require_chat_template(of_program)

    assert "1 pictures and 0 placeholders" in problem
    assert "1 pictures and 0 placeholders" in str(refused.value)


def test_what_a_program_needs_is_looked_up_before_the_run_and_told_all_at_once(
    tmp_path: Path,
) -> None:
    run = run_of_program(
        {"kind": "command", "command": ["no-such-program"], "grader": "no_such_module:grade"},
        source=str(tmp_path / "gone.jsonl"),
    )

    problems = "\n".join(problems_of(run))

    assert "no-such-program" in problems
    assert "agent.grader = 'no_such_module:grade'" in problems
    assert "gone.jsonl" in problems


def test_a_program_that_is_there_has_no_problem_and_its_tasks_are_split(tmp_path: Path) -> None:
    hunts = tmp_path / "hunts.jsonl"
    hunts.write_text("".join(f'{{"number": {n}}}\n' for n in range(100)), encoding="utf-8")
    run = run_of_program({"kind": "command", "command": [sys.executable]}, source=str(hunts))

    assert problems_of(run, deeply=True) == []
    too_many = run.model_copy(update={"tasks_per_training_step": 101})
    (problem,) = problems_of(too_many, deeply=True)
    assert "hunts has" in problem


def test_a_program_may_have_the_tasks_of_an_environment() -> None:
    run = run_with(agent={"kind": "command", "command": [sys.executable]}, model={"path": "tiny"})

    assert problems_of(run, deeply=True) == []


def run_of_program(agent: dict[str, object], *, source: str, model: str = "tiny") -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 2,
            "tasks_per_training_step": 4,
            "model": {"path": model},
            "agent": agent,
            "tasks": {"source": source},
            "validation": {"num_tasks": 2, "test_num_tasks": 2},
        }
    )
