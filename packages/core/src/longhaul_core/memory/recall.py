"""The last exchanges, and those before them that share words with what is seen now."""

import math
from collections import Counter
from collections.abc import Sequence

from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.earlier import EarlierExchanges
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.text import words_in
from longhaul_core.types import Observation

__all__ = ["RecallMemory", "bm25_scores"]


class RecallMemory(EarlierExchanges):
    """Keep a record of each exchange; show the last `size`, and `max_earlier` chosen before them.

    A record is the text of what was seen, and the action. Before a prompt is composed, those with
    the highest BM25 score against the text of the observation are chosen, the newer one of two with
    equal scores; they are shown in the order in which they were played.
    """

    def __init__(self, *, size: int, max_earlier: int, template: PromptTemplate) -> None:
        """See `EarlierExchanges`."""
        super().__init__(size=size, max_earlier=max_earlier, template=template)
        self._records: list[Counter[str]] = []

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        self._records.append(Counter(words_in(f"{observation.text}\n{action}")))
        await super().write(observation=observation, reply=reply, action=action, context=context)

    def _candidates(self) -> Sequence[int]:
        return range(self._num_before)

    def _chosen(self, candidates: Sequence[int], observation: Observation) -> Sequence[int]:
        records = self._records[: len(candidates)]
        scores = bm25_scores(words_in(observation.text), records)
        best = sorted(candidates, key=lambda place: (scores[place], place))
        return sorted(best[-self._max_earlier :])


def bm25_scores(
    query: Sequence[str], records: Sequence[Counter[str]], *, k1: float = 1.2, b: float = 0.75
) -> list[float]:
    """How well each record answers a query, at least 0.

    Σ over the different words w of the query: ln(1 + (N − n + ½) / (n + ½)) · f (k1 + 1) /
    (f + k1 (1 − b + b L / L̄)), with N records, n of them with w, f times w in the record, whose
    length is L words, L̄ in the mean.

    Args:
        query: Words.
        records: Each a count of its words.
        k1: How much a word counts that a record has again, at least 0.
        b: How much the length of a record counts, in [0, 1].

    Source:
        Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009,
        equation 3.15, with Lucene's 1 + … in the logarithm, which is never negative.
    """
    lengths = [record.total() for record in records]
    mean = sum(lengths) / len(records) if records else 0.0
    scores = [0.0] * len(records)
    # In the order of the text: a set's order, and with it the sum, differs from process to process.
    for word in dict.fromkeys(query):
        having = [place for place, record in enumerate(records) if word in record]
        rare = math.log(1 + (len(records) - len(having) + 0.5) / (len(having) + 0.5))
        for place in having:
            times = records[place][word]
            length = lengths[place] / mean
            scores[place] += rare * times * (k1 + 1) / (times + k1 * (1 - b + b * length))
    return scores
