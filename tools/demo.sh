#!/bin/sh
# What `make run` shows: the example programs checked and compiled.   demo.sh ANNEAL
anneal=$1
for f in examples/*.mil; do
    echo
    echo "== anneal check $f --target m1,m4"
    "$anneal" check "$f" --target m1,m4 2>/dev/null
    code=$?
    case $code in 0 | 4) ;; *) echo "check failed with exit $code"; exit 1 ;; esac
done
echo
echo "== anneal compile examples/attention.mil --target m1"
"$anneal" compile examples/attention.mil --target m1 || exit 1
echo
echo "== anneal bench compile"
"$anneal" bench compile
