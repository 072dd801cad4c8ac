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
echo "== anneal facts N (published numerics of the silicon beside the software engine), the last lines"
"$anneal" facts N >/tmp/anneal-facts.$$ || { cat /tmp/anneal-facts.$$; rm -f /tmp/anneal-facts.$$; exit 1; }
tail -7 /tmp/anneal-facts.$$
rm -f /tmp/anneal-facts.$$
echo
echo "== anneal bench compile"
"$anneal" bench compile
