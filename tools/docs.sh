#!/bin/sh
# The documents that are printed from tables: docs.sh ANNEAL compares them, docs.sh ANNEAL FOLDER rewrites them there.
anneal=$1 to=$2 bad=0
for t in ops targets rules gates passes kernels isa limits; do
    if [ -n "$to" ]; then
        $anneal $t --markdown >"$to/$t.md" || exit 1
    elif ! $anneal $t --markdown | cmp -s - "docs/$t.md"; then
        echo "docs/$t.md is not what \`anneal $t --markdown\` prints: run make accept and read the diff"
        bad=1
    fi
done
exit $bad
