#!/bin/sh
# Golden files: input and expectation in one file.   golden.sh ANNEAL [--accept]
# Lines that start with "#run " give the command (FILE stands for the input), "#exit N" the exit code, "#want" starts the
# expected stdout, each line behind "#=". Everything else is the input. --accept rewrites the second half.
anneal=$1 accept=$2
pass=0 fail=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for f in tests/golden/*; do
    [ -f "$f" ] || continue
    sed -e '/^#want/,$d' -e '/^#run /d' -e '/^#exit /d' "$f" >"$tmp/in"
    run=$(sed -n 's/^#run //p' "$f" | sed "s|FILE|$tmp/in|g")
    want_code=$(sed -n 's/^#exit //p' "$f")
    # shellcheck disable=SC2086
    $anneal $run >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    sed "s|$tmp/in|FILE|g" "$tmp/out" >"$tmp/got"
    if [ "$accept" = --accept ]; then
        { sed -n '/^#run /p' "$f"; echo "#exit $code"; sed -e '/^#want/,$d' -e '/^#run /d' -e '/^#exit /d' "$f"; echo "#want"; sed 's/^/#=/' "$tmp/got"; } >"$tmp/new"
        cmp -s "$tmp/new" "$f" || { cp "$tmp/new" "$f"; echo "rewrote $f"; }
        continue
    fi
    sed -n '/^#want/,$ s/^#=//p' "$f" >"$tmp/want"
    if [ "$code" = "${want_code:-0}" ] && cmp -s "$tmp/want" "$tmp/got"; then pass=$((pass + 1)); else
        fail=$((fail + 1))
        echo "FAILED $f (exit $code, want ${want_code:-0})"
        diff "$tmp/want" "$tmp/got" | head -20
        cat "$tmp/err"
    fi
done
[ "$accept" = --accept ] || echo "$pass $fail"
