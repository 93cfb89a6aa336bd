"""A chat template that takes the place of a model's own."""

from pathlib import Path

from longhaul_core.errors import ConfigError

BUILT_IN_CHAT_TEMPLATES = {
    "chatml-thoughts": Path(__file__).with_name("chatml_thoughts.jinja"),
}
"""Files by name."""


def chat_template_text(given: str | None, base: Path) -> str | None:
    """The text of `model.chat_template`; a text that was given stays as it is.

    Args:
        given: A file, a name of a built-in template, or the text itself, which has Jinja's braces.
        base: Folder that relative paths start from.

    Raises:
        ConfigError: If the file cannot be read, or holds no template.
    """
    if given is None or "{{" in given or "{%" in given:
        return given
    file = base / Path(given).expanduser()
    if given in BUILT_IN_CHAT_TEMPLATES:
        file = BUILT_IN_CHAT_TEMPLATES[given]
    problem = "holds no Jinja, neither {{ nor {%"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        text, problem = "", str(getattr(error, "strerror", None) or error)
    if "{{" in text or "{%" in text:
        return text
    known = ", ".join(BUILT_IN_CHAT_TEMPLATES)
    raise ConfigError(
        f"model.chat_template = {given!r}: {file}: {problem}; name a file with a chat template in "
        f"Jinja, or {known}, or leave it out for the model's own"
    )
