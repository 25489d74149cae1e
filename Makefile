# radish: `make serve` runs it, `make test` tests it. Both install missing packages first.
#   make             builds build/radish
#   make serve       ... and serves the default model (PORT=9000 MODEL=file.gguf ARGS="-t 4")
#   make chat        ... or chats with it in the terminal
#   make cuda        builds build/radish-cuda.so, the engine for NVIDIA GPUs; needs no GPU. CUDA_ARCHS=90a compiles
#                    for one architecture only, NVCC=path/to/nvcc uses that compiler
#   make test-cuda   ... and tests it on this machine's GPU (T=bits: cases whose name contains "bits"); see also
#                    tools/cuda/device.sh
#   make test        runs every test; ends with "N passed, N failed, N skipped"
#   make unit        runs the unit tests, with sanitizers (T=tree: those whose name contains "tree")
#   make tsan        runs the unit tests of threads under ThreadSanitizer
#   make soak        tests the cache against a naive model for SOAK_SECONDS, then the scheduler on a mock
#                    engine for SOAK_STEPS (AddressSanitizer), then a loaded server (ThreadSanitizer), then
#                    servers whose clients send hostile HTTP (AddressSanitizer)
#   make bench       runs the benchmarks in bench/ and benchmarks the default model
#   make fuzz        runs each fuzzer for FUZZ_SECONDS (clang)
#   make mutants     injects N random faults into the cache, the scheduler and the server, one at a time; the
#                    unit tests must notice each (SEED selects them; tools/mutants.py)
#   make deb         builds a Debian package, build/radish_VERSION_amd64.deb; CUDA=1 adds the engine for NVIDIA GPUs
#   make dist        builds a tarball that needs only glibc 2.31 or newer, build/radish-VERSION-linux-x86_64.tar.gz;
#                    CUDA=1 as above; SYSROOT=DIR takes the C library to link with from there (packaging/sysroot.sh)
#   make man         writes man pages, shell completions and an example config into build/manual
#   make docs        writes docs/api.md and docs/models.md from the tables in the code
#   make lint | format | coverage | install | clean
#   make V=1         shows the commands
#   make STATIC=1    links all libraries but the C library's statically, for machines that lack them
OPT     ?= -O3 -g
BUILD   ?= build
PREFIX  ?= /usr/local
# Not from the environment, where some shells set it to the machine's name.
HOST    := 127.0.0.1
PORT    ?= 8080
MODEL   ?=
ARGS    ?=
T       ?=
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 60
SOAK_STEPS ?= 1000000
SOAK_SEED ?=
N       ?= 300
SEED    ?= 1
JOBS    ?= $(shell nproc)
NVCC    ?=
CUDA_ARCHS ?= 80 86 89 90a 100f 120
VERSION := 0.1.0
Q       := $(if $(V),,@)

# Flags from the environment, before ours are added.
GIVEN_FLAGS := $(CPPFLAGS) $(CFLAGS)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-missing-field-initializers
CFLAGS   += -std=c17 -D_GNU_SOURCE $(WARN) -ffp-contract=off -fno-math-errno -pthread -Isrc
CPPFLAGS += -DRADISH_VERSION='"$(VERSION)"' -MMD -MP
# A static OpenSSL may need others: zlib and Zstandard, on newer releases of Debian.
OPENSSL_LIBS := $(if $(STATIC),$(shell CC="$(CC)" tools/setup.sh openssl-libraries))
LDLIBS   += $(patsubst %,$(if $(STATIC),-l:lib%.a,-l%),event_pthreads event_core ssl crypto $(OPENSSL_LIBS) pcre2-8 utf8proc) -lm -ldl
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

# The last one holds the kernels and is in the plug-in alone.
LIB_SRCS  := $(filter-out src/cli/main.c src/engine/cuda/cuda_plugin.c,$(sort $(shell find src -name '*.c')))
TEST_SRCS := $(sort $(wildcard tests/unit/*.c)) tests/cuda/shaped_model.c
BENCHES   := $(patsubst bench/%.c,$(BUILD)/%,$(filter-out bench/bench_cuda.c,$(wildcard bench/*.c)))
FUZZERS   := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/*.c))

# Each build flavour has its own flags and folder: build/release, build/debug, ...
FLAVOURS        := release debug checked tsan coverage fuzzing plugin
FLAGS_release   := $(OPT) -DNDEBUG
FLAGS_debug     := -O1 -g $(SANITIZE)
FLAGS_checked   := -O2 -g $(SANITIZE)
FLAGS_tsan      := -O1 -g -fsanitize=thread
FLAGS_coverage  := -O0 -g --coverage
FLAGS_plugin    := $(OPT) -DNDEBUG -fPIC -fvisibility=hidden
FLAGS_fuzzing   := -O1 -g $(SANITIZE) -fsanitize=fuzzer-no-link
objects = $(patsubst %.c,$(BUILD)/$(1)/%.o,$(2))
library = $(BUILD)/$(1)/libradish.a

all: $(BUILD)/radish

# Each kernel is compiled for the instructions it uses, and chosen at run time.
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
%_avx2.o:   CFLAGS += -mavx2 -mfma -mf16c
%_avx512.o: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
%_vnni.o:   CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
%_amx.o:    CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mamx-tile -mamx-int8
endif

# Checks once, before compiling, that the compiler and the libraries are installed.
PACKAGES := $(BUILD)/packages-for-$(notdir $(firstword $(CC)))
$(PACKAGES):
	@CC="$(CC)" tools/setup.sh check $(GIVEN_FLAGS)
	@mkdir -p $(@D) && touch $@

define flavour_rules
$(BUILD)/$(1)/%.o: %.c | $(PACKAGES)
	@mkdir -p $$(@D)
	@echo "cc $$@"
	$$(Q)$$(CC) $$(CFLAGS) -Itests/unit $$(FLAGS_$(1)) $$(CPPFLAGS) -c $$< -o $$@
$(call library,$(1)): $(call objects,$(1),$(LIB_SRCS))
	@rm -f $$@
	$$(Q)$$(AR) rcs $$@ $$^
endef
$(foreach f,$(FLAVOURS),$(eval $(call flavour_rules,$(f))))

# A file that stands for a setting, in the place of those for its other values. It is made here, because make does not
# miss a file that a rule could make.
stamp = $(if $(wildcard $(1)),,$(shell mkdir -p $(dir $(1)) && rm -f $(2) && touch $(1)))
# Links anew when STATIC comes or goes.
LINKAGE := $(BUILD)/linked-$(if $(STATIC),static,shared)
$(call stamp,$(LINKAGE),$(BUILD)/linked-*)
$(BUILD)/radish $(BUILD)/cuda_tests $(BUILD)/bench_cuda $(BUILD)/radish-cuda.so: $(LINKAGE)
link = $(Q)$(CC) $(FLAGS_$(1)) $(LDFLAGS) -pthread $(filter %.o %.a,$^) $(LDLIBS) -o $@

STATIC_SRCS := $(if $(STATIC),tools/older_libc.c tools/own_openssl.c)
$(BUILD)/radish: $(call objects,release,src/cli/main.c $(STATIC_SRCS)) $(call library,release)
	$(call link,release)
$(BUILD)/radish: LDFLAGS += -Wl,-z,relro,-z,now
$(BUILD)/radish-debug: $(call objects,debug,src/cli/main.c) $(call library,debug)
	$(call link,debug)
$(BUILD)/radish-tsan: $(call objects,tsan,src/cli/main.c) $(call library,tsan)
	$(call link,tsan)
# Tests can make allocations fail and time pass: tests/unit/test_memory.h.
$(BUILD)/unit $(BUILD)/unit-tsan $(BUILD)/unit-coverage: LDFLAGS += \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=clock_now_ns
$(BUILD)/unit: $(call objects,debug,$(TEST_SRCS)) $(call library,debug)
	$(call link,debug)
$(BUILD)/unit-tsan: $(call objects,tsan,$(TEST_SRCS)) $(call library,tsan)
	$(call link,tsan)
$(BUILD)/unit-coverage: $(call objects,coverage,$(TEST_SRCS)) $(call library,coverage)
	$(call link,coverage)

# The CUDA engine as a plug-in: one exported symbol, the kernels, and what they need of the rest.
CUDA_BUILD   := $(BUILD)/cuda
CUDA_TOOLKIT := $(CUDA_BUILD)/toolkit
CUDA_KERNELS := $(CUDA_BUILD)/kernels.fatbin
CUDA_ARCHS_FILE := $(CUDA_BUILD)/archs-$(subst $() ,-,$(strip $(CUDA_ARCHS)))
$(call stamp,$(CUDA_ARCHS_FILE),$(CUDA_BUILD)/archs-*)
PLUGIN_SRCS  := $(sort $(shell find src/base src/model src/engine/cuda -name '*.c') $(wildcard src/engine/*.c))
PLUGIN_SRCS  := $(filter-out src/engine/cuda/cuda_plugin.c,$(PLUGIN_SRCS))
cuda: $(BUILD)/radish $(BUILD)/radish-cuda.so
$(BUILD)/radish-cuda.so: $(call objects,plugin,src/engine/cuda/cuda_plugin.c) $(BUILD)/plugin/libplugin.a
	$(Q)$(CC) -shared $(FLAGS_plugin) $(LDFLAGS) -pthread -Wl,-z,defs -Wl,--as-needed -Wl,--exclude-libs,ALL \
	    $(filter %.o %.a,$^) $(LDLIBS) -o $@
$(BUILD)/plugin/libplugin.a: $(call objects,plugin,$(PLUGIN_SRCS))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^
$(call objects,plugin,src/engine/cuda/cuda_plugin.c): CPPFLAGS += -DCUDA_KERNELS_FILE='"$(CUDA_KERNELS)"'
$(call objects,plugin,src/engine/cuda/cuda_plugin.c): $(CUDA_KERNELS)
$(call objects,plugin,src/engine/cuda/cuda_driver.c): CPPFLAGS += -DCUDA_KERNELS_VERSION=$$(tail -n 1 $(CUDA_TOOLKIT))
$(call objects,plugin,src/engine/cuda/cuda_driver.c): $(CUDA_TOOLKIT)
# Finds nvcc each time, and changes the file only if it is another one.
ifneq ($(filter cuda test-cuda $(BUILD)/radish-cuda.so $(CUDA_KERNELS),$(MAKECMDGOALS)),)
$(CUDA_TOOLKIT): FORCE
	@NVCC="$(NVCC)" tools/cuda.sh toolkit $@ $(CUDA_BUILD)-toolkit
endif
$(CUDA_KERNELS): $(CUDA_TOOLKIT) $(CUDA_ARCHS_FILE) $(wildcard src/engine/cuda/kernels/*.cu* src/engine/cuda/*.h)
	@echo "nvcc $@"
	$(Q)tools/cuda.sh kernels $(CUDA_TOOLKIT) $@ "$(CUDA_ARCHS)"
FORCE:

# Shared objects for the unit tests: a driver without a device, and plug-ins.
FAKES := $(patsubst %,$(BUILD)/fakes/%,libcuda.so.1 radish-good.so radish-abi.so radish-layout.so radish-symbol.so)
FAKE_FLAGS := -O1 -g -fPIC -fvisibility=hidden -shared
$(BUILD)/unit $(BUILD)/unit-tsan $(BUILD)/unit-coverage: | $(FAKES)
$(BUILD)/fakes/libcuda.so.1: tests/fakes/fake_cuda.c
$(filter %.so,$(FAKES)): tests/fakes/fake_plugin.c
$(BUILD)/fakes/radish-abi.so: FAKE_FLAGS += -DABI=999
$(BUILD)/fakes/radish-layout.so: FAKE_FLAGS += -DLAYOUT=1
$(BUILD)/fakes/radish-symbol.so: FAKE_FLAGS += -DNO_SYMBOL
$(FAKES): | $(PACKAGES)
	@mkdir -p $(@D)
	@echo "cc $@"
	$(Q)$(CC) $(CFLAGS) $(FAKE_FLAGS) $(CPPFLAGS) -MF $@.d $< -o $@

SOAK_SRCS := tests/soak/soak.c $(wildcard tests/unit/cache_*.c) tests/unit/sched_world.c tests/unit/mock_oracle.c \
             $(sort $(shell find src/cache src/base src/sched src/engine -name '*.c' -not -path '*/cpu/*' -not -path '*/cuda/*'))
$(BUILD)/soak: $(call objects,checked,$(SOAK_SRCS))
	$(call link,checked)
# Tests and a benchmark of engines in plug-ins, on a machine with the device: tools/cuda/device.sh.
DEVICE_SRCS := $(sort $(wildcard tests/cuda/*.c)) $(addprefix tests/unit/,batch_rows.c golden_model.c runner.c schedule.c)
test-cuda: cuda $(BUILD)/cuda_tests
	$(BUILD)/cuda_tests $(BUILD)/radish-cuda.so $(T)
$(BUILD)/cuda_tests: $(call objects,release,$(DEVICE_SRCS)) $(call library,release)
	$(call link,release)
$(BUILD)/bench_cuda: $(call objects,release,bench/bench_cuda.c tests/cuda/shaped_model.c tests/cuda/engine_source.c) $(call library,release)
	$(call link,release)
$(BUILD)/bench_%: $(BUILD)/release/bench/bench_%.o $(call library,release)
	$(call link,release)
$(BUILD)/api_doc $(BUILD)/models_doc $(BUILD)/same_bits $(BUILD)/schema_match $(BUILD)/answer_parse: $(BUILD)/%: $(BUILD)/release/tools/%.o $(call library,release)
	$(call link,release)
# What describes the command line, from the tables of options.
MANUAL := $(BUILD)/manual
$(BUILD)/cli_doc: $(call objects,release,$(sort $(wildcard tools/cli_doc/*.c)) $(STATIC_SRCS)) $(call library,release)
	$(call link,release)
$(MANUAL)/radish.conf: $(BUILD)/cli_doc
	@mkdir -p $(MANUAL)
	$(Q)$(BUILD)/cli_doc $(MANUAL)
man: $(MANUAL)/radish.conf
$(BUILD)/fuzz_directory: $(BUILD)/fuzzing/tests/unit/golden_model.o
$(BUILD)/fuzz_%: $(BUILD)/fuzzing/tests/fuzz/fuzz_%.o $(call library,fuzzing)
	$(call link,fuzzing) -fsanitize=fuzzer

serve: COMMAND_ARGS := --host $(HOST) --port $(PORT)
serve chat:
	@tools/setup.sh packages
	@$(MAKE) -s -j$(JOBS) all
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(tools/setup.sh model) && \
	exec $(BUILD)/radish $@ -m "$$model" $(COMMAND_ARGS) $(ARGS)

test:
	@tools/setup.sh packages
	@tools/setup.sh python $(BUILD)/venv
	@$(MAKE) -j$(JOBS) --no-print-directory $(BUILD)/radish $(BUILD)/radish-debug $(BUILD)/unit $(BUILD)/unit-tsan $(BUILD)/api_doc $(BUILD)/models_doc $(MANUAL)/radish.conf
	@model=$$(tools/setup.sh model) && tests/run.sh $(BUILD) "$$model"

unit: $(BUILD)/unit
	$(BUILD)/unit $(T)

tsan: $(BUILD)/unit-tsan
	$(BUILD)/unit-tsan $(or $(T),threads)

# Each part prints how to repeat a failure; the first takes a seed: make soak SOAK_SEED=7.
soak: $(BUILD)/soak $(BUILD)/radish-tsan $(BUILD)/radish-debug
	$(BUILD)/soak $(SOAK_SECONDS) $(SOAK_SEED)
	$(BUILD)/soak --steps $(SOAK_STEPS) $(SOAK_SEED)
	python3 tests/e2e/soak_server.py --radish $(BUILD)/radish-tsan --seconds $(SOAK_SECONDS)
	python3 tools/attack/fuzz_server.py --radish $(BUILD)/radish-debug --seconds $(SOAK_SECONDS) --out $(BUILD) \
	    $(addprefix --seed ,$(SOAK_SEED))

bench: $(BUILD)/radish $(BENCHES)
	@for b in $(BENCHES); do echo "== $$b"; $$b || exit 1; done
	@$(BUILD)/radish bench -m "$$(tools/setup.sh model)" $(ARGS)

fuzz:
	$(MAKE) -j$(JOBS) --no-print-directory CC=clang $(FUZZERS)
	@for f in $(FUZZERS); do echo "== $$f"; $$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit 1; done

mutants: $(BUILD)/unit
	RADISH_TEST_MODEL="$$(tools/setup.sh model)" python3 tools/mutants.py --build $(BUILD) -n $(N) --seed $(SEED) -j $(JOBS)

lint:
	@tools/setup.sh lint
	cppcheck --quiet --std=c11 --language=c --enable=warning,portability --inline-suppr --error-exitcode=1 \
	    --suppress=missingIncludeSystem -Isrc -D__x86_64__ src tests/unit tests/cuda bench
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

docs: $(BUILD)/api_doc $(BUILD)/models_doc
	$(BUILD)/api_doc > docs/api.md
	$(BUILD)/models_doc > docs/models.md

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

# Branch coverage is shown for the cache only, without the branches of asserts, which end the process. One
# header is left out because gcovr cannot merge a function that appears on two lines; objects whose source is
# gone are removed.
COVERAGE = gcovr --root . --object-directory $(BUILD)/coverage --exclude src/engine/cpu/kernels/matmul_avx512_ops.h
coverage: $(BUILD)/unit-coverage
	@tools/setup.sh coverage
	@find $(BUILD)/coverage -name '*.gcda' -delete
	@cd $(BUILD)/coverage && for f in $$(find . -name '*.gcno'); do [ -f "$(CURDIR)/$${f%.gcno}.c" ] || rm $$f; done
	$(BUILD)/unit-coverage
	$(COVERAGE) --filter src/ --html-details $(BUILD)/coverage/index.html --print-summary
	$(COVERAGE) --filter src/cache/
	$(COVERAGE) --filter src/cache/ --branches --exclude-branches-by-pattern '\s*assert\(' --print-summary

# RUN_PREFIX: where the installed files will be, if they are moved from PREFIX later.
RUN_PREFIX ?= $(PREFIX)
TO         = $(DESTDIR)$(PREFIX)
PLUGINS    = $(wildcard $(BUILD)/radish-cuda.so)
install: $(BUILD)/radish $(MANUAL)/radish.conf
	install -D -m 755 $(BUILD)/radish $(TO)/bin/radish
	@for plugin in $(PLUGINS); do install -v -D -m 755 $$plugin $(TO)/lib/radish/$$(basename $$plugin); done
	@for unit in service socket; do install -d $(TO)/lib/systemd/system && \
	    sed 's|/usr/bin/radish|$(RUN_PREFIX)/bin/radish|' packaging/radish.$$unit > $(TO)/lib/systemd/system/radish.$$unit && \
	    chmod 644 $(TO)/lib/systemd/system/radish.$$unit; done
	@install -d $(TO)/share/man/man1 $(TO)/share/doc/radish/docs
	@install -m 644 $(MANUAL)/man/man1/*.1 $(TO)/share/man/man1
	@install -D -m 644 $(MANUAL)/completions/radish.bash $(TO)/share/bash-completion/completions/radish
	@install -D -m 644 $(MANUAL)/completions/_radish $(TO)/share/zsh/site-functions/_radish
	@install -D -m 644 $(MANUAL)/completions/radish.fish $(TO)/share/fish/vendor_completions.d/radish.fish
	@install -m 644 $(MANUAL)/radish.conf README.md LICENSE $(TO)/share/doc/radish
	@install -m 644 $(wildcard docs/*.*) $(TO)/share/doc/radish/docs

# The package and the tarball are made of what `make install` installs. CUDA=1 adds the engine for NVIDIA GPUs.
# SOURCE_DATE_EPOCH is the date of all files in them: by default the last commit's.
deb dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
DEB_VERSION := $(VERSION)-1
DEB := $(BUILD)/radish_$(DEB_VERSION)_$(shell dpkg --print-architecture 2>/dev/null).deb
deb:
	@tools/setup.sh packages
	@tools/setup.sh deb
	@$(MAKE) -j$(JOBS) --no-print-directory $(BUILD)/radish $(MANUAL)/radish.conf $(if $(CUDA),$(BUILD)/radish-cuda.so)
	@rm -rf $(BUILD)/deb
	@$(MAKE) -s install DESTDIR=$(CURDIR)/$(BUILD)/deb PREFIX=/usr PLUGINS="$(if $(CUDA),$(BUILD)/radish-cuda.so)"
	@find $(BUILD)/deb/usr/bin $(wildcard $(BUILD)/deb/usr/lib/radish) -type f -exec strip --strip-unneeded {} +
	@packaging/deb.sh $(CURDIR)/$(BUILD)/deb $(DEB_VERSION) $(DEB)

# Built in a folder of its own, with an older glibc than this machine may have. The same tree and the same versions of the
# libraries give the same bytes.
DIST_NAME := radish-$(VERSION)-linux-x86_64
SYSROOT   ?= $(BUILD)/sysroot
DIST_MAKE  = $(MAKE) -j$(JOBS) --no-print-directory BUILD=$(BUILD)/dist STATIC=1 OPT=-O3 CUDA_BUILD=$(CUDA_BUILD) \
    CC="$(CC) --sysroot=$(abspath $(SYSROOT)) -B$(abspath $(SYSROOT))/usr/lib/x86_64-linux-gnu"
dist:
	@tools/setup.sh packages
	@tools/setup.sh dist
	@$(if $(filter $(BUILD)/sysroot,$(SYSROOT)),packaging/sysroot.sh $(SYSROOT))
	@built_with="$(abspath $(SYSROOT)): $$(cat $(SYSROOT)/versions 2>/dev/null || true)" && \
	if [ "$$(cat $(BUILD)/dist/sysroot 2>/dev/null)" != "$$built_with" ]; then \
	    rm -rf $(BUILD)/dist && mkdir -p $(BUILD)/dist && echo "$$built_with" > $(BUILD)/dist/sysroot; fi
	@$(if $(CUDA),$(MAKE) --no-print-directory $(CUDA_KERNELS))
	@$(DIST_MAKE) $(BUILD)/dist/radish $(BUILD)/dist/manual/radish.conf $(if $(CUDA),$(BUILD)/dist/radish-cuda.so)
	@rm -rf $(BUILD)/dist/tarball
	@$(DIST_MAKE) -s install DESTDIR=$(BUILD)/dist/tarball/$(DIST_NAME) PREFIX= RUN_PREFIX=/usr/local \
	    PLUGINS="$(if $(CUDA),$(BUILD)/dist/radish-cuda.so)"
	@packaging/dist.sh $(BUILD)/dist/tarball/$(DIST_NAME) $(BUILD)/$(DIST_NAME).tar.gz

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)
.PHONY: all cuda serve chat man test test-cuda unit tsan soak bench fuzz mutants lint docs format coverage install deb dist clean
.SECONDARY:
