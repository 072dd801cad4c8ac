#!/bin/sh
# What make install puts somewhere, used from there: the library has the names of the header and no others, C and C++ programs build with what
# pkg-config says, and make uninstall leaves no file.   install.sh BUILD [RUNNER]; under an emulator there is nothing to do.
build=$1
[ -z "$2" ] && command -v pkg-config >/dev/null && command -v c++ >/dev/null || exit 0
cd "$(dirname "$0")/.." || exit 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() {
    echo "install.sh: $*"
    exit 1
}
${MAKE:-make} --no-print-directory install BUILD="$build" DESTDIR="$tmp" PREFIX=/usr >"$tmp/log" 2>&1 || bad "make install: $(cat "$tmp/log")"
export PKG_CONFIG_PATH="$tmp/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR=
with=$(pkg-config --define-variable=prefix="$tmp/usr" --cflags --libs anneal) || bad "pkg-config: $with"
other=$(nm -g --defined-only "$tmp/usr/lib/libanneal.a" | awk 'NF == 3 && $3 !~ /^_?an_/ { print $3 }' | head -3)
[ -z "$other" ] || bad "names that are not in the header: $other …"

# a server with an arena and an X of its own: its accept() is the system's
cat >"$tmp/server.c" <<'END'
#include <sys/socket.h>
#include <sys/un.h>
#include <string.h>
#define X(a) (a)
#include <anneal.h>
int arena_free(int x);
int arena_free(int x) { return X(x); }
int main(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int door = socket(AF_UNIX, SOCK_STREAM, 0), guest = socket(AF_UNIX, SOCK_STREAM, 0);
    an_report *r;
    an_error e;
    strcpy(at.sun_path, "socket");
    if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 1) || connect(guest, (struct sockaddr *)&at, sizeof at)) return 2;
    if (an_check_mil(&r, "junk", 4, NULL, &e) || an_report_status(r) != AN_INPUT) return 3;
    an_report_free(r);
    return arena_free(accept(door, NULL, NULL)) < 0;
}
END
cat >"$tmp/plus.cc" <<'END'
#include <anneal.h>
int main()
{
    an_error e = {};
    an_train_options o = {};
    an_program *p;
    return an_program_new(&p, "p", &e) || o.threads || (an_program_free(p), 0);
}
END
strict="-Wall -Wextra -Wpedantic -Werror $SAN"
for std in c99 c11; do
    # shellcheck disable=SC2086
    for c in "$tmp/server.c" examples/check.c; do ${CC:-cc} -std=$std -D_POSIX_C_SOURCE=200809L $strict "$c" $with -o "$tmp/$(basename "$c" .c)" || bad "$c with $std"; done
done
for std in c++11 c++17; do
    # shellcheck disable=SC2086
    c++ -std=$std $strict "$tmp/plus.cc" $with -o "$tmp/plus" || bad "C++ with $std"
done
(cd "$tmp" && ./server && ./plus && ./check >out) || bad "a program that was built with it ends with $?"
${MAKE:-make} --no-print-directory uninstall DESTDIR="$tmp" PREFIX=/usr >"$tmp/log" 2>&1 || bad "make uninstall: $(cat "$tmp/log")"
[ -z "$(find "$tmp/usr" -type f)" ] || bad "left behind: $(find "$tmp/usr" -type f)"
