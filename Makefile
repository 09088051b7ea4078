# Everything runs in .venv, which is made on first use; PYTHON chooses the interpreter that makes it.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Models come from folders in tests and in the quick profile; nothing may wait for the hub.
export HF_HUB_OFFLINE ?= 1
DATA ?= $(TEMPPLUG_DATA)

.PHONY: quickstart setup fast test fuzz lint bench report docs release size clean

quickstart: .venv/advise.stamp
	$(BIN)/tempplug advise --time 25 --output outputs/quickstart/advice.html

setup: .venv/dev.stamp

# One test file a core, each on one thread, in the order that conftest.py gives: xdist's own would end with the longest files.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

fast: .venv/dev.stamp
	$(PYTEST) tests -m "not slow"

test: .venv/dev.stamp
	$(PYTEST)

# Until Ctrl-C; FUZZ="loss --seconds 60" chooses.
fuzz: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py $(FUZZ)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# BENCH="--profile quick --tasks supervised" changes the flags.
bench: .venv/bench.stamp
	$(BIN)/tempplug bench run sentence --profile small --data-dir "$(DATA)" --output outputs/small $(BENCH)

# The page, the tables and the pictures of the committed results, those of guides and studies too, anew from their files.
RESULTS := benchmarks/results
REPORTED := $(patsubst $(RESULTS)/%/,%,$(wildcard $(RESULTS)/*/*/))

report: .venv/bench.stamp
	$(BIN)/tempplug bench report $(RESULTS) --format html --output $(RESULTS)/index.html
	for each in $(REPORTED); do \
		$(BIN)/tempplug bench report $(RESULTS)/$$each --format markdown --output $(RESULTS)/$$(echo $$each | tr / _).md || exit 1; \
	done
	$(BIN)/tempplug bench sweep --suite sentence --profile small --tasks supervised --temperatures 0.02 0.03 0.04 0.05 0.07 0.1 0.2 \
		--output $(RESULTS) > /dev/null
	$(BIN)/python docs/measured.py
	$(BIN)/python -m studies.pictures

# NO_MKDOCS_2_WARNING: a notice of the theme about a successor of mkdocs, which constraints.txt does not let in.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel and the source distribution in dist/, checked; uploads nothing.
release: .venv/dev.stamp
	.ci/release

# Lines of code and docstrings, modules and tests by package; REVISION=v0.1 counts another revision.
size: .venv/bin/python
	$(BIN)/python tests/size.py $(REVISION)

clean:
	rm -rf .venv dist outputs

# Stamps of their own, so that quickstart and documentation need not install the linters.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/advise.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[advise]"
	touch $@

.venv/bench.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[bench,vision]"
	touch $@

.venv/docs.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@ .venv/advise.stamp .venv/bench.stamp .venv/docs.stamp
