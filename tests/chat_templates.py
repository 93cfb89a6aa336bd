# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Tokenizers with chat templates as families of models have them, in our own words.

What they have in common with the real ones is what matters to a renderer: special tokens, where
tools, calls, thoughts and results stand, and what of earlier turns is left out. They share the
vocabulary of the built-in model `tiny`.
"""

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from longhaul_trainer.models import prepare_model

_TOOLS_OF_QWEN = """
{%- if tools -%}
<|im_start|>system
{{ messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' }}# Tools
<tools>{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
</tools>
{{ how }}<|im_end|>
{% elif messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif -%}
"""
_RESULTS_OF_QWEN = """
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif -%}
{{ '\\n' }}<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}
"""
_HERMES_CALLS = """
{%- for call in message.tool_calls or [] -%}
{%- if not loop.first or message.content %}{{ '\\n' }}{% endif -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
"""
_PLAIN_OF_QWEN = """<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""

QWEN25 = f"""
{{%- set how = 'Call by JSON within <tool_call></tool_call>.' -%}}
{_TOOLS_OF_QWEN}
{{%- for message in messages -%}}
{{%- if message.role == 'tool' -%}}
{_RESULTS_OF_QWEN}
{{%- elif message.role == 'assistant' -%}}
<|im_start|>assistant
{{{{ message.content }}}}{_HERMES_CALLS}<|im_end|>
{{% elif not (loop.first and message.role == 'system') -%}}
{_PLAIN_OF_QWEN}"""
"""No thoughts; results are a user's."""

QWEN3 = f"""
{{%- set how = 'Call by JSON within <tool_call></tool_call>.' -%}}
{_TOOLS_OF_QWEN}
{{%- set asked = namespace(last=0) -%}}
{{%- for message in messages -%}}
{{%- if message.role == 'user' %}}{{% set asked.last = loop.index0 %}}{{% endif -%}}
{{%- endfor -%}}
{{%- for message in messages -%}}
{{%- if message.role == 'tool' -%}}
{_RESULTS_OF_QWEN}
{{%- elif message.role == 'assistant' -%}}
<|im_start|>assistant
{{% if loop.index0 > asked.last and (loop.last or message.reasoning_content) -%}}
<think>
{{{{ message.reasoning_content }}}}
</think>

{{% endif %}}{{{{ message.content }}}}{_HERMES_CALLS}<|im_end|>
{{% elif not (loop.first and message.role == 'system') -%}}
{_PLAIN_OF_QWEN}"""
"""Thoughts of turns before the last question are left out."""

QWEN_CODER = f"""
{{%- set how = 'Call by <function=name><parameter=key>value</parameter></function>.' -%}}
{_TOOLS_OF_QWEN}
{{%- for message in messages -%}}
{{%- if message.role == 'tool' -%}}
{_RESULTS_OF_QWEN}
{{%- elif message.role == 'assistant' -%}}
<|im_start|>assistant
{{{{ message.content }}}}
{{%- for call in message.tool_calls or [] %}}
<tool_call>
<function={{{{ call.function.name }}}}>
{{% for key, value in call.function.arguments.items() -%}}
<parameter={{{{ key }}}}>
{{{{ value if value is string else value | tojson }}}}
</parameter>
{{% endfor -%}}
</function>
</tool_call>
{{%- endfor -%}}<|im_end|>
{{% elif not (loop.first and message.role == 'system') -%}}
{_PLAIN_OF_QWEN}"""
"""Calls in XML, where a number and its text look the same."""

THINKING = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif -%}
"""
"""Every prompt ends within a thought, and thoughts of earlier turns are left out. No tools."""

LLAMA3 = """<|begin_of_text|>
{%- set first = 1 if messages[0].role == 'system' else 0 -%}
<|start_header_id|>system<|end_header_id|>

{{ messages[0].content | trim if first else '' }}<|eot_id|>
{%- for message in messages[first:] -%}
{%- if message.role == 'tool' -%}
<|start_header_id|>ipython<|end_header_id|>

{{ message.content | tojson }}<|eot_id|>
{%- elif message.tool_calls -%}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif -%}
{%- set call = message.tool_calls[0].function -%}
<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
{%- else -%}
<|start_header_id|>{{ message.role }}<|end_header_id|>

{% if tools and loop.first -%}
Functions:
{% for tool in tools %}{{ tool | tojson(indent=4) + '\\n\\n' }}{% endfor -%}
{%- endif -%}
{{ message.content | trim }}<|eot_id|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif -%}
"""
"""Tools in the first question; a call is the whole reply."""

GPT_OSS = """<|start|>system<|message|>Channels: analysis, commentary, final.<|end|>
{%- set first = 1 if messages[0].role == 'system' else 0 -%}
{%- if first or tools -%}
<|start|>developer<|message|>{{ messages[0].content if first else '' }}
{%- for tool in tools or [] %}{{ '\\n' + tool | tojson }}{% endfor %}<|end|>
{%- endif -%}
{%- set called = namespace(name='') -%}
{%- for message in messages[first:] -%}
{%- if message.role == 'assistant' -%}
{%- set later = messages[first:][loop.index0 + 1:] -%}
{%- set open = later | rejectattr('role', 'equalto', 'tool')
             | rejectattr('tool_calls') | list | length == 0 -%}
{%- if message.thinking and (message.tool_calls or loop.last) and open -%}
<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>
{%- endif -%}
{%- if message.tool_calls -%}
{%- set call = message.tool_calls[0].function -%}
{%- set called.name = call.name -%}
<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>
{{- call.arguments | tojson }}<|call|>
{%- else -%}
<|start|>assistant<|channel|>final<|message|>{{ message.content -}}
{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
{%- endif -%}
{%- elif message.role == 'tool' -%}
<|start|>functions.{{ called.name }} to=assistant<|channel|>commentary<|message|>
{{- message.content | tojson }}<|end|>
{%- else -%}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif -%}
"""
"""Channels: thoughts and calls are messages of their own; a result is named by the last call."""

MISTRAL = """<s>
{%- set first = 1 if messages[0].role == 'system' else 0 -%}
{%- set asked = messages[first:] | selectattr('role', 'equalto', 'user') | list -%}
{%- for message in messages[first:] -%}
{%- if message.role == 'user' -%}
{%- if tools and message == asked[-1] -%}
[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]
{%- endif -%}
[INST]{{ messages[0].content + '\\n\\n' if first and loop.first else '' }}{{ message.content -}}
[/INST]
{%- elif message.role == 'tool' -%}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception('9 letters') }}{% endif -%}
[TOOL_RESULTS]{"content": {{ message.content | tojson }}, "call_id": "{{ message.tool_call_id }}"}
{#- -#} [/TOOL_RESULTS]
{%- elif message.tool_calls -%}
{{ message.content }}[TOOL_CALLS][
{%- for call in message.tool_calls -%}
{%- if call.id | length != 9 %}{{ raise_exception('9 letters') }}{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "
{#- -#} {{ call.id }}"}{{ ', ' if not loop.last else '' }}
{%- endfor -%}
]</s>
{%- else -%}
{{ message.content }}</s>
{%- endif -%}
{%- endfor -%}
"""
"""Tools before the last question, calls in a list, ids of nine letters; nothing begins a reply."""

MISTRAL_V11 = """<s>
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]
{%- elif message.role == 'user' -%}
[INST]{{ message.content }}[/INST]
{%- elif message.role == 'tool' -%}
[TOOL_RESULTS]{{ message.tool_call_id }}[TOOL_CONTENT]{{ message.content }}[/TOOL_RESULTS]
{%- else -%}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}
{%- endfor -%}
</s>
{%- endif -%}
{%- endfor -%}
"""
"""Each call after a mark and its name."""

_DEEPSEEK = """<｜begin▁of▁sentence｜>
{{- messages[0].content if messages[0].role == 'system' else '' }}
{%- if tools %}{{ '\\n\\n## Tools\\n' + tools | tojson }}{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<｜User｜>{{ message.content }}
{%- if not loop.last or add_generation_prompt %}<｜Assistant｜>{{ begin }}{% endif -%}
{%- elif message.role == 'tool' -%}
RESULTS
{%- elif message.role == 'assistant' -%}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
{{ '<｜tool▁calls▁begin｜>' if loop.first else BETWEEN -}}
<｜tool▁call▁begin｜>CALL<｜tool▁call▁end｜>
{{- '<｜tool▁calls▁end｜>' if loop.last else '' }}
{%- endfor -%}
<｜end▁of▁sentence｜>
{%- endif -%}
{%- endfor -%}
"""
DEEPSEEK_V3 = (
    _DEEPSEEK.replace("BETWEEN", "'\\n'")
    .replace("{{ begin }}", "")
    .replace(
        "CALL<",
        """{{ call.type + '<｜tool▁sep｜>' + call.function.name + '\\n```json\\n'
            + call.function.arguments | tojson + '\\n```' }}<""",
    )
    .replace(
        "RESULTS",
        """{{ '<｜tool▁outputs▁begin｜>' if messages[loop.index0 - 1].role != 'tool' else '\\n' -}}
        <｜tool▁output▁begin｜>{{ message.content }}<｜tool▁output▁end｜>
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<｜tool▁outputs▁end｜>
        {%- endif %}""",
    )
)
"""Arguments in a fence; a reply to results begins with no mark of its own."""
DEEPSEEK_R1 = DEEPSEEK_V3.replace(
    "<｜Assistant｜>{% endif", "<｜Assistant｜>{{ '<think>\\n' if loop.last }}{% endif"
).replace(
    "{{ message.content }}\n{%- for call",
    "{{ message.content.split('</think>') | last }}\n{%- for call",
)
"""As V3, but a thought is begun after a question, and not after results."""
DEEPSEEK_V31 = (
    _DEEPSEEK.replace("BETWEEN", "''")
    .replace("{{ begin }}", "</think>")
    .replace("CALL<", "{{ call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}<")
    .replace("RESULTS", "<｜tool▁output▁begin｜>{{ message.content }}<｜tool▁output▁end｜>")
)
"""Arguments are a text to it; a reply begins after a thought that is closed already."""

GEMMA = """<bos>
{%- set first = 1 if messages[0].role == 'system' else 0 -%}
{%- for message in messages[first:] -%}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ messages[0].content + '\\n\\n' if first and loop.first else '' }}{{ message.content | trim -}}
<end_of_turn>
{% endfor -%}
{%- if add_generation_prompt %}<start_of_turn>model
{% endif -%}
"""
"""The system's words stand in the first question. No tools."""

UNKNOWN = QWEN25.replace("<tool_call>", "(((").replace("</tool_call>", ")))")
"""Calls that nobody can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a family's tokenizer adds to the vocabulary, and its template."""

    template: str
    special: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    end: str = "<|im_end|>"


_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_THINK = ("<think>", "</think>")
FAMILIES = {
    "qwen2.5": Family(template=QWEN25, added=_TAGS),
    "qwen3": Family(template=QWEN3, added=(*_TAGS, *_THINK)),
    "qwen-coder": Family(template=QWEN_CODER, added=_TAGS),
    "thinking": Family(template=THINKING, added=_THINK),
    "unknown": Family(template=UNKNOWN),
    "llama-3": Family(
        template=LLAMA3,
        special=(
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|eom_id|>",
            "<|end_of_text|>",
        ),
        end="<|eot_id|>",
    ),
    "gemma": Family(
        template=GEMMA,
        special=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<pad>"),
        added=("<table>", "</table>", "\n\n"),
        end="<end_of_turn>",
    ),
    "gpt-oss": Family(
        template=GPT_OSS,
        special=(
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|channel|>",
            "<|constrain|>",
            "<|return|>",
            "<|call|>",
        ),
        end="<|return|>",
    ),
}
_MISTRAL = tuple(
    f"[{slash}{name}]"
    for name in ("AVAILABLE_TOOLS", "INST", "TOOL_RESULTS")
    for slash in ("", "/")
)
_OF_DEEPSEEK = ("begin▁of▁sentence", "end▁of▁sentence")
_TOOLS_OF_DEEPSEEK = (
    *(
        f"tool▁{part}▁{end}"
        for part in ("calls", "call", "outputs", "output")
        for end in ("begin", "end")
    ),
    "tool▁sep",
    "User",
    "Assistant",
)
FAMILIES.update(
    {
        "mistral": Family(
            template=MISTRAL, special=("<s>", "</s>", "[TOOL_CALLS]", *_MISTRAL), end="</s>"
        ),
        "mistral-v11": Family(
            template=MISTRAL_V11,
            special=(
                "<s>",
                "</s>",
                *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]"),
                *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
                *_MISTRAL,
            ),
            end="</s>",
        ),
        **{
            name: Family(
                template=template,
                special=tuple(f"<｜{mark}｜>" for mark in _OF_DEEPSEEK),
                added=(*(f"<｜{mark}｜>" for mark in _TOOLS_OF_DEEPSEEK), *_THINK),
                end="<｜end▁of▁sentence｜>",
            )
            for name, template in (
                ("deepseek-v3", DEEPSEEK_V3),
                ("deepseek-r1", DEEPSEEK_R1),
                ("deepseek-v3.1", DEEPSEEK_V31),
            )
        },
    }
)


@cache
def _vocabulary(folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(folder)


@cache
def tokenizer_like(family: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a template as this family has it; `tiny-tools` is the built-in one.

    Whoever changes it copies it first.
    """
    if family == "tiny-tools":
        return copy.deepcopy(_vocabulary(prepare_model("tiny-tools")))
    like, tokenizer = FAMILIES[family], copy.deepcopy(_vocabulary(prepare_model("tiny")))
    tokenizer.add_tokens(
        [AddedToken(text, special=True) for text in like.special], special_tokens=True
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in like.added])
    tokenizer.eos_token = like.end
    tokenizer.unk_token = None
    tokenizer.chat_template = like.template
    return tokenizer
