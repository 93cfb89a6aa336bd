"""The signals by which whoever started a program has it end in order."""

from __future__ import annotations

import signal

__all__ = ["ending_signals"]


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, and SIGHUP of a terminal that is closed, unless it is ignored, as under `nohup`.

    Ctrl-C is not among them: a person who presses it twice wants the end at once.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)
