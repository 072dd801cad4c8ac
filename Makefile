# anneal: everything is built from here.   make · make run · make test · make bench · make asan · make fuzz · make install
# Cross-compile with CC=aarch64-linux-gnu-gcc BUILD=build-arm64; run the result with RUNNER=qemu-aarch64.

CC      ?= cc
BUILD   ?= build
PREFIX  ?= /usr/local
OPT     ?= -O2 -g
RUNNER  ?=
VERSION := $(shell sed -n 's/^\#define AN_VERSION "\(.*\)"/\1/p' include/anneal.h)
WARN    := -std=c11 -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
FLAGS    = $(WARN) $(OPT) -fvisibility=hidden -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc $(SAN) $(CPPFLAGS) $(CFLAGS)
DEPS    := jansson libpcre2-8 zlib
LIBS     = $(or $(shell pkg-config --libs $(DEPS) 2>/dev/null),-ljansson -lpcre2-8 -lz) -lm -lpthread -ldl
# One short line for each file that is made; make V=1 shows whole commands.
Q   := $(if $(V),,@)
say  = $(if $(V),@:,@echo "$(1)")
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2) --no-builtin-rules
endif

# The library is every folder of src/ but the command; DIRS and TESTS narrow a build while working on one part.
DIRS    ?= $(filter-out cli,$(notdir $(patsubst %/,%,$(wildcard src/*/))))
LIB_SRC := $(sort $(foreach d,$(DIRS),$(wildcard src/$(d)/*.c)))
CLI_SRC := $(sort $(wildcard src/cli/*.c))
TESTS   ?= $(sort $(wildcard tests/unit/*.c tests/prop/*.c tests/api/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(if $(filter api,$(DIRS)),$(BUILD)/gen/probes.o) $(if $(filter codegen,$(DIRS)),$(BUILD)/gen/maker.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_BIN := $(TESTS:%.c=$(BUILD)/%)
EXAMPLES := $(if $(filter api,$(DIRS)),$(patsubst %.c,$(BUILD)/%,$(sort $(wildcard examples/*.c))))


.PHONY: all lib run test bench bench-peers speed asan other fuzz format install uninstall clean accept deps-run deps-test check-layers
all: $(if $(filter api,$(DIRS)),$(BUILD)/anneal,$(BUILD)/libanneal.a)

lib: $(BUILD)/libanneal.a

$(BUILD)/libanneal.a: $(LIB_OBJ)
	$(call say,ar $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/anneal: $(CLI_OBJ) $(BUILD)/libanneal.a
	$(call say,link $@)
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# A source named x_<isa>.c may use that instruction set; the rest of the library never does. Sources of the other
# architecture compile to nothing. -O3: their loops of constant length must be unrolled.
ARCH := $(subst arm64,aarch64,$(firstword $(subst -, ,$(shell $(CC) -dumpmachine))))
KOPT := $(if $(SAN),,-O3)
AVX512 := -mprfchw -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c $(KOPT)
# gcc knows it from 12 on, clang from 14; without it the row is one no processor gets.
AVX512FP16 := $(if $(filter x86_64,$(ARCH)),$(shell $(CC) -mavx512fp16 -fsyntax-only -x c /dev/null >/dev/null 2>&1 && echo -mavx512fp16))
ISA_x86_64_avx2       := -mavx2 -mfma -mf16c $(KOPT)
ISA_x86_64_avx512     := $(AVX512)
ISA_x86_64_avx512bf16 := $(AVX512) -mavx512bf16
ISA_x86_64_avx512fp16 := $(AVX512) $(AVX512FP16)
ISA_x86_64_vnni       := $(AVX512) -mavx512vnni
ISA_x86_64_gfni       := $(AVX512) -mavx512vnni -mgfni
ISA_x86_64_amx        := -mprfchw -mamx-tile -mamx-bf16 -mamx-int8 $(KOPT)
ISA_aarch64_neon      := $(KOPT)
ISA_aarch64_fp16      := -march=armv8.2-a+fp16+fp16fml $(KOPT)
ISA_aarch64_dot       := -march=armv8.2-a+dotprod $(KOPT)
ISA_aarch64_bf16      := -march=armv8.2-a+fp16+fp16fml+bf16 $(KOPT)
ISA_aarch64_i8mm      := -march=armv8.2-a+i8mm $(KOPT)
# Where each value of a kernel's source is at every step would be half of what it takes to compile: lines are enough.
isa_flags = $(ISA_$(ARCH)_$(lastword $(subst _, ,$(basename $(notdir $(1)))))) $(call jump_flags,$(notdir $(1))) $(if $(filter src/kernel/%,$(1)),-fno-var-tracking)

# Acts of a tape, heights of a tile: found by comparisons, not by a table of addresses. A processor that is kept from
# predicting jumps by addresses, against Spectre, takes 36 cycles for each of them and runs no further ahead meanwhile.
jump_flags = $(if $(filter x86_64,$(ARCH)),$(if $(filter gemm_% gemv_% vector_%,$(1)),-fno-jump-tables))

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,cc $<)
	$(Q)$(CC) $(FLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

$(BUILD)/gen/probes.c: tools/embed.sh $(wildcard probe/*.mil)
	@mkdir -p $(@D)
	$(Q)sh $^ > $@

# What makes a program of a text, as a checksum: kept programs of a compiler that was another one are not taken for those of this one.
MAKER_SRC := $(sort $(foreach d,base op mil graph lower target codegen engine,$(wildcard src/$(d)/*.def src/$(d)/*.h)) \
	$(foreach d,base op mil graph lower codegen,$(wildcard src/$(d)/*.c)))
$(BUILD)/gen/maker.c: $(MAKER_SRC)
	@mkdir -p $(@D)
	$(Q)printf '#include "codegen/codegen.h"\nconst char codegen_maker[] = "%s";\n' "$$(cat $^ | cksum | tr ' ' -)" > $@

$(BUILD)/gen/%.o: $(BUILD)/gen/%.c Makefile
	$(call say,cc $<)
	$(Q)$(CC) $(FLAGS) -MMD -MP -c -o $@ $<

# Tests link the library, never a .c file of it.
$(BUILD)/tests/%: tests/%.c $(BUILD)/libanneal.a
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(CC) $(FLAGS) -Itests -MMD -MP $(LDFLAGS) -o $@ $< $(BUILD)/libanneal.a -lcmocka $(LIBS)

$(BUILD)/examples/%: examples/%.c $(BUILD)/libanneal.a
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(CC) $(FLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(BUILD)/libanneal.a $(LIBS)

# ---- the two commands of the README ----
deps-run:
	@sh tools/deps.sh cc jansson pcre2 zlib
deps-test:
	@sh tools/deps.sh cc jansson pcre2 zlib cmocka

run: deps-run
	@$(MAKE) --no-print-directory all
	@sh tools/demo.sh $(BUILD)/anneal

test: deps-test
	@$(MAKE) --no-print-directory all $(TEST_BIN) $(EXAMPLES)
	@RUNNER="$(RUNNER)" sh tools/test.sh $(BUILD) $(TEST_BIN)

check-layers:
	@sh tools/layers.sh

# Rewrite what tests compare against: printed documents and the second half of golden files. Read the diff.
accept: all
	@sh tools/docs.sh $(BUILD)/anneal docs
	@sh tools/golden.sh $(BUILD)/anneal --accept

bench: all
	@$(RUNNER) $(BUILD)/anneal bench

# The benchmark page of this machine: make speed PAGE=docs/speed_amx.md MACHINE="two Xeon cores with AMX"; README.md has a table of all.
PAGE ?= $(BUILD)/speed.md
speed: all
	@sh tools/speed.sh $(BUILD)/anneal "$(MACHINE)" >$(PAGE).tmp && mv $(PAGE).tmp $(PAGE) && echo $(PAGE)

# Matrix products beside OpenBLAS and BLIS, where they can be loaded (AN_BLAS=dir:dir adds places to look).
bench-peers: all
	@$(RUNNER) $(BUILD)/anneal bench gemm

asan: deps-test
	@ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) --no-print-directory test BUILD=$(BUILD)-asan \
	  OPT="-O1 -g -fno-omit-frame-pointer" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"

# The suite on the architecture this machine is not, under qemu-user.
other:
	@MAKE="$(MAKE)" sh tools/other.sh

# FUZZ_SECONDS per target. clang's libFuzzer; findings belong in tests/fuzz/corpus-*.
FUZZ_SECONDS ?= 20
fuzz:
	@sh tools/deps.sh cc jansson pcre2 zlib clang
	@sh tools/fuzz.sh $(FUZZ_SECONDS)

format: # lines that are not committed yet: tables and texts are laid out by hand
	git clang-format --force --extensions c,h,inc

# The installed library is one object in which names that are not in the header are local: programs have an arena_free or a
# pool_run of their own, and in one that calls accept() the system's has to be found, not the parser's. ld of macOS makes them local by itself.
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
$(BUILD)/install/libanneal.a: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,ar $@)
	@rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(@D)/anneal.o $^
	$(Q)[ "$$(uname)" = Darwin ] || $(OBJCOPY) --localize-hidden $(@D)/anneal.o
	$(Q)$(AR) rcs $@ $(@D)/anneal.o
	@rm -f $(@D)/anneal.o

install: all $(BUILD)/install/libanneal.a
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/anneal $(DESTDIR)$(PREFIX)/bin/anneal
	install -m 644 $(BUILD)/install/libanneal.a $(DESTDIR)$(PREFIX)/lib/libanneal.a
	install -m 644 include/anneal.h $(DESTDIR)$(PREFIX)/include/anneal.h
	install -m 644 docs/anneal.1 $(DESTDIR)$(PREFIX)/share/man/man1/anneal.1
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' tools/anneal.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/anneal.pc

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/anneal $(DESTDIR)$(PREFIX)/lib/libanneal.a $(DESTDIR)$(PREFIX)/include/anneal.h \
	  $(DESTDIR)$(PREFIX)/share/man/man1/anneal.1 $(DESTDIR)$(PREFIX)/lib/pkgconfig/anneal.pc

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_BIN:=.d) $(EXAMPLES:=.d)
