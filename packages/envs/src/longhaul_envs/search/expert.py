"""An expert that follows the documents which lead to an answer, by searches like anyone's."""

from collections.abc import Collection

from longhaul_envs.search.corpus import Question

__all__ = ["next_action"]


def next_action(question: Question, shown: Collection[str]) -> str | None:
    """The next action of the way to the answer.

    Args:
        question: Whose hops are hidden from the agent.
        shown: Ids of the documents in sight.

    Returns:
        The answer where the document that states it is in sight; else a search for the document
        after the last one in sight. None for a question whose hops are not known.
    """
    following = None
    for query, document in reversed(question.hops):
        if document in shown:
            break
        following = query
    else:
        if not question.hops:
            return None
    return f"answer[{question.answers[0]}]" if following is None else f"search[{following}]"
