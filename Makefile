# Two commands do everything on a machine with Python 3.10 or newer and make:
#   make demo   sets up, trains and explains a model of real molecules, and repeats the paper's study on a reduced scale
#   make test   sets up, runs lint, types and tests
#   make soak   half an hour of injected faults and killed processes; writes research/results/trust.csv
# And a third builds the documentation's site:
#   make docs   sets up, writes build/site/index.html; warnings are errors
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs soak clean
demo: $(VENV)/installed
	@BIN=$(BIN) bash scripts/demo.sh

test: $(VENV)/installed-dev lint
	@sh scripts/browser.sh
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term

soak: $(VENV)/installed-dev
	$(BIN)/python tests/faults/campaign.py soak --minutes 30 --out research/results/trust.csv

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/installed-docs
	@rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going --quiet -c docs . build/site
	@echo "The site is in build/site/index.html"

$(VENV)/python-ok:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "mlap needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/python-ok
	@echo "Setting up $(VENV) (once; a few minutes, mostly torch) …"
	$(PIP) --editable '.[chem,fast,serve]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build demo docs/generated
