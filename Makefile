.DEFAULT_GOAL := check

install: ## Everything a laptop needs, and the checks before each commit
	uv sync --locked
	uv run pre-commit install --hook-type pre-commit --hook-type pre-push
format: ## Rewrite files in place
	uv run ruff check --fix
	uv run ruff format
lint: ## Style, spelling and the lock file, without changing files
	uv run ruff check
	uv run ruff format --check
	uv run codespell packages apps tests docs configs examples benchmarks *.md
	uv lock --check
types: ## Pyright, strict
	NODE_OPTIONS=--max-old-space-size=8192 uv run pyright # with 4 GB it forgets types, and finds them again
test: ## What a commit must pass: the tests that take seconds, and one training run
	uv run pytest
check: lint types test ## All three, before a commit
all: lint types ## Everything: what continuous integration runs
	uv run pytest --all
isolated: ## Each package's tests with only what that package declares
	uv run --isolated --package longhaul-core --extra postgresql --extra http --no-default-groups --group test pytest tests/core
	uv run --isolated --package longhaul-envs --no-default-groups --group test pytest tests/envs tests/contracts/test_environments.py
	uv run --isolated --package longhaul-trainer --extra cpu --no-default-groups --group test pytest tests/trainer -m "not slow"
	uv run --isolated --package longhaul-trainer --extra cpu --with ./packages/client --no-default-groups --group test pytest tests/client
	uv run --isolated --package longhaul-api --no-default-groups --group test pytest tests/apps/api
	uv run --isolated --package longhaul-viewer --no-default-groups --group test pytest tests/apps/viewer -m "not slow"
gpu: ## From now on, every `uv run` uses vLLM's CUDA build
	sed -i 's/^default-groups = \["cpu", "dev"\]/default-groups = ["dev", "gpu"]/' pyproject.toml uv.lock
	uv sync --locked
cpu: ## From now on, every `uv run` uses vLLM's CPU build
	sed -i 's/^default-groups = \["dev", "gpu"\]/default-groups = ["cpu", "dev"]/' pyproject.toml uv.lock
	uv sync --locked
help: ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12
.PHONY: install format lint types test check all isolated gpu cpu help
