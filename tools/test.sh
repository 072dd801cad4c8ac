#!/bin/sh
# Run the whole suite: test.sh BUILD TEST_PROGRAM…   Each program is a cmocka group. Ends with "N passed, M failed".
build=$1
shift
pass=0 fail=0
one() { # one NAME COMMAND…: a check that is right when it exits 0
    name=$1
    shift
    if out=$("$@" 2>&1); then pass=$((pass + 1)); else
        fail=$((fail + 1))
        printf 'FAILED %s\n%s\n' "$name" "$out"
    fi
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for t in "$@"; do
    start=$(date +%s)
    # shellcheck disable=SC2086
    $RUNNER "$t" >"$log" 2>&1
    code=$?
    p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    f=$(sed -n 's/^\[  FAILED  \] .*tests\{0,1\}: *\([0-9]*\) test.*/\1/p' "$log" | tail -1)
    ran=$(grep -c '^\[ RUN  ' "$log")
    p=${p:-0}
    if [ $code -ne 0 ] || [ "$ran" -eq 0 ]; then
        f=$((ran - p))
        [ "$f" -gt 0 ] || f=1
        cat "$log"
        echo "FAILED $t (exit $code)"
    else
        f=0
    fi
    pass=$((pass + p)) fail=$((fail + f))
    printf '%-32s %3d passed %3d failed  %ss\n' "$(basename "$t")" "$p" "$f" $(($(date +%s) - start))
    grep -h 'AN_SEED=' "$log" | sed 's/^/    /'
done
one layers sh tools/layers.sh
for x in "$build"/examples/*; do
    # shellcheck disable=SC2086
    case $x in *.d | *'*') ;; *) one "example $(basename "$x")" $RUNNER "$x" ;; esac
done
if [ -x "$build/anneal" ]; then
    one docs sh tools/docs.sh "$RUNNER $build/anneal"
    one kill sh tests/kill.sh "$RUNNER $build/anneal"
    one install sh tests/install.sh "$build" "$RUNNER"
    one fault sh tests/fault.sh "$RUNNER $build/anneal"
    out=$(sh tools/golden.sh "$RUNNER $build/anneal")
    printf '%s\n' "$out" | grep -v '^[0-9]* [0-9]*$'
    pass=$((pass + $(printf '%s\n' "$out" | tail -1 | cut -d' ' -f1)))
    fail=$((fail + $(printf '%s\n' "$out" | tail -1 | cut -d' ' -f2)))
    out=$(sh tests/cli.sh "$RUNNER $build/anneal")
    printf '%s\n' "$out" | grep -v '^[0-9]* [0-9]*$'
    pass=$((pass + $(printf '%s\n' "$out" | tail -1 | cut -d' ' -f1)))
    fail=$((fail + $(printf '%s\n' "$out" | tail -1 | cut -d' ' -f2)))
fi
echo "$pass passed, $fail failed"
[ "$fail" -eq 0 ] && [ "$pass" -gt 0 ]
