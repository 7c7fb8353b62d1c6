# Everything a person or CI does with the tree. Each target sets up what it needs on a machine with
# Python 3.11 or newer (with venv and headers), make and gcc. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PROGRAMS := $(PY) -m tests.support.controlplane.programs
PACKAGES := extender webhooks gpu_shim tests
KERNEL_FOLDERS := extender/kernels extender/lab/kernels
COMPILED := $(KERNEL_FOLDERS) gpu_shim/arbiter/fast_path
KERNELS := setup.py $(wildcard $(foreach kind,pyx pxd,$(addsuffix /*.$(kind),$(COMPILED))) \
    gpu_shim/native/*.[ch] gpu_shim/protocol/*.h)
CHECKED := build/bounds
KERNEL_TESTS := $(wildcard $(foreach kind,unit property,$(addprefix tests/$(kind)/,kernels policy)))
# Another release may write the lock file differently.
UV_RELEASE := 0.13.9

# `make test ARGS="-k name -x"`, `make demo KEEP=1`
ARGS ?=
# Half of the time tests wait, so two cores carry four workers, each with a control plane of its own
# (2.5 GiB). Six take 20 % more CPU time, since what runs beside a test that waits works, too.
# WORKERS=0 runs everything in one process.
WORKERS ?= $(shell awk -v most=$$((2 * $$(nproc))) '/MemTotal/ { n = int($$2 / 2621440); \
    print (n < 1 ? 1 : n > most ? most : n) }' /proc/meminfo)
# Unit and property tests compute, and each worker collects them all.
QUICK_WORKERS ?= $(shell nproc)
KEEP ?=
export KEEP
# Every test run starts hundreds of Python programs: they are compiled once, not at each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
# All targets that `make` lists.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\# .*/\1/p' $(MAKEFILE_LIST))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ballast ## make .venv: locked packages, compiled kernels, the ballast command

controlplane: setup ## make etcd, Kubernetes' programs and kwok, once, outside the tree
	@$(PY) -m tests.support.controlplane build

other-planes: setup ## make kube-apiserver and kube-scheduler of Kubernetes 1.32, 1.34, 1.35 and 1.37, once
	@$(PY) -m tests.support.controlplane build --others

node: setup ## make containerd and kubelet for a real node, once, outside the tree
	@$(PY) -m tests.support.node build

helm: setup ## make Helm for the tests of the chart, once, outside the tree
	@$(PROGRAMS) helm

nvidia: setup ## build NVIDIA's device plugin and container toolkit for tests on a node, outside the tree (gcc)
	@$(PROGRAMS) nvidia

dra-driver: setup ## build Kubernetes' DRA example driver for the test of claims on a node, outside the tree
	@$(PROGRAMS) dra

karpenter: setup ## make Karpenter for the tests of autoscaling, once, outside the tree
	@$(PROGRAMS) karpenter

lws: setup ## make LeaderWorkerSet's controller for the tests of inference, once, outside the tree
	@$(PROGRAMS) lws

keda: setup ## make KEDA for the tests of inference, once, outside the tree
	@$(PROGRAMS) keda

jobset: setup ## make JobSet's controller for the tests of jobs, once, outside the tree
	@$(PROGRAMS) jobset

kuberay: setup ## make KubeRay's operator for the tests of jobs, once, outside the tree
	@$(PROGRAMS) kuberay

kubeflow: setup ## make Kubeflow's operators for the tests of jobs, once, outside the tree
	@$(PROGRAMS) kubeflow

argo: setup ## make Argo's workflow-controller for the tests of jobs, once, outside the tree
	@$(PROGRAMS) argo

tekton: setup ## make Tekton's controller for the tests of jobs, once, outside the tree
	@$(PROGRAMS) tekton

jupyterhub: setup ## install JupyterHub with KubeSpawner for the tests of jobs, once, outside the tree
	@$(PROGRAMS) jupyterhub

dask: setup ## install Dask's operator for the tests of jobs, once, outside the tree
	@$(PROGRAMS) dask

airflow: setup ## install Airflow's operators for the tests of jobs, once, outside the tree
	@$(PROGRAMS) airflow

skypilot: setup ## install SkyPilot for the tests of jobs, once, outside the tree (socat and nc to run it)
	@$(PROGRAMS) skypilot

prefect: setup ## install Prefect's worker for the tests of jobs, once, outside the tree
	@$(PROGRAMS) prefect

dagster: setup ## install Dagster's launcher for the tests of jobs, once, outside the tree
	@$(PROGRAMS) dagster

spark: setup ## install Spark for the tests of jobs, once, outside the tree (Java 17 to run it)
	@$(PROGRAMS) spark

descheduler: setup ## make the descheduler for a test of evictions, once, outside the tree
	@$(PROGRAMS) descheduler

argocd: setup ## make Argo CD for a test of manifests, once, outside the tree (redis-server to run it)
	@$(PROGRAMS) argocd

flux: setup ## make Flux's kustomize-controller for a test of manifests, once, outside the tree
	@$(PROGRAMS) flux

gatekeeper: setup ## make Gatekeeper for a test of webhooks, once, outside the tree
	@$(PROGRAMS) gatekeeper

cert-manager: setup ## make cert-manager for a test of its overlay, once, outside the tree
	@$(PROGRAMS) cert_manager

kube-router: setup ## make kube-router, with which the end-to-end tests enforce network policies
	@$(PROGRAMS) kube_router

prometheus-operator: setup ## make the Prometheus operator for a test of monitoring, outside the tree
	@$(PROGRAMS) prometheus_operator

kyverno: setup ## make Kyverno for a test of webhooks, once, outside the tree
	@$(PROGRAMS) kyverno

vpa: setup ## make the Vertical Pod Autoscaler for a test beside it, once, outside the tree
	@$(PROGRAMS) vpa

login: setup ## make OAuth2 Proxy and an OpenID provider for the tests of logins, outside the tree
	@$(PROGRAMS) login

kueue: setup ## make Kueue for the tests of many clusters, once, outside the tree
	@$(PROGRAMS) kueue

drivers: setup ## fetch NVIDIA's libraries of three branches for tests (12 MB), outside the tree
	@$(PY) -m tests.support.drivers $(ARGS)

gpu-node-kit: controlplane ## make build/gpu-node-kit for a machine with a GPU: a whole cluster of one node; there: run
	@$(PY) -m tests.gpu_node.kit build/gpu-node-kit

gpu-kit: setup ## make build/gpu-kit for a machine with a GPU and no package index; there: run a
	@$(PY) -m gpu_shim.kit.make build/gpu-kit

image: setup ## make the container image as build/image/ballast.tar, without a registry
	@$(PY) -m manifests.image $(ARGS)

release: controlplane ## make image, manifests, chart, wheel, SBOM and checksums in build/release
	@$(PY) -m manifests.release --kubectl \
	    "$$($(PY) -c 'from tests.support.overlays import kubectl; print(kubectl())')" $(ARGS)

manifests: controlplane ## write manifests/install.yaml anew
	@$(PY) -m tests.support.overlays

demo: controlplane ## fair shares and reclaim on a simulated cluster; KEEP=1 leaves it running
	@$(PY) -m tests.demo $(ARGS)

demo-docs: controlplane ## run every command of the documentation as printed, on the demo
	@$(PY) -m tests.demo.docs

test: controlplane ## run the tests; ARGS="-k name" for some
	$(PY) -m pytest -n $(WORKERS) -m "not thorough" $(ARGS)

test-all: controlplane ## the same with all inputs of tests that `make test` runs on some
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

test-quick: setup ## what needs no control plane, in minutes: unit and property tests
	$(PY) -m pytest -n $(QUICK_WORKERS) -m "not (controlplane or thorough)" tests/unit tests/property \
	    $(ARGS)

test-crashes: controlplane ## kill every program in the middle of a gang and of a move, five times each
	BALLAST_CRASH_REPEATS=5 $(PY) -m pytest tests/integration/faults $(ARGS)

SEED ?= 1
MINUTES ?= 18
faults: controlplane ## faults under load, drawn from SEED=n, for MINUTES=n and more; audited
	$(PY) -m tests.faults --seed $(SEED) --minutes $(MINUTES) $(ARGS)

HOURS ?= 12
soak: controlplane ## faults that leave our programs alive, for HOURS=n; nothing may grow
	$(PY) -m tests.faults --seed $(SEED) --hours $(HOURS) $(ARGS)

test-bounds: setup ## run what uses the kernels on ones built with bounds checks
	@rm -rf $(CHECKED) && mkdir -p $(CHECKED)
	@cp -R $(PACKAGES) setup.py pyproject.toml LICENSE $(wildcard README.md manifests examples docs) $(CHECKED)/
	@cd $(CHECKED) && rm -f $(foreach kind,c so,$(addsuffix /*.$(kind),$(KERNEL_FOLDERS)))
	@cd $(CHECKED) && sed -i '1s/boundscheck=False/boundscheck=True/' $(addsuffix /*.pyx,$(KERNEL_FOLDERS))
	@cd $(CHECKED) && CFLAGS=-O1 $(CURDIR)/$(PY) setup.py \
	    --quiet build_ext --inplace >build.log 2>&1 || { cat build.log; exit 1; }
	@for kernel in $(addprefix $(CHECKED)/,$(addsuffix /*.c,$(KERNEL_FOLDERS))); do \
	    grep -q RaiseBufferIndexError $$kernel || { echo "error: no bounds checks in $$kernel"; exit 1; }; \
	done
	cd $(CHECKED) && BALLAST_SHARED=$(or $(BALLAST_SHARED),$(CURDIR)/../shared) $(CURDIR)/$(PY) -m pytest \
	    -n $(QUICK_WORKERS) -p no:cacheprovider -W error::pytest.PytestUnraisableExceptionWarning \
	    -m "not controlplane" $(KERNEL_TESTS) $(ARGS)

# Only from the command line: the suite installs and uninstalls Ballast on that cluster.
E2E_KUBECONFIG = $(if $(filter command,$(firstword $(origin KUBECONFIG))),$(KUBECONFIG))
e2e: controlplane ## install on a real node, run user stories; KUBECONFIG=... for a given cluster
	BALLAST_E2E=required BALLAST_E2E_KUBECONFIG=$(E2E_KUBECONFIG) $(PY) -m pytest tests/e2e $(ARGS)

mutants: setup ## put errors into the programs, one at a time; every one must fail its test
	$(PY) -m tests.mutants $(ARGS)

check: setup ## lint, format, types, layers, kernels and prose, on the whole tree
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cython-lint --max-line-length=100 $(PACKAGES)
	$(PY) -m tests.tools.prose
	$(VENV)/bin/mkdocs build --quiet --strict

bench: controlplane ## measure; writes build/bench.json
	@mkdir -p build
	@$(PY) -m tests.bench $(ARGS)

reference: setup ## write docs/reference anew from the code
	@$(PY) -m tests.tools.reference --write

site: setup ## make the documentation as a site in build/site; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

lock: setup ## write requirements.lock anew from pyproject.toml
	@$(PYTHON) -m venv build/uv
	@build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_RELEASE)
	build/uv/bin/uv pip compile --quiet --universal --generate-hashes --no-header \
	    --python-version 3.11 --extra dev --output-file requirements.lock pyproject.toml

clean: ## remove everything made in the tree (not the programs in the cache folder)
	rm -rf $(VENV) build dist ballast.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache
	rm -f $(foreach kind,c so,$(addsuffix /*.$(kind),$(COMPILED)))
	find $(PACKAGES) manifests -name __pycache__ -type d -prune -exec rm -rf {} +

# -- how .venv is made -------------------------------------------------------------------------

# The environment itself, and the locked packages in it.
$(VENV)/.packages: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: Python 3.11 or newer is needed, $(PYTHON) is not; try make PYTHON=python3.11"; \
	    exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; \
	    exit 1; }
	@$(PYTHON) -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null || { \
	    echo "error: $(PYTHON) has no headers to compile with; on Debian: apt-get install python3-dev"; \
	    exit 1; }
	@command -v gcc >/dev/null || { \
	    echo "error: no C compiler; on Debian: apt-get install gcc libc6-dev"; exit 1; }
	@echo "making $(VENV) from requirements.lock"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

# Our own packages: linked into the environment, kernels compiled in place.
$(VENV)/.ballast: $(VENV)/.packages pyproject.toml $(KERNELS)
	@echo "compiling the kernels"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
