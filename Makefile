# The commands of phrasemem; `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
CORPORA ?= corpora.yaml
PROFILE ?= demo
OUT ?= build/memory
WORK ?= build/work
MODEL ?=
ENCODER ?=
SCHEDULER ?=
WORKERS ?=
DEST ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := phrasemem memfmt pipeline runtime tests benchmarks docs
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup build-memory publish test test-slow test-gpu check format lint types docs \
  notebooks bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16
	@echo "bench-NAME      run benchmarks/NAME.py (ARGS=--full for the large size)"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

setup: $(STAMP) ## make .venv and install the pinned dependencies

build-memory: $(STAMP) ## build a memory (MODEL= ENCODER= CORPORA= PROFILE= OUT= WORKERS= SCHEDULER=)
	$(BIN)/phrasemem build --config $(CORPORA) --profile $(PROFILE) --out $(OUT) --work $(WORK) \
	  $(if $(MODEL),--model '$(MODEL)') $(if $(ENCODER),--encoder '$(ENCODER)') \
	  $(if $(WORKERS),--workers $(WORKERS)) $(if $(SCHEDULER),--scheduler '$(SCHEDULER)')

publish: $(STAMP) ## copy the memory to DEST=, verified on arrival
	@test -n "$(DEST)" || { echo "publish: say where to: make publish DEST=FOLDER" >&2; exit 2; }
	$(BIN)/phrasemem publish $(OUT) $(DEST)

test: $(STAMP) ## run the tests (those marked slow or gpu have targets of their own)
	$(PYTEST) -m 'not slow and not gpu' -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(STAMP) ## run the tests that take minutes
	$(PYTEST) -m 'slow and not gpu' $(ARGS)

test-gpu: $(STAMP) ## run the tests that need a CUDA device
	$(PYTEST) -m gpu $(ARGS)

check: format lint types test docs notebooks ## everything that must be green before a commit

format: $(STAMP) ## fail where a file is not formatted
	$(BIN)/ruff format --check $(SOURCES)

lint: $(STAMP) ## ruff
	$(BIN)/ruff check $(SOURCES)

# The three parts are installed below `phrasemem.`; mypy sees them there through links.
types: $(STAMP) ## mypy, strict
	rm -rf build/typecheck && mkdir -p build/typecheck/phrasemem
	ln -s $(CURDIR)/phrasemem/* $(CURDIR)/memfmt $(CURDIR)/pipeline $(CURDIR)/runtime \
	  build/typecheck/phrasemem/
	$(BIN)/mypy -p phrasemem

docs: $(STAMP) ## fail where docs/cli.md is not what --help says (make docs-write mends it)
	$(BIN)/python docs/cli_reference.py --check

docs-write: $(STAMP)
	$(BIN)/python docs/cli_reference.py

notebooks: $(STAMP) ## run the notebooks on a tiny corpus; fail if outputs were committed
	$(BIN)/nbstripout --verify notebooks/*.ipynb
	$(BIN)/python notebooks/run.py

bench: $(STAMP) ## run every benchmark, each against a rival in the same run
	$(BIN)/python -m benchmarks $(ARGS)

bench-%: $(STAMP)
	$(BIN)/python -m benchmarks.$* $(ARGS)

clean: ## remove what was built, but not .venv
	rm -rf build
