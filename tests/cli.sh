#!/bin/sh
# The command as a stranger uses it: exit codes, streams, messages.   cli.sh ANNEAL; last line "PASSED FAILED"
# One file of cli/ after the other, in the order below: later ones use what earlier ones left in $tmp.
export anneal="$1"
pass=0 fail=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# t NAME CODE COMMAND…: runs with stdin from $in (default empty), expects the exit code; $tmp/out and $tmp/err hold the streams
in=/dev/null
t() {
    name=$1 want=$2
    shift 2
    "$@" <"$in" >"$tmp/out" 2>"$tmp/err"
    code=$?
    if [ $code -eq "$want" ]; then pass=$((pass + 1)); else
        fail=$((fail + 1))
        echo "FAILED cli: $name: exit $code, want $want"
        head -5 "$tmp/err"
    fi
}
# has NAME FILE PATTERN: the last run's stream holds the pattern
has() {
    if grep -q -e "$3" "$tmp/$2"; then pass=$((pass + 1)); else
        fail=$((fail + 1))
        echo "FAILED cli: $1: no \"$3\" on $2"
        head -5 "$tmp/$2"
    fi
}
empty() {
    if [ ! -s "$tmp/$2" ]; then pass=$((pass + 1)); else
        fail=$((fail + 1))
        echo "FAILED cli: $1: $2 should be empty"
        head -3 "$tmp/$2"
    fi
}

for part in tables check compile run facts generate text convert nets grad lm files; do
    # shellcheck source=/dev/null
    . "$(dirname "$0")/cli/$part.sh"
done
echo "$pass $fail"
