#!/bin/sh
# The whole suite for the other architecture, cross-compiled and run under qemu-user. Debian only: it needs foreign libraries.
set -e
case $(uname -m) in
x86_64) arch=aarch64 deb=arm64 ;;
aarch64 | arm64) arch=x86_64 deb=amd64 ;;
*) echo "other.sh: do not know the other architecture of $(uname -m)" >&2; exit 1 ;;
esac
gcc=$arch-linux-gnu-gcc
if ! command -v "$gcc" >/dev/null || ! command -v qemu-$arch >/dev/null || [ ! -e /usr/lib/$arch-linux-gnu/libcmocka.so ] ||
    [ ! -e /usr/lib/$arch-linux-gnu/libjansson.so ]; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo dpkg --add-architecture $deb
    $sudo apt-get update -q
    $sudo apt-get install -y -q "gcc-$(echo $arch | tr _ -)-linux-gnu" qemu-user libcmocka-dev:$deb libjansson-dev:$deb libpcre2-dev:$deb zlib1g-dev:$deb
fi
# qemu finds the libraries where Debian puts them. With -L /usr/$arch-linux-gnu it takes the cross compiler's older libc, and the first thread hangs.
exec "${MAKE:-make}" test CC="$gcc" BUILD=build-$arch RUNNER="qemu-$arch"
