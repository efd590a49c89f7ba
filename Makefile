# make demo: set everything up and compare ten methods on the embedded data.  make test: set everything up and run the tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: setup demo test check clean
setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,fast,privacy,nvflare,ray,flower]'
	touch $(READY)

demo: setup
	rm -rf runs/demo
	$(BIN)/sartor compare --out runs/demo

# One thread for each of the two test processes: they share two cores.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check sartor tests benchmarks docs
	$(BIN)/mypy

# A server and three sites on this machine: kits, ten rounds of FLAME over mutual TLS, personal models at the sites.
.PHONY: federation-demo test-federation federation-memory
federation-demo: setup
	rm -rf runs/federation
	$(BIN)/python examples/federation.py runs/federation

# Every kill, every refusal and the table of conformance, with real processes, over NVFlare, Flower and Ray: half an hour.
test-federation: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m federation

# 50 sites, 200 rounds: fails where the server's memory or its open files grow.
federation-memory: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/federation.py --memory

# The pictures of the report in docs/, with Chromium, from a real comparison.
.PHONY: report-shots
report-shots: setup
	$(BIN)/python docs/report_shots.py

clean:
	rm -rf .venv .venv-bench runs .pytest_cache .mypy_cache .ruff_cache *.egg-info

# Against a plain loop, Flower and pfl, and against the machine's limit. Writes benchmarks/RESULTS.md and results.json.
.PHONY: bench bench-quick
PEERS := .venv-bench/ready
$(PEERS): constraints.txt
	$(PYTHON) -m venv .venv-bench
	echo '*' > .venv-bench/.gitignore
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt torch 'flwr[simulation]==1.41.0' pfl==0.6.0
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[fast]'
	touch $(PEERS)

bench: setup $(PEERS)
	$(BIN)/python benchmarks/run.py --peers .venv-bench/bin/python

# Fails when a recorded ratio has dropped by more than 30%.
bench-quick: setup
	$(BIN)/python benchmarks/run.py --quick
