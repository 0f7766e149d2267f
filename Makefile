# `make demo` and `make test` do everything on a fresh machine: they create .venv, install what
# constraints.txt pins, and run. Nothing is installed again unless pyproject.toml or constraints.txt changed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo gallery test fuzz truth lint hooks bench clean
.DEFAULT_GOAL := help

help:           ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

demo: .venv/ready   ## train, analyse and report four methods on the embedded digits, into runs/demo
	$(BIN)/landscape demo

gallery: demo       ## draw the README's pictures from the demo
	$(BIN)/python -m reports.showcase runs/demo reports/gallery

test: .venv/ready   ## run every test
	$(BIN)/python -m pytest -n 2

truth: .venv/ready  ## check stated errors on thousands of random problems; some ten minutes
	$(BIN)/python -m pytest -n 2 -m truth

fuzz: .venv/ready   ## give every reader 10,000 hostile files of its kind, and run directories a hard time
	$(BIN)/python -m tests.fuzz
	FUZZ=10000 LANDSCAPE_FUZZ=1 $(BIN)/python -m pytest -n 2 tests/training/test_fuzz.py tests/fuzz

lint: .venv/ready   ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

hooks: .venv/ready  ## run the checks of `make lint` before every commit
	$(BIN)/pre-commit install

bench: .venv/ready  ## measure against other tools, which get a virtual environment of their own
	$(BIN)/python -m tests.benchmarks

clean:          ## remove the virtual environments and caches, not the runs
	rm -rf .venv .venv-peers build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# torch first and alone, then torchvision: asked for in any other way pip may take gigabytes of CUDA packages
.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) $$(grep '^torchvision==' constraints.txt) -c constraints.txt
	$(PIP) -e '.[test]' -c constraints.txt
	@touch $@
