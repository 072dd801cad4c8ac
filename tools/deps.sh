#!/bin/sh
# Install what is missing: deps.sh cc cmocka clang …   Uses apt-get or brew; says what to do where there is neither.
set -u
missing=
have_header() { echo "$1" | ${CC:-cc} -E - >/dev/null 2>&1; }
for want in "$@"; do
    case $want in
    cc) command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing gcc" ;;
    cmocka)
        have_header '#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>' || missing="$missing cmocka" ;;
    jansson) have_header '#include <jansson.h>' || missing="$missing jansson" ;;
    pcre2)
        have_header '#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>' || missing="$missing pcre2" ;;
    zlib) have_header '#include <zlib.h>' || missing="$missing zlib" ;;
    clang) command -v clang >/dev/null 2>&1 && [ -n "$(find "$(clang -print-resource-dir)" -name 'libclang_rt.fuzzer*' 2>/dev/null | head -1)" ] || missing="$missing clang" ;;
    esac
done
[ -z "$missing" ] && exit 0
echo "installing:$missing" >&2
if command -v apt-get >/dev/null 2>&1; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    packages=
    for m in $missing; do
        case $m in
        gcc) packages="$packages gcc libc6-dev" ;;
        cmocka) packages="$packages libcmocka-dev" ;;
        jansson) packages="$packages libjansson-dev" ;;
        pcre2) packages="$packages libpcre2-dev" ;;
        zlib) packages="$packages zlib1g-dev" ;;
        clang) packages="$packages clang libclang-rt-14-dev" ;;
        esac
    done
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q $packages >&2 ||
        { $sudo apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q $packages >&2; }
elif command -v brew >/dev/null 2>&1; then
    case $missing in *gcc*) echo "deps: no C compiler here; please run: xcode-select --install" >&2; exit 1 ;; esac
    # shellcheck disable=SC2046
    brew install $(echo "$missing" | sed 's/clang/llvm/') >&2
else
    echo "deps: neither apt-get nor brew here; please install:$missing" >&2
    exit 1
fi
