# Everything runs in the project's own environment, .venv, which the targets make when it is missing or out of date.
PYTHON ?= python3
# The benchmarks' baseline. Where a build without GPU support is to be had, name it here.
TORCH ?= torch==2.13.0
BIN := .venv/bin
# What `make test-lowest` runs; the other tests need packages that only developers have.
LOWEST ?= tests/test_activations.py tests/data tests/flows tests/kernels tests/lab tests/networks tests/test_losses.py tests/test_bad_calls.py
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python

.PHONY: demo test test-slow test-torch test-lowest test-all chaos chaos-short lint bench reproduce docs wheel clean

demo: .venv/.demo  ## one quick panel of each paper, and report.html
	$(BIN)/unlazy demo

test: .venv/.dev  ## all tests but the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=15 -m "not slow and not chaos"

test-slow: .venv/.dev  ## the end-to-end runs that `make test` leaves out
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=15 -m "slow and not chaos"

test-torch: .venv/.dev .venv/.bench  ## the tests of wrapped PyTorch modules, with PyTorch installed
	$(BIN)/python -m pytest -n auto --durations=15 tests/networks/test_wrap_torch.py tests/networks/test_one_model_everywhere.py \
	  tests/flows/test_recorder.py

test-lowest: .venv/.dev  ## the fast tests of the core with the lowest versions that pyproject.toml allows
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/lowest
	$(BIN)/uv pip install --quiet --python .venv/lowest/bin/python --resolution lowest-direct -e . \
	  "pytest>=8.3" "pytest-xdist>=3.6" "hypothesis>=6.100" "beartype>=0.20"
	.venv/lowest/bin/python -m pytest -n auto --dist worksteal -m "not slow" $(LOWEST)

test-all: .venv/.dev  ## all tests but the chaos suite
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=15 -m "not chaos"

chaos: .venv/.dev  ## random kills, damaged files, mutated recipes, many processes: about an hour of CPU time
	$(BIN)/python tests/chaos --long

chaos-short: .venv/.dev  ## the same with few trials, under three minutes
	$(BIN)/python tests/chaos

lint: .venv/.dev  ## style, types and the import contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: .venv/.bench  ## speed against named baselines
	$(BIN)/unlazy bench

reproduce: .venv/.base  ## every panel at paper scale; takes long, and goes on where it was interrupted
	for panel in $$($(BIN)/unlazy panels --json | $(BIN)/python -c "import json, sys; print(*dict.fromkeys(p['panel'] for p in json.load(sys.stdin)))"); do \
	  $(BIN)/unlazy reproduce $$panel --scale paper || exit 1; done

docs: .venv/.docs  ## HTML in docs/_build
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build

wheel: .venv/.base  ## build the wheel, install it into an empty environment and run a panel with it
	.ci/wheel $(BIN)/uv $(BIN)/python

clean:  ## forget the environment and all caches, but not results
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache docs/_build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.base: pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "unlazy needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(INSTALL) -e .
	@touch $@

.venv/.demo: .venv/.base  # digits stand in where MNIST is not at hand
	$(INSTALL) -e ".[digits]"
	@touch $@

.venv/.dev: .venv/.base
	$(INSTALL) -e ".[dev]"
	@touch $@

.venv/.docs: .venv/.base
	$(INSTALL) -e ".[docs]"
	@touch $@

.venv/.bench: .venv/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@touch $@
