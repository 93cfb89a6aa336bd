"""Interpreters that begin with their imports done: forks of one process that has them.

Importing torch, transformers, verl and vLLM takes a processor core 20 to 30 s, and a run has
half a dozen processes that do. Here one process imports once; a stand-in takes the place of
the interpreter wherever processes are started, and has the process it was to become forked
off instead. Everything that counts for such a program is that of the command: arguments,
environment, folder, open files, exit status.

For machines with few processors. On GPUs verl's own processes start as verl starts them.
"""

from longhaul_trainer.warm.owner import WarmInterpreter

__all__ = ["WarmInterpreter"]
