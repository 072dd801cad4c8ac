# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# check: what a chip takes, from files, standard input and pipes. Read by cli.sh.
t "check a clean program" 0 $anneal check examples/conv.mil
t "check --json" 0 $anneal check --json --target m1,m4 examples/conv.mil
has "cost per target" out '^{"kind":"cost","target":"m1","latency_us":'
has "cost per target" out '^{"kind":"cost","target":"m4","latency_us":'
t "unknown target" 2 $anneal check --target m9 examples/conv.mil
has "unknown target" err 'm9'
t "missing file" 3 $anneal check "$tmp/nothing.mil"
has "missing file" err 'nothing.mil'
has "missing file, named once" err 'nothing.mil: cannot open: No such file'
has "missing file is a finding" out 'error: .*\[file\]'
t "missing file, as JSON" 3 $anneal check --json "$tmp/nothing.mil"
has "missing file, as JSON" out '"rule":"file","severity":"error"'
t "refused by the target" 4 $anneal check --target m1 examples/oldchip.mil
has "finding on stdout" out 'sin'
has "named on stderr" err 'oldchip.mil:[0-9]*:[0-9]*: '
t "accepted by a newer target" 0 $anneal check --target m3 examples/oldchip.mil
t "many files, one refused" 4 $anneal check --target m1 examples/conv.mil examples/oldchip.mil
in=examples/conv.mil
t "check from stdin" 0 $anneal check -
t "check from stdin without a dash" 0 $anneal check
in=/dev/null
# a pipe that the command was handed is read, one that lies about is not waited for
t "check from a pipe by name" 0 sh -c "cat examples/conv.mil | $anneal check /dev/stdin"
t "check from a pipe that a shell opened" 0 sh -c "cat examples/conv.mil | { exec 3<&0; $anneal check /dev/fd/3 </dev/null; }"
pipe=$tmp/pipe; mkfifo "$pipe"
for c in "check $pipe" "run $pipe --engine cpu --out y=$tmp/never" "run examples/reduce.mil --engine cpu --in x=$pipe --out sum=$tmp/never" "hwx dump $pipe" "tokenizer info $pipe" "tokenize --tokenizer $pipe" \
    "generate --model $pipe --prompt x" "generate --model tiny --prompt x --tokenizer $pipe" "eval --model stories1m --tokenizer builtin:stories --engine cpu --data $pipe" "train --model tiny --data $pipe" "train --model tiny --tokenizer $pipe" \
    "train --model charlm --data text:$pipe" "grad --model tiny --out $tmp/never --tokens $pipe" "data prepare --tokenizer $pipe --data examples/conv.mil --out $tmp/never.u16"; do
    (: >"$pipe") & # who would wait reads nothing, and ends
    t "$c, a pipe" 3 $anneal $c
    has "$c, a pipe" err 'pipe is a pipe, not a regular file\|pipe: .* is a pipe, not a regular file'
    kill $! 2>/dev/null
done
printf 'program(1.3)\n[buildInfo = dict<string, string>({})]\n{\n  func main<ios18>(tensor<fp16, [1, 4]> x) {\n    oops\n' >"$tmp/bad.mil"
t "bad text" 3 $anneal check --json "$tmp/bad.mil"
has "syntax finding on stdout" out '"rule":"syntax","severity":"error"'
has "bad text named on stderr" err 'bad.mil:[0-9]*:[0-9]*: '
t "bad text, compile" 3 $anneal compile "$tmp/bad.mil"
has "bad text named on stderr" err 'bad.mil:[0-9]*:[0-9]*: '
t "bad text outranks refusal" 3 $anneal check --target m1 "$tmp/bad.mil" examples/oldchip.mil
: >"$tmp/empty.mil"
t "empty file" 3 $anneal check "$tmp/empty.mil"
