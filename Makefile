# SPDX-License-Identifier: BSD-2-Clause
#
# One makefile for everything; sources are found by their place:
#   src/*/*.c             the library
#   tools/*.c             the ramps command
#   examples/*.c          one program each, against the shared library
#   tests/*/test_*.c      one cmocka program each
#   tests/*/prog_*.c      one helper program each
#   tests/*/*.c           other files: linked into every test of that folder
#   tests/support/*.c     linked into every test
#   bench/*.c             one program each, but for what they share
#   bench/scaling/*.c     the scale study, one program
# `make help` lists the targets.

VERSION   := 0.1.0
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

PREFIX       ?= /usr/local
LIBDIR       ?= $(PREFIX)/lib
INCLUDEDIR   ?= $(PREFIX)/include
BINDIR       ?= $(PREFIX)/bin
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
MANDIR       ?= $(PREFIX)/share/man

# Make's built-in CC is cc; anything that the user says wins over gcc.
ifeq ($(origin CC),default)
CC := gcc
endif
PKG_CONFIG ?= pkg-config
INSTALL    ?= install

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

comma := ,

# --- variants ---------------------------------------------------------------
# Each sanitizer has a directory of its own, so that variants live side by side.

SAN ?=
SAN_DIR_address,undefined := asan
SAN_DIR_undefined,address := asan
SAN_DIR_thread            := tsan
ifeq ($(strip $(SAN)),)
BUILD ?= build
else
BUILD ?= build/$(or $(SAN_DIR_$(SAN)),san-$(subst $(comma),-,$(SAN)))
endif

CC_IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wwrite-strings -Wformat=2 -Wpointer-arith \
	-Wredundant-decls -Wundef -Wvla -Wconversion -Wno-sign-conversion
ifneq ($(CC_IS_CLANG),)
WARNINGS += -Wunreachable-code -Wshorten-64-to-32
endif
ifneq ($(filter-out 0,$(WERROR)),)
WARNINGS += -Werror
endif

ifeq ($(strip $(SAN)),)
CFLAGS ?= -O2 -g
else
CFLAGS ?= -O1 -g
SAN_FLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
ifeq ($(CC_IS_CLANG)$(filter thread,$(SAN)),thread)
# gcc warns of every fence under TSan, which does not model them.
SAN_FLAGS += -Wno-tsan
endif
endif

# --- what we build on -------------------------------------------------------

# VERBS=0 builds without RDMA: shared memory alone.
VERBS     ?= 1
LIB_PKGS  := openblas
ifneq ($(filter-out 0,$(VERBS)),)
LIB_PKGS  += librdmacm libibverbs libsodium
VERBS_SRC  := $(sort $(wildcard src/verbs/*.c))
VERBS_FLAG := -DRAMPS_VERBS
else
NO_TESTS   := tests/verbs/% tests/conformance/%_verbs.c tests/cluster/prog_stranger.c
endif
TOOL_PKGS := jansson zlib

# Fails only in the recipes that compile, so that help, clean and check work
# before anything is installed.
PKGS_MISSING := $(shell $(PKG_CONFIG) --exists $(LIB_PKGS) $(TOOL_PKGS) 2>/dev/null || echo yes)
ifeq ($(PKGS_MISSING),)
LIB_CFLAGS  := $(shell $(PKG_CONFIG) --cflags $(LIB_PKGS))
LIB_LIBS    := $(shell $(PKG_CONFIG) --libs $(LIB_PKGS)) -lm -lpthread
TOOL_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(TOOL_PKGS))
TOOL_LIBS   := $(shell $(PKG_CONFIG) --libs $(TOOL_PKGS))
endif
TEST_LIBS := -lcmocka

# Half-written work links too, but CI lets no undefined symbol pass. Under a
# sanitizer clang leaves its run-time's symbols to the program.
ifneq ($(filter-out 0,$(WERROR)),)
ifeq ($(strip $(SAN)),)
SO_LDFLAGS := -Wl,-z,defs
endif
endif

# -fPIC throughout: one set of objects serves both libraries.
BASE_CFLAGS := -std=gnu11 $(WARNINGS) -fno-math-errno -fPIC -fno-semantic-interposition $(SAN_FLAGS)
CPPFLAGS_ALL := -D_GNU_SOURCE -DRAMPS_VERSION='"$(VERSION)"' -Iinclude -Isrc $(VERBS_FLAG)

# --- sources ----------------------------------------------------------------

# The simulator is for tests and studies: no part of the library.
SIM_SRC     := $(sort $(wildcard src/sim/*.c))
LIB_SRC     := $(sort $(filter-out $(SIM_SRC) src/verbs/%,$(wildcard src/*/*.c)) $(VERBS_SRC))
TOOL_SRC    := $(sort $(wildcard tools/*.c))
EXAMPLE_SRC := $(sort $(wildcard examples/*.c))
TEST_SRC    := $(filter-out $(NO_TESTS),$(sort $(wildcard tests/*/test_*.c)))
PROG_SRC    := $(filter-out $(NO_TESTS),$(sort $(wildcard tests/*/prog_*.c)))
SUPPORT_SRC := $(sort $(wildcard tests/support/*.c))
SHARED_SRC  := $(filter-out $(NO_TESTS) $(TEST_SRC) $(PROG_SRC) $(SUPPORT_SRC),$(sort $(wildcard tests/*/*.c)))
TEST_SCRIPTS := $(sort $(wildcard tests/*/test_*.sh))
MAN_PAGES    := $(sort $(wildcard docs/man/*.[1-8]))
BENCH_SHARED := bench/bench.c bench/model.c
BENCH_MPI   := bench/peer_mpi.c
SCALING_SRC := $(sort $(wildcard bench/scaling/*.c))
SCALING     := $(BUILD)/bench/scaling/scaling
BENCH_SRC   := $(sort $(filter-out $(BENCH_SHARED) $(BENCH_MPI),$(wildcard bench/*.c)))
ALL_SRC     := $(LIB_SRC) $(SIM_SRC) $(TOOL_SRC) $(EXAMPLE_SRC) $(BENCH_SRC) $(BENCH_SHARED) $(TEST_SRC) $(PROG_SRC) $(SUPPORT_SRC) $(SHARED_SRC) $(SCALING_SRC)

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))

LIB_A    := $(BUILD)/libramps.a
SIM_A    := $(if $(SIM_SRC),$(BUILD)/libsim.a)
LIB_SO   := $(BUILD)/libramps.so
LIB_REAL := $(LIB_SO).$(VERSION)
SONAME   := libramps.so.$(SOVERSION)
TOOL     := $(if $(TOOL_SRC),$(BUILD)/ramps)
EXAMPLES := $(EXAMPLE_SRC:%.c=$(BUILD)/%)
TESTS_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
PROGS_BIN := $(PROG_SRC:%.c=$(BUILD)/%)
BENCH_BIN := $(BENCH_SRC:%.c=$(BUILD)/%)

.PHONY: all lib tests examples help clean install uninstall check models scaling demo lint format san-flags FORCE

all: lib $(TOOL) examples ## the library, the command and the examples
lib: $(LIB_A) $(LIB_SO)
examples: $(EXAMPLES) ## the example programs
tests: all $(TESTS_BIN) $(PROGS_BIN) $(BENCH_BIN) $(SCALING) ## all test programs, without running them

# --- compiling --------------------------------------------------------------

# Holds everything that decides what an object looks like; its time changes
# only when its text does.
FLAGS_TEXT := $(CC) $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null) $(CPPFLAGS) $(CPPFLAGS_ALL) \
	$(LIB_CFLAGS) $(TOOL_CFLAGS) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(SO_LDFLAGS) $(LIB_LIBS) $(TOOL_LIBS)

$(BUILD)/flags: FORCE
	@command -v $(firstword $(CC)) >/dev/null || { echo "$(firstword $(CC)) is missing; run: tools/deps build check" >&2; exit 1; }
	@$(if $(PKGS_MISSING),echo "development files are missing ($(LIB_PKGS) $(TOOL_PKGS)); run: tools/deps build" >&2; exit 1)
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' >$@

# V=1 shows the commands themselves.
ifeq ($(filter-out 0,$(V)),)
Q   := @
say = @echo '  $(1)	$@'
endif

COMPILE = $(CC) $(CPPFLAGS_ALL) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
LINK    = $(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@

$(BUILD)/src/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE) $(LIB_CFLAGS)

$(BUILD)/tools/%.o: tools/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE) $(LIB_CFLAGS) $(TOOL_CFLAGS)

# Examples see what a user sees.
$(BUILD)/examples/%.o: CPPFLAGS_ALL := -Iinclude
$(BUILD)/examples/%.o: examples/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE)

$(BUILD)/tests/%.o: CPPFLAGS_ALL += -Itests
$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE) $(LIB_CFLAGS) $(TOOL_CFLAGS)

# --- linking ----------------------------------------------------------------

# A list file changes with the set of sources: a removed source relinks too.
$(BUILD)/lib.list: FORCE
	@mkdir -p $(@D)
	@echo '$(LIB_SRC) $(SIM_SRC)' | cmp -s - $@ || echo '$(LIB_SRC) $(SIM_SRC)' >$@

$(LIB_A): $(call obj,$(LIB_SRC)) $(BUILD)/lib.list
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

$(SIM_A): $(call obj,$(SIM_SRC)) $(BUILD)/lib.list
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

$(LIB_REAL): $(call obj,$(LIB_SRC)) $(BUILD)/lib.list $(BUILD)/flags src/libramps.map
	$(call say,LD)
	$(Q)$(LINK) -shared $(SO_LDFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script,src/libramps.map $(filter %.o,$^) $(LIB_LIBS)

$(LIB_SO): $(LIB_REAL)
	@ln -sf $(notdir $<) $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@

$(BUILD)/ramps: $(call obj,$(TOOL_SRC)) $(LIB_A) $(BUILD)/flags
	$(call say,LD)
	$(Q)$(LINK) $(filter %.o %.a,$^) $(LIB_LIBS) $(TOOL_LIBS)

$(EXAMPLES): $(BUILD)/examples/%: $(BUILD)/examples/%.o $(LIB_SO) $(BUILD)/flags
	$(call say,LD)
	$(Q)$(LINK) $< -L$(BUILD) -lramps -Wl,-rpath,'$$ORIGIN/..' -lm -lpthread

# What is compared sees what a user sees, a shared library; step.c looks inside.
$(BUILD)/bench/%.o: bench/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE) $(LIB_CFLAGS)

$(filter-out $(BUILD)/bench/step,$(BENCH_BIN)): $(BUILD)/bench/%: $(BUILD)/bench/%.o $(call obj,$(BENCH_SHARED)) $(LIB_SO) $(BUILD)/flags
	$(call say,LD)
	$(Q)$(LINK) $(filter %.o,$^) -L$(BUILD) -lramps -Wl,-rpath,'$$ORIGIN/..' $(LIB_LIBS)

$(BUILD)/bench/step: $(BUILD)/bench/step.o $(call obj,$(BENCH_SHARED)) $(LIB_A) $(BUILD)/flags
	$(call say,LD)
	$(Q)$(LINK) $(filter %.o %.a,$^) $(LIB_LIBS)

# The scale study runs the library's insides in the simulator.
$(SCALING): $(call obj,$(SCALING_SRC)) $(SIM_A) $(LIB_A) $(BUILD)/flags
	$(call say,LD)
	$(Q)$(LINK) $(filter %.o %.a,$^) $(LIB_LIBS)

$(BUILD)/bench/peer_mpi: $(BENCH_MPI) $(call obj,$(BENCH_SHARED)) $(BUILD)/flags
	$(call say,LD)
	$(Q)OMPI_CC='$(CC)' mpicc -D_GNU_SOURCE $(BASE_CFLAGS) $(LIB_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c %.o,$^) $(LIB_LIBS)

# What a test of folder $(1) is linked with besides its own object.
shared_obj = $(call obj,$(filter $(1)/%,$(SHARED_SRC)) $(SUPPORT_SRC))

# In tests of the simulator its processes own what they allocate, map and open.
SIM_WRAP := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc posix_memalign free \
	strdup mmap munmap open openat close fdopendir pthread_mutex_lock)

# Tests of the verbs fabric have a device of their own: tests/verbs/fake_device.h.
VERBS_WRAP := $(addprefix -Wl$(comma)--wrap=,$(addprefix ibv_,get_device_list free_device_list get_device_name \
	open_device close_device query_device query_port get_async_event ack_async_event alloc_pd dealloc_pd \
	reg_mr reg_mr_iova2 dereg_mr create_comp_channel destroy_comp_channel create_cq destroy_cq get_cq_event \
	ack_cq_events create_qp modify_qp destroy_qp) _ibv_query_gid_table)
test_wrap   = $(if $(filter tests/sim/% tests/simfabric/% tests/conformance/test_sim.c,$(1)),$(SIM_WRAP)) $(if $(filter tests/verbs/test_%,$(1)),$(VERBS_WRAP))

define test_rule
$(BUILD)/$(1:.c=): $(BUILD)/$(1:.c=.o) $$(call shared_obj,$(patsubst %/,%,$(dir $(1)))) $(SIM_A) $(LIB_A) $(BUILD)/flags
	$$(call say,LD)
	$$(Q)$$(LINK) $$(filter %.o %.a,$$^) $$(LIB_LIBS) $$(TOOL_LIBS) $(2) $(call test_wrap,$(1))
endef
$(foreach t,$(TEST_SRC),$(eval $(call test_rule,$(t),$(TEST_LIBS))))
$(foreach t,$(PROG_SRC),$(eval $(call test_rule,$(t),$(TEST_LIBS))))

-include $(patsubst %.o,%.d,$(call obj,$(ALL_SRC)))

# --- checking ---------------------------------------------------------------

# TESTS=tests/unit/test_x.c (or a script, or a folder) picks some of them.
TESTS ?=

# SAN, QUICK or TESTS narrow it to one build.
ifneq ($(strip $(SAN)$(TESTS)$(filter-out 0,$(QUICK))),)
CHECK_BUILDS := $(BUILD)$(if $(strip $(SAN)),=$(strip $(SAN)))
else
CHECK_BUILDS := $(BUILD) $(BUILD)/asan=address,undefined $(BUILD)/tsan=thread
CHECK_ALL    := yes
endif

# Programs named in TESTS need neither the command nor the other tests.
CHECK_TARGETS := tests
ifneq ($(strip $(TESTS)),)
ifeq ($(filter-out %.c,$(TESTS)),)
CHECK_TARGETS := $(TESTS:%.c=$(BUILD)/%) $(filter $(addsuffix prog_%,$(addprefix $(BUILD)/,$(dir $(TESTS)))),$(PROGS_BIN))
endif
endif

# The other compiler only builds: its warnings are what it is for.
check: ## install what is missing, build and run all tests
	@tools/deps build check
	@$(MAKE) $(CHECK_TARGETS)
	@$(if $(CHECK_ALL),$(MAKE) tests SAN=address$(comma)undefined BUILD=$(BUILD)/asan)
	@$(if $(CHECK_ALL),$(MAKE) tests SAN=thread BUILD=$(BUILD)/tsan)
	@$(if $(CHECK_ALL),$(MAKE) tests CC=clang WERROR=1 BUILD=$(BUILD)/clang)
	@tests/run $(addprefix --only ,$(TESTS)) $(CHECK_BUILDS)

models: ## install what is missing and check the protocols' models with spin (QUICK=1: the small ones)
	@tools/deps check
	@QUICK='$(filter-out 0,$(QUICK))' tests/models/test_models.sh

# --- demo -------------------------------------------------------------------

demo: ## install what is missing, build, and train two models on real images
	@tools/deps build demo
	@$(MAKE) $(BUILD)/ramps
	@tools/demo $(BUILD)/ramps $(BUILD)/demo

# --- benchmarks -------------------------------------------------------------

.PHONY: bench bench-capacity
# QUICK=1: in two minutes, and coarser. Results: $(BUILD)/bench/results.*
bench: ## install what is missing, build, and compare with others on this machine
	@tools/deps build bench
	@$(MAKE) $(BENCH_BIN) $(BUILD)/bench/peer_mpi
	@bench/compare $(if $(filter-out 0,$(QUICK)),--quick) $(BUILD)

bench-capacity: ## what workers and tables cost in time and memory
	@tools/deps build
	@$(MAKE) $(BUILD)/bench/capacity
	@$(BUILD)/bench/capacity

scaling: ## thousands of workers in the simulator: writes the tables and the picture of docs/scaling.md
	@tools/deps build
	@$(MAKE) $(SCALING)
	@$(SCALING) --update docs/scaling.md docs/images/scaling.svg

# --- simulator --------------------------------------------------------------

# SEED=x runs one, with TRACE=1 all that happens in it; SIM_ARGS: build/tests/sim/prog_sim --help.
SEEDS ?= 1000
JOBS  ?= $(shell nproc)

.PHONY: sim mutants
sim: $(BUILD)/tests/sim/prog_sim ## run SEEDS=n seeds of the simulated cluster in JOBS=n processes, or SEED=x TRACE=1
	@$< $(if $(SEED),--seed $(SEED) $(if $(filter-out 0,$(TRACE)),--trace),--seeds $(SEEDS) --jobs $(JOBS)) $(SIM_ARGS)

mutants: $(BUILD)/tests/sim/prog_sim ## put known faults into the library and see the simulator catch each
	@MUTANT_CC='$(CC) $(CPPFLAGS_ALL) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) $(LIB_CFLAGS)' \
		MUTANT_LD='$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(SIM_WRAP)' \
		MUTANT_LIBS='$(LIB_LIBS) $(TOOL_LIBS) $(TEST_LIBS)' \
		tests/sim/mutants.py --jobs $(JOBS) $(BUILD) $(MUTANTS)

# --- linting ----------------------------------------------------------------

LINT_DIRS    := $(wildcard src include tools examples tests bench)
LINT_C        = $(sort $(shell find $(LINT_DIRS) -name '*.[ch]'))
LINT_SCRIPTS  = $(sort $(shell find $(LINT_DIRS) -name '*.sh'; \
	grep -rlIE '^\#! */bin/(ba)?sh' $(LINT_DIRS) $(wildcard .ci)))
LINT_TEXT    := $(LINT_DIRS) $(wildcard docs .ci *.md Makefile)
TIDY_STAMPS  := $(ALL_SRC:%=$(BUILD)/lint/%.tidy)

LINT_PARTS := lint-format lint-tidy lint-cppcheck lint-shellcheck lint-codespell lint-includes lint-sizes
.PHONY: $(LINT_PARTS) lint-all

lint: ## install what is missing and check all sources
	@tools/deps build lint
	@$(MAKE) -k -Otarget $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc)) lint-all

lint-all: $(LINT_PARTS)

lint-format:
	@status=0; for file in $(LINT_C); do \
		clang-format $$file | cmp -s - $$file || { echo "$$file: not in our layout; run: make format"; status=1; }; \
	done; exit $$status

lint-tidy: $(TIDY_STAMPS)

# Done anew only for what changed, headers included.
$(BUILD)/lint/%.tidy: % .clang-tidy tests/.clang-tidy | $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(TIDY_FLAGS) -MM -MP -MT $@ -MF $@.d $<
	@clang-tidy --quiet $< -- $(TIDY_FLAGS) 2>$@.err || { grep -v 'warnings generated' $@.err >&2; exit 1; }
	@touch $@

TIDY_FLAGS = -std=gnu11 $(CPPFLAGS_ALL) -Itests $(LIB_CFLAGS) $(TOOL_CFLAGS)

-include $(wildcard $(TIDY_STAMPS:%=%.d))

# No --library=gnu: it holds accept4() with NULL for an error.
lint-cppcheck:
	@mkdir -p $(BUILD)/lint/cppcheck
	@$(if $(LINT_C),cppcheck --quiet --std=c11 --enable=warning$(comma)performance$(comma)portability \
		--error-exitcode=1 --library=posix --inline-suppr --suppressions-list=tools/lint/cppcheck.suppressions \
		--cppcheck-build-dir=$(BUILD)/lint/cppcheck -D_GNU_SOURCE -DRAMPS_VERSION='""' \
		-Iinclude -Isrc -Itests $(filter %.c,$(LINT_C)))

lint-shellcheck:
	@$(if $(LINT_SCRIPTS),shellcheck $(LINT_SCRIPTS))

lint-codespell:
	@codespell --ignore-words=tools/lint/words $(LINT_TEXT)

lint-includes:
	@tools/lint/includes

lint-sizes:
	@tools/lint/sizes

format: ## lay out the sources as lint wants them
	$(if $(LINT_C),clang-format -i $(LINT_C))

# For the test that plants faults.
san-flags:
	@echo '$(CFLAGS) $(SAN_FLAGS)'

# --- installing -------------------------------------------------------------

man_path = $(MANDIR)/man$(subst .,,$(suffix $(1)))/$(notdir $(1))

install: all ## install under PREFIX (and DESTDIR)
	$(INSTALL) -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PKGCONFIGDIR) $(DESTDIR)$(INCLUDEDIR)/ramps
	$(INSTALL) -m 644 $(wildcard include/ramps/*.h) $(DESTDIR)$(INCLUDEDIR)/ramps
	$(INSTALL) -m 644 $(LIB_A) $(DESTDIR)$(LIBDIR)
	$(INSTALL) -m 755 $(LIB_REAL) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(LIB_REAL)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libramps.so
	$(if $(TOOL),$(INSTALL) -m 755 $(TOOL) $(DESTDIR)$(BINDIR))
	$(foreach page,$(MAN_PAGES),$(INSTALL) -D -m 644 $(page) $(DESTDIR)$(call man_path,$(page)) &&) true
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR:$(PREFIX)/%=$${prefix}/%)' \
		'includedir=$(INCLUDEDIR:$(PREFIX)/%=$${prefix}/%)' '' \
		'Name: ramps' 'Description: RDMA atomic-memory parameter server' 'Version: $(VERSION)' \
		'Libs: -L$${libdir} -lramps' 'Libs.private: $(LIB_LIBS)' 'Cflags: -I$${includedir}' \
		>$(DESTDIR)$(PKGCONFIGDIR)/ramps.pc

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(BINDIR)/ramps $(DESTDIR)$(PKGCONFIGDIR)/ramps.pc
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libramps.a libramps.so $(SONAME) $(notdir $(LIB_REAL)))
	rm -rf $(DESTDIR)$(INCLUDEDIR)/ramps
	rm -f $(foreach page,$(MAN_PAGES),$(DESTDIR)$(call man_path,$(page)))

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 17
	@echo 'Variables: V=1, VERBS=0, CC=clang, SAN=address,undefined or SAN=thread, WERROR=1, CFLAGS, BUILD, PREFIX, DESTDIR;'
	@echo 'for check: QUICK=1 (the default build, smaller tests), TESTS=tests/unit/test_x.c (or a folder)'
