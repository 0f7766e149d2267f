# `make demo` and `make test` do everything on a fresh machine: they create .venv, install what
# constraints.txt pins, and run. Nothing is installed again unless pyproject.toml or constraints.txt changed.
PYTHON ?= python3
BIN := .venv/bin
DEVICE ?= cuda
# each worker takes one part of the tests, so that few fixtures are made twice, and helps another when it is done; there is
# one more than the two cores of CI, because a quarter of the time of a test is spent waiting for processes
PYTEST := pytest -n 3 --dist worksteal
# what `make lowest` runs: training to the bit, files, settings, answers, figures, page, tables, eigenvalues, the command
LOWEST := tests/golden tests/training/storage tests/training/test_config.py tests/training/test_settings.py \
    tests/training/data/test_partition.py tests/analysis/test_study.py \
    tests/analysis/test_store.py tests/reports/figures tests/reports/page/test_page.py tests/reports/tables \
    tests/landscape/spectrum tests/test_cli.py tests/test_project.py

.PHONY: help demo docs gallery artefacts findings test lowest fuzz truth lint hooks bench gpu dist clean
.DEFAULT_GOAL := help

help:           ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

demo: .venv/ready   ## train, analyse and report four methods on the embedded digits, into runs/demo
	$(BIN)/landscape demo

docs: .venv/ready   ## run the examples and build the documentation, into build/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q docs build/docs
	@echo "open build/docs/index.html"

gallery: demo       ## draw the pictures of the README and of the documentation from the demo
	$(BIN)/python -m reports.showcase runs/demo reports/gallery

artefacts: .venv/ready  ## make every table and figure of the papers on embedded data, into papers/digits; about an hour
	$(BIN)/landscape reproduce all --scale digits

findings: .venv/ready   ## rebuild docs/findings from the answers in it
	$(BIN)/python -m reports.findings unpack docs/findings
	$(BIN)/landscape reproduce findings --scale digits --out docs/findings --typeset
	$(BIN)/landscape reproduce findings --scale small --out docs/findings --typeset

test: .venv/ready   ## run every test
	$(BIN)/python -m $(PYTEST) --durations=60 --durations-min=3

lowest: .venv-lowest/ready  ## run a part of the tests with the oldest versions that pyproject.toml allows
	.venv-lowest/bin/python -m $(PYTEST) $(LOWEST)

truth: .venv/ready  ## check stated errors on thousands of random problems; some ten minutes
	$(BIN)/python -m $(PYTEST) -m truth

fuzz: .venv/ready   ## give every reader 10,000 hostile files of its kind, and run directories a hard time
	$(BIN)/python -m tests.fuzz
	FUZZ=10000 LANDSCAPE_FUZZ=1 $(BIN)/python -m $(PYTEST) tests/fuzz

lint: .venv/ready   ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

hooks: .venv/ready  ## run the checks of `make lint` before every commit
	$(BIN)/pre-commit install

bench: .venv/ready  ## measure against other tools, in environments of their own; "bench eigen NETWORK=ViT": a part
	$(BIN)/python -m tests.benchmarks $(filter $(GROUPS),$(MAKECMDGOALS)) $(if $(NETWORK),--network "$(NETWORK)")

GROUPS := eigen surface training studies
.PHONY: $(GROUPS)
$(GROUPS):      # words after "bench", nothing to do by themselves
	@:

gpu: .venv/ready    ## test and time a GPU (DEVICE=cuda:1 or mps for another), into gpu-results.json
	$(BIN)/python -m tests.device $(DEVICE)

dist: .venv/ready   ## build the wheel and the source distribution, into dist/
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -c "from setuptools import build_meta as b; print(b.build_wheel('dist'), b.build_sdist('dist'))" | tail -1

clean:          ## remove the virtual environments and caches, not the runs
	rm -rf .venv .venv-lowest .venv-peers .venv-flower .venv-pfl build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

# torch first and alone, then torchvision: asked for in any other way pip may take gigabytes of CUDA packages
.venv/ready: PINS := constraints.txt
.venv/ready: constraints.txt
.venv/ready: EXTRAS := cluster,docs,huggingface,test,tracking
.venv-lowest/ready: PINS := constraints-lowest.txt
.venv-lowest/ready: constraints-lowest.txt
.venv-lowest/ready: EXTRAS := test
.venv/ready .venv-lowest/ready: INSTALL = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check
.venv/ready .venv-lowest/ready: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(INSTALL) $$(grep '^torch==' $(PINS))
	$(INSTALL) $$(grep '^torchvision==' $(PINS)) -c $(PINS)
	$(INSTALL) -e '.[$(EXTRAS)]' -c $(PINS)
	@touch $@
