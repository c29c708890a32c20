# make run | test | test-long | test-libraries | test-pages | pictures | lint | bench | fuzz | suite | switches | train-check | gpu-check | clean.   Options: make run RUN_ARGS="--batch-size 2"
PYTHON ?= python3
RUN_ARGS ?=
SUITE_ARGS ?=
CHECK_ARGS ?=
TEST_ARGS ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
FUZZ_ARGS ?=
GPU_ARGS ?=
LIBRARIES_ARGS ?= --numprocesses 2 --dist loadfile
PAGES_ARGS ?=
PICTURES_OF ?= resnet50-mxnet.tbd

BIN := .venv/bin
LIBRARIES_BIN := .venv-libraries/bin
PAGES_BIN := .venv-pages/bin
INSTALL := -m pip --disable-pip-version-check install --constraint constraints.txt
PIP := $(BIN)/python $(INSTALL)
DECLARED := setup.py pyproject.toml constraints.txt
# What MXNet asks for has no wheel from Python 3.13 on (docs/environments.md).
MXNET_ALONE = if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then \
	$(PIP) --no-deps mxnet==1.9.1 >&2; fi
# With numpy 2, a script has to give numpy some older names before it imports MXNet: here all of the tests' programs do.
NAMES_OF_NUMPY_1 = $(BIN)/python -c "import numpy, pathlib, sysconfig; numpy.__version__ < '2' or pathlib.Path( \
	sysconfig.get_path('purelib'), 'mxnet_names.pth').write_text('$(CURDIR)/tests/support/numpy_2\nimport mxnet_names\n')"
# The environments of tests/libraries and tests/pages see the packages of the other one, which hold the frameworks, and add
# their own. $(1) is the folder of the environment.
SEE_THE_OTHER = $(BIN)/python -c "import pathlib, site; pathlib.Path('$(1)/other.pth').write_text(''.join( \
	f'import site; site.addsitedir({folder!r})\n' for folder in site.getsitepackages()))" && \
	mv $(1)/other.pth "$$($(1)/bin/python -c 'import site; print(site.getsitepackages()[0])')"
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest
LIBRARIES := libgomp.so.1 libquadmath.so.0

.DEFAULT_GOAL := run
.PHONY: run test test-long test-libraries test-pages pictures lint bench fuzz suite switches train-check gpu-check clean

# Question mode prints nothing and makes make itself stop with 1; a failing recipe would make it 2.
ifneq ($(MAKECMDGOALS),clean)
READY := import sys, ctypes, ensurepip, venv; [ctypes.CDLL(name) for name in '$(LIBRARIES)'.split()]; \
	print('ready' if sys.version_info >= (3, 10) else 'old')
STATE := $(shell $(PYTHON) -c "$(READY)" 2>/dev/null)
ifneq ($(STATE),ready)
ifeq ($(STATE),old)
$(info Python 3.10 or later is needed, with its venv module: make PYTHON=/path/to/python3)
else
$(info Something of the system is missing; type: apt-get install -y libgomp1 libquadmath0 python3-venv)
endif
MAKEFLAGS += --question
endif
endif

run: .venv/run.stamp
	$(BIN)/tbdprof run resnet50 --framework mxnet --output resnet50-mxnet.tbd --force $(RUN_ARGS)

# Two at a time and one thread each, for most tests wait for a process of their own; nobody spins while he waits. Compiled
# modules are kept, for hundreds of processes import the same ones. tests/conftest.py gives the order of the files.
test: .venv/test.stamp
	$(PYTEST) -m 'not long' $(TEST_ARGS)

# The tests that take longest, so that `make test` stays short: the largest networks of the suite in TensorFlow.
test-long: .venv/test.stamp
	$(PYTEST) -m long $(TEST_ARGS)

# Training with other people's libraries, held against arithmetic; in an environment that has them, and so not in `test`.
test-libraries: .venv-libraries/test.stamp
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(LIBRARIES_BIN)/python -m pytest tests/libraries $(LIBRARIES_ARGS)

# Pages in a real browser, the system's Chromium; in an environment that has what drives it. Skipped where there is none.
test-pages: .venv-pages/test.stamp
	OMP_NUM_THREADS=1 $(PAGES_BIN)/python -m pytest tests/pages $(PAGES_ARGS)

# The pictures of the README and the docs, of the recording that `make run` leaves.
pictures: .venv-pages/test.stamp
	PYTHONPATH=. $(PAGES_BIN)/python tests/pages/pictures.py $(PICTURES_OF)

lint: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/test.stamp
	$(BIN)/python tests/benchmarks/overhead.py $(BENCH_ARGS)
	$(BIN)/python tests/benchmarks/large.py
	$(BIN)/python tests/benchmarks/verdicts.py

# Damaged and hostile recordings by the thousand; prints what came of them.
fuzz: .venv/test.stamp
	$(BIN)/python tests/facts/fuzz.py $(FUZZ_ARGS)

# What must be shown on a card, within 10 minutes, with whatever Python has the framework there.
gpu-check:
	$(PYTHON) tests/gpu/check.py $(GPU_ARGS)

# Every model in every framework it is written for. One that fails keeps no other from its turn, and is named at the end;
# so are the seconds of each, from its start to its report.
CELLS = from tbdprof import suite; print(*(f"{name}:{each}" for name in suite.names() for each in suite.frameworks(name)))
EVERY_CELL = failed= times=; for cell in $$($(BIN)/python -c '$(CELLS)'); do \
		model=$${cell%:*}; framework=$${cell\#*:}; echo "== $$model, $$framework" >&2; \
		begun=$$(date +%s); $(1) || failed="$$failed $$model-$$framework"; \
		times="$$times $$model-$$framework $$(($$(date +%s) - begun)) s,"; \
	done; echo "took:$${times%,}" >&2; if [ -n "$$failed" ]; then echo "tbdprof: failed:$$failed" >&2; exit 1; fi

# At its default size; then the table of docs/suite.md, and whether everything adds up.
suite: .venv/test.stamp
	@$(call EVERY_CELL,$(BIN)/tbdprof run $$model --framework $$framework --output $$model-$$framework.tbd --force \
		$(SUITE_ARGS))
	@$(BIN)/python tests/benchmarks/suite.py

# Every switch of every model, at the default sizes: does it train, and from the same loss?
switches: .venv/test.stamp
	@for framework in torch mxnet tensorflow; do $(BIN)/python tests/benchmarks/switches.py $$framework || exit 1; done

# On small generated data: does it learn?
train-check: .venv/test.stamp
	@$(call EVERY_CELL,$(BIN)/tbdprof train-check $$model --framework $$framework $(CHECK_ARGS))

clean:
	rm -rf .venv .venv-libraries .venv-pages build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps lie in the environment they speak of: who removes .venv removes them.
.venv/made.stamp:
	@echo "tbdprof: making .venv" >&2
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run.stamp: .venv/made.stamp $(DECLARED)
	@echo "tbdprof: installing tbdprof and MXNet (some 70 MB to download)" >&2
	$(PIP) --editable '.[mxnet]' >&2
	$(MXNET_ALONE)
	@touch $@

.venv/test.stamp: .venv/run.stamp
	@echo "tbdprof: installing what the tests need (PyTorch and TensorFlow: some 800 MB to download, more where CUDA comes along)" >&2
	$(PIP) --editable '.[torch,mxnet,tensorflow,dev]' >&2
	$(NAMES_OF_NUMPY_1)
	@touch $@

.venv-libraries/test.stamp: .venv/test.stamp tests/libraries/requirements.txt
	@echo "tbdprof: installing the libraries of tests/libraries (some 25 MB to download)" >&2
	$(BIN)/python -m venv .venv-libraries
	$(call SEE_THE_OTHER,.venv-libraries)
	$(LIBRARIES_BIN)/python $(INSTALL) --requirement tests/libraries/requirements.txt >&2
	@touch $@

.venv-pages/test.stamp: .venv/test.stamp tests/pages/requirements.txt
	@echo "tbdprof: installing what drives a browser (some 50 MB to download; Chromium itself: apt-get install -y chromium)" >&2
	$(BIN)/python -m venv .venv-pages
	$(call SEE_THE_OTHER,.venv-pages)
	$(PAGES_BIN)/python $(INSTALL) --requirement tests/pages/requirements.txt >&2
	@touch $@
