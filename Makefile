PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE  # the tests start many processes, and import undrift in each
# several processes share two cores: threads that wait for each other sleep
export OMP_WAIT_POLICY := PASSIVE
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
QUIET := --quiet --disable-pip-version-check
LOCKED := install $(QUIET) --require-hashes --no-deps --requirement

DOCS := build/site

.PHONY: docs demo test suite test-all test-fast test-slow lint types stubs journeys mutants faults bench bench-peers clean

# torch without CUDA where pip has it at hand (PIP_FIND_LINKS); else that of the index, which on Linux
# needs the libraries of CUDA: pip check then fails
$(VENV)/installed: requirements.lock requirements-cpu.lock requirements-cuda.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(LOCKED) requirements-cpu.lock --no-index > $(VENV)/torch.log 2>&1 || true
	$(BIN)/python -m pip $(LOCKED) requirements.lock
	$(BIN)/python -m pip check > $(VENV)/check.log || $(BIN)/python -m pip $(LOCKED) requirements-cuda.lock
	$(BIN)/python -m pip install $(QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/tools: $(VENV)/installed requirements-dev.lock
	$(BIN)/python -m pip $(LOCKED) requirements-dev.lock
	@touch $@

demo: $(VENV)/installed  ## the main job, on embedded data
	$(BIN)/undrift demo

test: $(VENV)/tools  ## what CI runs; types beside the tests, for they take one core
	$(MAKE) --jobs 2 lint types suite

suite: $(VENV)/tools
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not whole"

test-all: $(VENV)/tools lint types  ## whole matrices, and every case of what takes long
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-fast: $(VENV)/tools  ## after an edit: no subprocesses, browsers or long trainings
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/tools  ## hours
	$(BIN)/python -m pytest -m slow

$(VENV)/docs: $(VENV)/tools requirements-docs.lock  # names of undrift.flower need Flower
	$(BIN)/python -m pip $(LOCKED) requirements-docs.lock
	@touch $@

docs: $(VENV)/docs  ## the site, in build/site: open index.html; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs $(DOCS)

lint: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/tools
	$(BIN)/mypy

stubs: $(VENV)/installed  ## write __init__.pyi, docs/api.md, settings.md, choosing.md and federations.md after a name was added
	$(BIN)/python tools/public_names.py
	$(BIN)/python -m tools.settings_page
	$(BIN)/python -m tools.choosing
	$(BIN)/python -m tools.federations_page

journeys: $(VENV)/tools  ## what users type, from an empty folder to the result, with every engine
	$(BIN)/python -m pytest -v -m "" --durations=0 --durations-min=1 tests/journeys

mutants: $(VENV)/tools  ## break 24 methods, one at a time: do the tests notice?
	$(BIN)/python benchmarks/mutants.py

faults: $(VENV)/tools  ## kills, damaged files, bad clients, drop-outs: a table (docs/reliability.md)
	$(BIN)/python -m tests.faults

bench: $(VENV)/installed
	$(BIN)/python benchmarks/convex.py

bench-peers: $(VENV)/installed  ## undrift beside its peers; makes their environments the first time
	$(BIN)/python -m benchmarks.peers.compare

clean:
	rm -rf $(VENV) .peers .pytest_cache .mypy_cache .ruff_cache
