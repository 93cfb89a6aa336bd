"""A zygote: one process that has imported the libraries, and forks what others start as Python.

Importing torch, transformers, verl and vLLM takes a processor core 20 to 30 s, and a run has
half a dozen processes that do. Here one process imports once. A stand-in takes the place of the
interpreter wherever processes are started, and has the process it was to become forked off
instead. Everything that counts for such a program is that of the command: arguments,
environment, folder, open files, exit status.

For machines with few processors. On GPUs verl's own processes start as verl starts them.
"""

from longhaul_trainer.verl.cpu.zygote.owner import Zygote

__all__ = ["Zygote"]
