#!/bin/sh
# Fuzz the readers: fuzz.sh SECONDS [TARGET…]   Builds every tests/fuzz/fuzz_X.c with libFuzzer, ASan and UBSan into build-fuzz/ and
# runs each for SECONDS with tests/fuzz/corpus-X. Exits 1 on a finding and keeps the input that shows it in build-fuzz/.
cd "$(dirname "$0")/.." || exit 2
seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
out=build-fuzz
: "${FUZZ_CC:=clang}"
flags="-std=c11 -O1 -g -fno-omit-frame-pointer -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
mkdir -p "$out"
all=$(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $all
bad=0
for t in "$@"; do
    # shellcheck disable=SC2086
    [ -f "tests/fuzz/fuzz_$t.c" ] || { echo "fuzz.sh: no target '$t'; there are:" $all >&2; exit 2; }
done
for t in "$@"; do
    case $t in # the folders a target needs
    program) dirs="base engine kernel" ;;
    npy | idx | safetensors | gguf | llama2c) dirs="base format" ;;
    json) dirs="base op graph model format lm" ;;
    model) dirs="base op graph model format text kernel lm" ;;
    hwx) dirs="base hwx" ;;
    state | ckpt) dirs="base kernel op graph model grad pass lower mil target check codegen engine device format text lm train" ;;
    tokenizer_json | tokenizer_model | tokenizer_pair) dirs="base format text" ;;
    *) dirs="base op mil" ;;
    esac
    # KOPT: clang takes ten minutes to optimise the checks in a file of vector loops.
    make -s BUILD="$out/$t" DIRS="$dirs" CC="$FUZZ_CC" OPT="-O1 -g -fno-omit-frame-pointer" KOPT=-O0 \
        SAN="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" lib >"$out/$t.log" 2>&1 || { cat "$out/$t.log"; exit 2; }
    # shellcheck disable=SC2086
    "$FUZZ_CC" $flags -o "$out/fuzz_$t" "tests/fuzz/fuzz_$t.c" "$out/$t/libanneal.a" -ljansson -lpcre2-8 -lz -lm -lpthread || exit 2
    mkdir -p "$out/corpus-$t" "tests/fuzz/corpus-$t"
    dict=tests/fuzz/$t.dict
    # New inputs go to the first folder, which is not kept in the tree.
    if "$out/fuzz_$t" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -max_len=16384 -print_final_stats=1 -verbosity=0 \
        $([ -f "$dict" ] && echo "-dict=$dict") -artifact_prefix="$out/$t-" "$out/corpus-$t" "tests/fuzz/corpus-$t" >"$out/$t.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$t.log")
        echo "fuzz $t: ${runs:-?} inputs in ${seconds}s, nothing found"
    else
        bad=1
        tail -60 "$out/$t.log"
        echo "fuzz $t: found something; the input is in $out/$t-*"
    fi
done
exit $bad
