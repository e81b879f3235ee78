# The front door: from a machine with git and make to a trained model. CMake does the building; this says what a person can type.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all test-mutants test-gpu bench-gpu build packages format lint fuzz

# A fresh machine has no locale but this one.
export LC_ALL := C.UTF-8
# ccache goes by the compiler's own list of headers, instead of running the preprocessor first: a fifth of the time where it finds nothing.
export CCACHE_DEPEND := 1
# And by paths inside this folder, so that a copy of it compiles nothing anew (tests/python/additions.py).
export CCACHE_BASEDIR := $(CURDIR)

JOBS ?= $(shell nproc)
GALLEY := build/release/galley

# What `make quickstart` types.
RUN := runs/quickstart-$(shell date +%Y%m%d-%H%M%S)
TRAIN = $(GALLEY) train scripts/quickstart.lua --set text=. --out $(RUN)
SAMPLE = $(GALLEY) sample $(RUN) --prompt "A recipe is"

SOURCES = $(shell find host sdk models plugins tests -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu')

help:
	@echo 'make quickstart   install what is missing, build for this processor, train a small model on this folder, continue a prompt'
	@echo 'make build        install what is missing and build $(GALLEY), with what plans for other processors and for GPUs'
	@echo 'make packages     build, and make the Debian packages galley and galley-sdk in build/release/packages'
	@echo 'make test         build and run the tests'
	@echo 'make test-all     the same, the tests that take long and seldom find anything, and a part of both under sanitizers'
	@echo 'make test-mutants take away each barrier of the CUDA kernels in turn: a test has to fail'
	@echo 'make test-gpu     build for the NVIDIA GPU that is here, and test on it'
	@echo 'make bench-gpu    time whole steps on it, beside PyTorch where python3 has that'
	@echo 'make format       lay out the sources as .clang-format says'
	@echo 'make lint         clang-tidy and cppcheck; FILES="host/base/file.cpp …" for some files only'
	@echo 'make fuzz         fuzz the readers of untrusted files; SECONDS=3600 for an hour each'
	@echo
	@echo 'JOBS=N limits how much is compiled at once. Other builds (dev, asan, tsan, cuda): cmake --preset NAME'

# Silent when all is well: only warnings, errors and the compiler's own words come through.
define configure
cmake --preset release --log-level=WARNING $(1) >/dev/null
endef
define compile
cmake --build --preset release --parallel $(JOBS) --target $(1) -- --quiet | sed '/^ninja: no work to do\.$$/d'
endef

build:
	@.ci/setup
	@$(call configure,-DGALLEY_CUDA=AUTO -DGALLEY_OPTIMIZE_OTHER_LEVELS=ON)
	@echo 'galley: building in build/release'
	@$(call compile,program)

packages: build
	@.ci/setup packages
	@$(call configure)
	@$(call compile,man)
	@cd build/release && cpack >packages.log || { cat packages.log; exit 1; }
	@ls build/release/packages/*.deb

# Only what the recipe needs on this machine: other strategies, kernels of other levels and emulated GPUs come with `make build`.
quickstart:
	@.ci/setup
	@$(call configure)
	@echo 'galley: building in build/release'
	@$(call compile,quickstart)
	@mkdir -p $(dir $(RUN))
	$(TRAIN)
	@echo 'galley: the run lies in $(RUN)'
	$(SAMPLE)

# Without a GPU nothing runs what nvcc makes, which takes a third of the build.
CUDA = $(shell nvidia-smi >/dev/null 2>&1 && echo AUTO || echo OFF)
test:
	@.ci/setup tests
	@$(call configure,-DGALLEY_TESTS=ON -DGALLEY_CUDA=$(CUDA) -DGALLEY_OPTIMIZE_OTHER_LEVELS=OFF)
	@echo 'galley: building in build/release'
	@$(call compile,all)
	@[ $(CUDA) = AUTO ] || echo 'galley: there is no NVIDIA GPU: its kernels are tested by emulation only'
	@rm -f build/release/Testing/Temporary/LastTest*.log; ctest --preset release --label-exclude '^all$$'; code=$$?; tests/summary.py build/release && exit $$code

# Each part runs, whatever became of the others; tests/results/all.md then says what passed.
part = code=$$?; tests/summary.py --add build/all.jsonl '$(1)' $$code $(2)
test-all:
	@mkdir -p build; rm -f build/all.jsonl build/*/Testing/Temporary/LastTest*.log
	@$(MAKE) --no-print-directory test; $(call part,make test,build/release)
	@$(call compile,asan-kernels tsan-kernels); rm -f build/release/Testing/Temporary/LastTest*.log; \
	  ctest --preset release --label-regex '^all$$' --no-tests=ignore; code=$$?; tests/summary.py build/release || code=1; (exit $$code); $(call part,what takes long,build/release)
	@cmake --preset asan --log-level=WARNING -DGALLEY_TESTS=ON >/dev/null
	@echo 'galley: building in build/asan'
	@cmake --build --preset asan --parallel $(JOBS) --target sanitized -- --quiet | sed '/^ninja: no work to do\.$$/d' && \
	  ctest --preset asan -L '^sanitized$$'; $(call part,AddressSanitizer,build/asan)
	@cmake --preset tsan --log-level=WARNING -DGALLEY_TESTS=ON >/dev/null
	@echo 'galley: building in build/tsan'
	@cmake --build --preset tsan --parallel $(JOBS) --target threaded -- --quiet | sed '/^ninja: no work to do\.$$/d' && \
	  ctest --preset tsan -L '^threaded$$'; $(call part,ThreadSanitizer,build/tsan)
	@$(MAKE) --no-print-directory test-mutants; $(call part,make test-mutants)
	@tests/summary.py --write tests/results/all.md build/all.jsonl

test-mutants:
	@.ci/setup tests
	@$(call configure,-DGALLEY_TESTS=ON)
	@echo 'galley: building in build/release'
	@$(call compile,test-models program)
	@GALLEY_SOURCE=$(CURDIR) GALLEY_BINARY=$(CURDIR)/build/release tests/python/mutants.py --all

# A build that was carried here has no cache of CMake, and is taken as it is: the machine may have neither compilers nor network. One that was
# begun here has what it needs.
define build_for_cuda
@if [ -x build/cuda/galley ] && [ ! -e build/cuda/CMakeCache.txt ]; then echo 'galley: build/cuda is taken as it is'; else \
  { [ -e build/cuda/CMakeCache.txt ] || .ci/setup tests; } && \
  cmake --preset cuda --log-level=WARNING $(1) >/dev/null && echo 'galley: building in build/cuda' && \
  cmake --build --preset cuda --parallel $(JOBS) $(2) -- --quiet | sed '/^ninja: no work to do\.$$/d'; fi
endef

test-gpu:
	$(call build_for_cuda,-DGALLEY_TESTS=ON)
	@tests/gpu/test

bench-gpu:
	$(call build_for_cuda,,--target program)
	@tests/gpu/bench.py

format:
	@command -v clang-format >/dev/null || { echo 'make format: clang-format is missing; apt-get install clang-format'; exit 1; }
	@clang-format -i $(SOURCES)

# The list of sources comes from the build, because the headers that a plugin sees depend on it.
lint:
	@for tool in clang-tidy cppcheck; do \
	  command -v $$tool >/dev/null || { echo "make lint: $$tool is missing; apt-get install clang-tidy cppcheck"; exit 1; }; done
	@.ci/setup tests
	@$(call configure)
	@files="$(FILES)"; \
	files=$${files:-$$(sed -n 's|^ *"file": "$(CURDIR)/\(.*\)".*|\1|p' build/release/compile_commands.json | grep -v ^tests/ | sort -u)}; \
	printf '%s\n' $$files | xargs -P $(JOBS) -n 1 clang-tidy --quiet -p build/release 2> >(grep -v 'warnings generated\|^Suppressed\|^Use -' >&2) && \
	cppcheck --quiet --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem \
	  --suppress=unknownMacro --library=googletest --error-exitcode=1 -j $(JOBS) -I. -Isdk/include -Isdk/emulated/include -Imodels $$files

# Each target for SECONDS, all at once; what is found lies in build/fuzz/found.
SECONDS := 60
fuzz:
	@.ci/setup fuzz
	@cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ --log-level=WARNING >/dev/null
	@echo 'galley: building in build/fuzz'
	@cmake --build build/fuzz --parallel $(JOBS) -- --quiet | sed '/^ninja: no work to do\.$$/d'
	@mkdir -p build/fuzz/found
	@printf '%s\n' $(basename $(notdir $(wildcard tests/fuzz/*.cpp))) | xargs -P $(JOBS) -I NAME bash -c \
	  'mkdir -p build/fuzz/corpus/NAME && cd build/fuzz && ./NAME corpus/NAME ../../tests/fuzz/seeds/NAME -dict=../../tests/fuzz/NAME.dict \
	  -artifact_prefix=found/NAME- -max_total_time=$(SECONDS) -detect_leaks=0 -timeout=30 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1 >NAME.log 2>&1; \
	  code=$$?; tail -n 8 NAME.log | sed "s/^/NAME: /"; exit $$code'
