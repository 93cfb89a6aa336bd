"""Whether two results say the same."""

from collections import Counter

from longhaul_envs.sql.box import Result, Value

__all__ = ["asks_for_order", "same_result"]

_QUOTES = {"'": "'", '"': '"', "`": "`", "[": "]"}


def same_result(found: Result, gold: Result, *, ordered: bool, as_sets: bool = False) -> bool:
    """Whether `found` answers what `gold` answers.

    Columns count in order and not by name, rows as often as they occur. Numbers are compared to
    nine digits, so that a sum may be taken in another order; whole numbers that are read as text
    are not numbers.

    Args:
        found: That is scored.
        gold: That is right. If either was cut off, the answer is no.
        ordered: Whether the order of rows counts.
        as_sets: BIRD's own rule: neither order nor number of equal rows counts.
    """
    if not (found.is_whole and gold.is_whole) or len(found.columns) != len(gold.columns):
        return False
    mine, right = ([tuple(map(_plain, row)) for row in one.rows] for one in (found, gold))
    if as_sets:
        return set(mine) == set(right)
    return mine == right if ordered else Counter(mine) == Counter(right)


def asks_for_order(sql: str) -> bool:
    """Whether the outermost SELECT of a statement has an ORDER BY."""
    depth = at = 0
    last_word = ""
    while at < len(sql):
        sign = sql[at]
        if sign in _QUOTES:
            end = sql.find(_QUOTES[sign], at + 1)
            at, last_word = (end if end >= 0 else len(sql)) + 1, ""
        elif sql.startswith(("--", "/*"), at):
            mark = "\n" if sign == "-" else "*/"
            end = sql.find(mark, at + 2)
            at = end + len(mark) if end >= 0 else len(sql)
        elif sign.isalnum() or sign == "_":
            start = at
            while at < len(sql) and (sql[at].isalnum() or sql[at] == "_"):
                at += 1
            word = sql[start:at].lower()
            if depth == 0 and (last_word, word) == ("order", "by"):
                return True
            last_word = word
        else:
            depth += (sign == "(") - (sign == ")")
            at, last_word = at + 1, last_word if sign.isspace() else ""
    return False


def _plain(value: Value) -> Value:
    return float(f"{value:.9g}") if isinstance(value, float) else value
