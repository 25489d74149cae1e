# radish: `make serve` runs it, `make test` tests it; both install what is missing first.
#   make            build/radish
#   make serve      ... and serve the default model (PORT=9000, MODEL=file.gguf, ARGS="--help")
#   make test       every test; ends with "N passed, N failed"
#   make unit       only the unit tests, with sanitizers (T=tree runs those whose name contains it)
#   make bench | lint | format | coverage | fuzz | install | clean
CC      ?= gcc
OPT     ?= -O3 -g
BUILD   ?= build
PREFIX  ?= /usr/local
HOST    ?= 127.0.0.1
PORT    ?= 8080
ARGS    ?=
T       ?=
VERSION := 0.1.0

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CFLAGS   += -std=c17 -D_GNU_SOURCE $(WARN) -ffp-contract=off -fno-math-errno -pthread -Isrc
CPPFLAGS += -DRADISH_VERSION='"$(VERSION)"' -MMD -MP
LDLIBS   += -levent_core -levent_pthreads -lpcre2-8 -lcrypto -lm

SRCS      := $(sort $(wildcard src/*/*.c src/*/*/*.c))
LIB_SRCS  := $(filter-out src/cli/main.c,$(SRCS))
TEST_SRCS := $(sort $(wildcard tests/unit/*.c))
FUZZERS   := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
SANITIZE  := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

# Each build flavour has a folder of its own: build/release, build/debug, build/tsan, ...
objects = $(patsubst %.c,$(BUILD)/$(1)/%.o,$(2))

all: $(BUILD)/radish

# Kernels are compiled for the instructions they use and chosen at run time.
X86_AVX2   := -mavx2 -mfma -mf16c
X86_AVX512 := $(X86_AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
X86_VNNI   := $(X86_AVX512) -mavx512vnni
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
%_avx2.o: CFLAGS += $(X86_AVX2)
%_avx512.o: CFLAGS += $(X86_AVX512)
%_vnni.o: CFLAGS += $(X86_VNNI)
endif

$(BUILD)/release/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(OPT) -DNDEBUG $(CPPFLAGS) -c $< -o $@
$(BUILD)/debug/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Itests/unit -O1 -g $(SANITIZE) $(CPPFLAGS) -c $< -o $@
$(BUILD)/tsan/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Itests/unit -O1 -g -fsanitize=thread $(CPPFLAGS) -c $< -o $@

$(BUILD)/radish: $(call objects,release,$(SRCS))
	$(CC) $(LDFLAGS) -pthread $^ $(LDLIBS) -o $@
$(BUILD)/radish-debug: $(call objects,debug,$(SRCS))
	$(CC) $(LDFLAGS) $(SANITIZE) -pthread $^ $(LDLIBS) -o $@
$(BUILD)/radish-tsan: $(call objects,tsan,$(SRCS))
	$(CC) $(LDFLAGS) -fsanitize=thread -pthread $^ $(LDLIBS) -o $@
$(BUILD)/unit: $(call objects,debug,$(LIB_SRCS) $(TEST_SRCS))
	$(CC) $(LDFLAGS) $(SANITIZE) -pthread $^ $(LDLIBS) -o $@
$(BUILD)/unit-tsan: $(call objects,tsan,$(LIB_SRCS) $(TEST_SRCS))
	$(CC) $(LDFLAGS) -fsanitize=thread -pthread $^ $(LDLIBS) -o $@

unit: $(BUILD)/unit
	$(BUILD)/unit $(T)

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all unit clean
