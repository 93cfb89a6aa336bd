"""How Search introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["prompt_for"]


def prompt_for(max_answers: int) -> EnvironmentPrompt:
    """How it introduces itself where `max_answers` answers may be given."""
    answers = "one answer" if max_answers == 1 else f"at most {max_answers} answers"
    return EnvironmentPrompt(
        system=(
            "You answer a question by looking things up in a collection of documents. "
            "search[QUERY] shows the documents that fit a few words best; what one document names "
            "may need a search of its own. answer[TEXT] gives the answer, in as few words as it "
            f"takes. You have {answers}."
        ),
        instruction="Search, or answer?",
    )
