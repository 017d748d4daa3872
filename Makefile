# The two commands are "make lab" and "make test"; "make help" lists the rest.
#   make lab EDITION=en               open the English edition (bn: the Bengali one) instead of the lesson index
#   make lab PYTHON=/path/to/python3.12    build .venv with this Python
#   make lab TORCH_INDEX=cpu          PyTorch without GPU support: a far smaller download; any wheel index will do
#   make gpu TORCH=installed          keep the PyTorch (2.9 or newer) that python3, or PYTHON, has; see CONTRIBUTING.md
#   make offline OUT=/media/usb/labkit    for a lab without internet
#   make setup EXTRAS=lab,mxnet,instructor    what else to install (see pyproject.toml)

PYTHON ?=
TORCH_INDEX ?=
TORCH ?=
EXTRAS ?= lab,mxnet
EDITION ?=
ONLY ?=
LESSONS ?=
OUT ?=
TEST_EXTRAS = lab,mxnet,test,instructor,finetune

# Lessons and tests that compile C++ look for ninja on PATH, nbgrader for alembic.
RUN = PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python

# The set-up itself runs on any Python from 3.8 on; it then looks for one that is fit for the labs.
define set_up
@for p in "$(PYTHON)" python3 python python3.13 python3.12 python3.11; do \
  if [ -n "$$p" ] && "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then \
    exec "$$p" -m setup_env $(1) --python "$(PYTHON)" --torch-index "$(TORCH_INDEX)" --torch "$(TORCH)"; \
  fi; \
done; \
echo "Python 3.11, 3.12 বা 3.13 লাগবে, এখানে কোনো Python পাওয়া গেল না। Ubuntu/Debian-এ লিখুন: sudo apt install python3 python3-venv, macOS-এ: brew install python@3.12"; \
echo "Python 3.11, 3.12 or 3.13 is needed; none was found. On Ubuntu/Debian type: sudo apt install python3 python3-venv, on macOS: brew install python@3.12"; \
exit 1
endef

.PHONY: lab test offline setup check notebooks bench gpu clean help
.DEFAULT_GOAL := help

lab:  ## set up, then open JupyterLab on the lessons
	$(call set_up,lab --extras "$(EXTRAS)" --edition "$(EDITION)")

test:  ## set up, then run every test (ONLY=lint,unit,… for some lanes)
	$(call set_up,test --extras "$(TEST_EXTRAS)")
	@$(RUN) tests/lanes.py $(if $(ONLY),--only $(ONLY))

offline:  ## pack the labs with all their packages into OUT, for machines without internet
	$(call set_up,offline --extras "$(EXTRAS)" --out "$(OUT)")

setup:  ## create or update .venv
	$(call set_up,setup --extras "$(EXTRAS)")

check:  ## the quick part of the tests: lint, editions in sync, fast unit tests
	$(call set_up,check --extras "$(TEST_EXTRAS)")
	@$(RUN) tests/lanes.py --only lint,editions,unit

notebooks:  ## build the notebooks from notebooks/src (LESSONS="03 05" for some)
	$(call set_up,notebooks --extras "$(TEST_EXTRAS)")
	@$(RUN) notebooks/build.py $(LESSONS)

bench:  ## measure what the project promises (ONLY=verdicts for one part)
	$(call set_up,bench --extras "$(TEST_EXTRAS)")
	@$(RUN) -m tests.bench $(if $(ONLY),--only $(ONLY))

gpu:  ## on a machine with a CUDA GPU: GPU tests, lessons, labs, benches; writes data/measurements/ (TORCH=installed: its own PyTorch)
	$(call set_up,gpu --extras "$(TEST_EXTRAS)")
	@$(RUN) -m tests.gpu

clean:  ## remove .venv, caches and packages that were built; notebooks and what they saved stay
	rm -rf .venv .cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

help:  ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20
