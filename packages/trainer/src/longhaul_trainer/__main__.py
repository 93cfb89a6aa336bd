"""`python -m longhaul_trainer` is `trainer`."""

from longhaul_trainer.cli.main import main

main()
