PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint types stubs mutants bench bench-peers clean

$(VENV)/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/tools: $(VENV)/installed requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-dev.lock
	@touch $@

demo: $(VENV)/installed  ## the main job, on embedded data
	$(BIN)/undrift demo

test: $(VENV)/tools lint types  ## what CI runs
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/tools
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/tools
	$(BIN)/mypy

stubs: $(VENV)/installed  ## write __init__.pyi and docs/api.md after a public name was added
	$(BIN)/python tools/public_names.py

mutants: $(VENV)/tools  ## flip a sign or drop a term in 24 methods, one at a time: the tests notice
	$(BIN)/python benchmarks/mutants.py

bench: $(VENV)/installed
	$(BIN)/python benchmarks/convex.py

bench-peers: $(VENV)/installed  ## undrift and its peers side by side; the first time, it makes their environments
	$(BIN)/python -m benchmarks.peers.compare

clean:
	rm -rf $(VENV) .peers .pytest_cache .mypy_cache .ruff_cache
