# make demo      compare ways to train Llama-2-13B on two hosts; results in demo/
# make test      style, types, tests: minutes
# make test-all  the same with slow tests, many more random examples and benchmarks
# make clean     remove everything that these made

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all check clean

demo: $(READY)
	$(BIN)/zerosim run scenarios/llama-2-13b-two-hosts.yaml --out demo

test: check
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --ignore=tests/benchmark

test-all: check
	$(BIN)/python -m pytest --hypothesis-profile=thorough

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v < (3, 14) and \
	  "zerosim needs Python 3.11 to 3.13, but $(PYTHON) is %d.%d; say: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
