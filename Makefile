# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Shortcuts for the presets of CMakePresets.json, and longer test programs. CMake does the rest.

PREFIX ?= /usr/local
DESTDIR ?=
# `make soak`: the number of seeds, and the first one, which differs at each run. A failure prints its seed.
SEEDS ?= 100000
FIRST ?= $(shell date +%s)000000
# `make kills`: the number of OpenSHMEM jobs. `make sweep-shmem`: duration and seed.
KILLS ?= 500
SWEEP_SECONDS ?= 3600
SWEEP_SEED ?= 20
# `make sim-mesh`: the number of simulated hosts, and the seed.
SIM_MESH ?= 64
SIM_FIRST ?= 1
# `make kills-sockets`: the number of connections. `make calls-sockets`: connections for random calls. `make reloads-sockets`: reloads of nginx.
SOCKET_KILLS ?= 1000
CALLS ?= 2000
RELOADS ?= 200
# `make steps-sockets`: the number of instructions between two signals; 1: an hour.
STRIDE ?= 7
# `make loops-sockets`: the number of runs of each event loop.
LOOP_ROUNDS ?= 20
# `make fuzz`: seconds for each fuzzer. `make mutants-fuzz`: the time limit of each planted bug.
FUZZ_SECONDS ?= 300
# `make cuts-pex`: the numbers of pulled cables and of reset hosts, and the seed that determines them.
PEX_CUTS ?= 100
PEX_RESETS ?= 20
PEX_SEED ?= 1
# `make strict`: the classes of links, and the tests, all of which start a fabric by `viaduct up`.
STRICT ?= pex ivshmem network
STRICT_TESTS = sockets-(absent_host|between_hosts|cut_off|cut_off_for_good|deaths_hosts|demotion_hosts|sets_hosts)|system-shmem_(ring|algorithms)
# `make machines`: the number of machines.
N ?= 4
# `make machines-check`: the number of daemons to kill; parts and further options of tests/machines/check_machines.py.
MACHINE_KILLS ?= 1000
MACHINES ?=
# `make hosts-check`: the number of daemons.
HOSTS ?= 64
# `make hosts-check`: the graph of links: chords, or mesh (a link for each pair).
GRAPH ?= chords
# `make conform-sockets`: options of tests/sockets/conform_sockets.py, which select suites and tests.
CONFORM ?=

.DEFAULT_GOAL := help
.PHONY: help docs abi lint test-stacks compilers deb deb-check dist hw plan-core fit-costs demo aarch64 cuts-pex machines lab lab-try lab-try-ring machines-check hosts-check machines-jobs container-check test bench check fuzz install clean soak soak-pex kills kills-sockets calls-sockets steps-sockets reloads-sockets loops-sockets mutants mutants-fuzz mutants-shmem conform-shmem sanitize-shmem strict sweep-shmem sim-shmem sim-mesh sim-mesh-ofi conform-sockets sanitize-sockets format packages configure-% build-% test-%

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) (install) SEEDS=$(SEEDS) FIRST=$(FIRST) (soak)"

demo: packages configure-demo ## install what is missing, build what it shows, show Viaduct at work
	cmake --build --preset demo --target demo-programs
	VIADUCT_BUILD_DIR=$(CURDIR)/build/demo/bin tools/demo

machines: packages build-release ## N machines on this computer with a daemon each, and a shell to try things from (root)
	tools/machines try $(N)

machines-check: packages build-release ## kill MACHINE_KILLS daemons, start 16 machines, cut them in two: what is lost, how long it takes
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/machines/check_machines.py --kills $(MACHINE_KILLS) $(MACHINES) || [ $$? -eq 77 ]

hosts-check: packages build-release ## HOSTS daemons over libfabric on this machine, some links to nowhere: all reach all, nothing is lost
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/machines/check_many.py --hosts $(HOSTS) --graph $(GRAPH)

lab: packages build-release ## virtual machines joined by ivshmem, and by models of PEX 87xx: links, programs, kills (QEMU is fetched into a cache)
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/test_quick.py || [ $$? -eq 77 ]
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/check_lab.py || [ $$? -eq 77 ]
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/check_ring.py || [ $$? -eq 77 ]
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/check_two_nt.py || [ $$? -eq 77 ]
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/check_b2b.py || [ $$? -eq 77 ]

lab-try lab-try-ring: lab-try%: packages build-release ## the same machines (ivshmem, or the ring of models), and a prompt to run commands in them
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/lab/check_$(if $*,ring,lab).py try || [ $$? -eq 77 ]

aarch64: ## build for aarch64 by the cross compiler, run tests and OpenSHMEM jobs of it under qemu-user
	tools/install-packages aarch64
	python3 tests/supervise.py python3 tests/aarch64/check_aarch64.py || [ $$? -eq 77 ]

container-check: ## build the container image by podman or docker, and join two containers of it
	python3 tests/supervise.py python3 tests/machines/check_container.py || [ $$? -eq 77 ]

machines-jobs: packages build-dev ## OpenSHMEM jobs over machines, by oshrun and under other launchers
	VIADUCT_BUILD_DIR=$(CURDIR)/build/dev/bin python3 tests/machines/test_jobs.py || [ $$? -eq 77 ]
	VIADUCT_BUILD_DIR=$(CURDIR)/build/dev/bin python3 tests/machines/check_job_launchers.py || [ $$? -eq 77 ]

test: packages test-dev ## install what is missing, build with ASan and UBSan, run all tests

test-stacks: packages build-dev ## the longer tests of `make test`, while uses of a stack frame after its function has returned are detected
	cmake --preset dev -DVIADUCT_STACK_CHECKS=ON >/dev/null
	ctest --preset dev -LE '^fast$$'; code=$$?; cmake --preset dev -DVIADUCT_STACK_CHECKS=OFF >/dev/null; exit $$code

check: ## test, then the same tests under TSan and in the release build, then hw, the ABI, static analysis, the lab and aarch64
	$(MAKE) test
	$(MAKE) test-stacks
	$(MAKE) lint
	$(MAKE) test-tsan
	$(MAKE) test-release
	$(MAKE) abi
	$(MAKE) hw
	$(MAKE) lab
	$(MAKE) aarch64

abi: packages build-release ## the shared libraries are compatible with what tests/abi stores (libabigail)
	tools/install-packages abi
	python3 tests/abi/check_abi.py build/release/bin

lint: packages build-dev ## static analysis: clang-tidy (.clang-tidy) and cppcheck of src and sim
	tools/install-packages lint
	python3 tools/lint build/dev

compilers: ## all targets and unit tests with gcc 12, 13, 14 and clang 19, in a fresh Debian 13 system (root; from Debian's archive)
	tools/compilers --debian trixie || [ $$? -eq 77 ]

bench: packages build-release ## run every benchmark on the release build
	tools/bench-all

plan-core: build-release ## the planner against the product's nodes, up to 64 hosts (minutes)
	VIADUCT_BUILD_DIR=build/release/bin /usr/bin/python3 tests/sim/plan_core.py --all

fit-costs: packages build-release ## fit the cost model to the published systems; needs python3-scipy
	/usr/bin/python3 tools/fit-costs build/release/bin/viaduct-sim --write

soak: packages build-release ## run SEEDS seeds of the simulator on all cores, from FIRST on
	build/release/bin/viaduct-sim run --first $(FIRST) --count $(SEEDS)

soak-pex: packages build-release ## the same with the driver of PEX 87xx on its register model as every link
	build/release/bin/viaduct-sim run --first $(FIRST) --count $(SEEDS) --set like=pex-driver,pes=0,streams=0

fuzz: packages build-fuzz ## every fuzzer of tests/fuzz, for FUZZ_SECONDS each; what they learn is kept in build/fuzz/inputs
	bash tests/fuzz/run.sh build/fuzz $(FUZZ_SECONDS)

mutants-fuzz: packages build-fuzz ## each fuzzer catches its planted bugs, each within FUZZ_SECONDS
	bash tests/fuzz/catch.sh build/fuzz $(FUZZ_SECONDS)

mutants: packages build-release ## each planted bug is caught within 2,500 seeds, in most of ten rounds from new random seeds
	/usr/bin/python3 tests/sim/catch.py build/release/bin/tests/viaduct-sim-mutants 2500 --rounds 10

sanitize-shmem: packages build-release ## run programs over the OpenSHMEM library built with ASan, UBSan and TSan
	python3 tests/supervise.py python3 tests/shmem/sanitize_shmem.py --build build/release address,undefined
	python3 tests/supervise.py python3 tests/shmem/sanitize_shmem.py --build build/release thread

mutants-shmem: packages build-release ## each call of OpenSHMEM does nothing in turn: some test program must fail
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/shmem/test_shmem_entries.py --all

conform-shmem: packages build-release ## run the tests of shmem4py (from PyPI) over the installed library
	python3 tests/supervise.py python3 tests/shmem/conform_shmem.py --build build/release || [ $$? -eq 77 ]

sim-shmem: packages build-release ## seeds of OpenSHMEM programs on 64 simulated hosts
	build/release/bin/viaduct-sim run --first 1 --count 12 --jobs 2 --set graph=ring,hosts=64,pes=64,pe-nodes=64,pe-steps=6,ops=1,streams=0,barrier-groups=0,freezes=0,crashes=0,cuts=0

sim-mesh: packages build-release ## SIM_MESH simulated hosts, a link of class network for each pair, cuts and crashes: nothing is lost or torn
	build/release/bin/viaduct-sim run --first $(SIM_FIRST) --count 1 --set graph=mesh,hosts=$(SIM_MESH),like=network,streams=0,crashes=2

sim-mesh-ofi: packages build-release ## the same with the ofi port itself, on a simulated libfabric
	build/release/bin/viaduct-sim run --first $(SIM_FIRST) --count 1 --set graph=mesh,hosts=$(SIM_MESH),like=ofi,streams=0,pes=0,crashes=2

sweep-shmem: packages build-release ## SWEEP_SECONDS of collectives by every algorithm: each type and operation, 1 to 33 PEs on 1 to 17 hosts
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin SWEEP_SECONDS=$(SWEEP_SECONDS) SWEEP_SEED=$(SWEEP_SEED) python3 tests/shmem/test_shmem_algorithms.py --all

kills: packages build-release ## kill -9 random PEs of KILLS random OpenSHMEM jobs: nothing hangs or is left
	python3 tests/supervise.py python3 tests/shmem/kill_pes.py --count $(KILLS)

conform-sockets: packages build-release ## tests of others (CONFORM=--all: all) with and without the sockets library
	tools/install-packages conform
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/sockets/conform_sockets.py $(CONFORM) || [ $$? -eq 77 ]

sanitize-sockets: packages build-dev build-tsan ## programs over the sockets library built with ASan, UBSan and TSan, 5 times
	VIADUCT_SANITIZE_ROUNDS=5 VIADUCT_BUILD_DIR=$(CURDIR)/build/dev/bin python3 tests/sockets/test_sanitized.py
	VIADUCT_SANITIZE_ROUNDS=5 VIADUCT_BUILD_DIR=$(CURDIR)/build/tsan/bin python3 tests/sockets/test_sanitized.py

strict: packages build-dev ## sockets and OpenSHMEM between hosts whose links are like those of STRICT, which promise no more than real ones
	for like in $(STRICT); do VIADUCT_UP_LIKE=$$like ctest --preset dev -R '^($(STRICT_TESTS))$$' || exit 1; done

cuts-pex: packages build-dev ## pull cables (PEX_CUTS) and reset hosts (PEX_RESETS) of a ring on register models under load: nothing is lost
	VIADUCT_PEX_CUTS=$(PEX_CUTS) VIADUCT_PEX_RESETS=$(PEX_RESETS) VIADUCT_PEX_SEED=$(PEX_SEED) python3 tests/supervise.py \
		$(CURDIR)/build/dev/bin/tests/system-pex_faults

kills-sockets: packages build-release ## kill -9 a random side of SOCKET_KILLS connections under load
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/sockets/kill_sockets.py --count $(SOCKET_KILLS)

calls-sockets: packages build-release ## random calls on CALLS connections of each kind, over kernel TCP and over pipes
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/sockets/random_calls.py --rounds $(CALLS)
	for seed in 1 2 3 4 5 6; do VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin \
		python3 tests/sockets/random_calls.py --rounds $(CALLS) --seed $${seed}000000 || exit 1; done

steps-sockets: packages build-release ## signals at each STRIDE-th instruction of calls: handlers fork, and make calls on the same connection
	for check in a_child_returns_from_a_fork a_parent_returns_from_a_fork a_handler_makes_calls; do \
		VIADUCT_CHECKS_STRIDE=$(STRIDE) VIADUCT_CHECKS_HANG_S=7200 LD_PRELOAD=$(CURDIR)/build/release/bin/libviaduct-sockets.so \
		build/release/bin/tests/prog_socket_checks $${check}_at_any_instruction || exit 1; done

reloads-sockets: packages build-release ## reload nginx RELOADS times under load
	VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/sockets/reload_nginx.py --count $(RELOADS) || [ $$? -eq 77 ]

loops-sockets: packages build-release ## every shape of event loop, LOOP_ROUNDS times: none stalls for 100 ms (on an idle machine)
	VIADUCT_EVENT_LOOP_ROUNDS=$(LOOP_ROUNDS) VIADUCT_BUILD_DIR=$(CURDIR)/build/release/bin python3 tests/sockets/test_event_loops.py

docs: ## the documentation as a site, man pages included, in build/docs/site
	tools/install-packages docs
	python3 tools/docs --output build/docs

deb: ## Debian packages of this tree, in build/deb
	tools/install-packages deb
	packaging/make-deb build/deb
	lintian --allow-root --fail-on error,warning build/deb/*.changes

deb-check: deb ## install, use, upgrade and purge them in fresh Debian 12 and 13 systems (root; from Debian's archive)
	python3 tests/packages/check_packages.py build/deb || [ $$? -eq 77 ]

dist: ## build/viaduct-VERSION.tar.gz of what is committed; the same bytes for the same commit
	mkdir -p build
	version=$$(sed -n 's/^project(viaduct VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) && \
	git archive --format=tar --prefix=viaduct-$$version/ HEAD | gzip -9n > build/viaduct-$$version.tar.gz && sha256sum build/viaduct-$$version.tar.gz

install: ## install the release build below DESTDIR, for PREFIX
	cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	cmake --build --preset release
	DESTDIR=$(DESTDIR) cmake --install build/release

clean: ## remove build/
	rm -rf build

format: ## format every source in place
	git ls-files -z -co --exclude-standard '*.c' '*.h' | xargs -0r clang-format -i

packages: ## install the Debian packages that are missing
	@tools/install-packages

hw: packages build-dev ## the signal-selection block of adapter cards: proved, simulated, planted faults, synthesised
	tools/install-packages hw
	@python3 -c 'import cocotb_tools' 2>/dev/null || [ -x build/hw/bin/cocotb-config ] || \
	    { python3 -m venv build/hw && build/hw/bin/pip install -q cocotb==2.1.0; } || echo "hw: no cocotb from PyPI, so its tests are skipped"
	PATH="$(CURDIR)/build/hw/bin:$$PATH" python3 hw/check.py build/dev/bin/viaduct || test $$? -eq 77

build-fuzz:
	tools/install-packages fuzz
	cmake --preset fuzz --log-level=WARNING
	cmake --build --preset fuzz --target fuzzers

configure-%:
	@cmake --preset $* --log-level=WARNING

build-%: configure-%
	cmake --build --preset $*

test-%: build-%
	ctest --preset $*
