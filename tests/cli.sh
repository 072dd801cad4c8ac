#!/bin/sh
# The command as a stranger uses it: exit codes, streams, messages.   cli.sh ANNEAL; last line "PASSED FAILED"
anneal=$1
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

# shellcheck disable=SC2086
{
    t "no arguments" 2 $anneal
    has "usage on stderr" err '^usage: anneal'
    empty "no arguments" out
    t "help" 0 $anneal --help
    has "help on stdout" out '^usage: anneal'
    empty "help" err
    t "unknown command" 2 $anneal frobnicate
    has "unknown command" err 'no command "frobnicate"'
    for w in trian:train gen:generate; do
        t "misspelt command ${w%:*}" 2 $anneal ${w%:*}
        has "misspelt command ${w%:*}" err "did you mean ${w#*:}?"
        t "help of a misspelt command ${w%:*}" 2 $anneal help ${w%:*}
    done
    t "version" 0 $anneal --version
    has "version" out '^anneal [0-9]'
    for c in --version --help "check --help"; do t "$c on a full disk" 3 sh -c "$anneal $c >/dev/full"; done
    for c in $($anneal --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        t "$c --help" 0 $anneal $c --help
        has "$c --help shows an example" out '^example: anneal'
        t "$c --help, no line is too long" 1 grep -q '.\{110\}' "$tmp/out"
    done
    for c in ops targets rules gates passes kernels isa limits probe doctor; do
        t "$c" 0 $anneal $c
        t "$c --json" 0 $anneal $c --json
        has "$c --json" out '^{".*}$'
        if command -v python3 >/dev/null 2>&1; then
            t "$c --json is JSON" 0 python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$tmp/out"
        fi
    done
    # doctor: what is here, and variables that no command would run with
    t "doctor, a strongest instruction set" 0 env AN_ISA=scalar AN_THREADS=3 ANNEAL_CACHE="$tmp/nowhere" ANNEAL_CACHE_BYTES=3k $anneal doctor --json
    has "doctor, threads" out '^{"kind":"threads","count":3,"from":"AN_THREADS"}$'
    has "doctor, cache" out '^{"kind":"cache","folder":".*/nowhere","programs":0,"bytes":0,"most_bytes":3072,"why_not":""}$'
    has "doctor, libraries" out '^{"kind":"library","name":"jansson","version":"[0-9.]*","found":true'
    has "doctor, libraries that may be there" out '^{"kind":"library","name":"openblas",.*"get":"apt-get install '
    t "doctor, no instruction set in use" 1 grep -q '"kind":"isa".*"used":true' "$tmp/out"
    t "doctor makes no folder" 1 test -e "$tmp/nowhere"
    for v in AN_ISA=mmx AN_THREADS=many ANNEAL_CACHE_BYTES=2T; do
        t "doctor, $v" 3 env $v $anneal doctor
        has "doctor, $v" out "problem .*$v: "
        has "doctor, $v" err "^anneal: $v: "
        has "doctor, $v, the rest" out 'soft:<chip>'
    done
    grep '^\.B' docs/anneal.1 >"$tmp/man"
    for c in $($anneal --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        t "man page, $c" 0 grep -qw "$c" "$tmp/man"
    done
    for v in $(grep -rho 'getenv("AN[A-Z_]*")' src | cut -d'"' -f2 | sort -u); do
        t "man page, $v" 0 grep -qw "$v" "$tmp/man"
    done
    t "unknown option" 2 $anneal check --tarket m1 examples/conv.mil
    has "unknown option is guessed" err 'did you mean --target'
    t "option without value" 2 $anneal check --target
    t "table takes no file" 2 $anneal ops examples/conv.mil
    t "two forms of one table" 2 $anneal ops --json --markdown

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

    mkdir -p "$tmp/a"
    t "compile to MIL" 0 $anneal compile examples/attention.mil --target m1 --emit mil --out "$tmp/a/att.mil"
    t "what was compiled for m1 is accepted by m1" 0 $anneal check --target m1 "$tmp/a/att.mil"
    t "compile twice" 0 $anneal compile "$tmp/a/att.mil" --target m1 --out "$tmp/a/att2.mil"
    t "compiling again changes nothing" 0 cmp "$tmp/a/att.mil" "$tmp/a/att2.mil"
    # programs in one folder: each keeps its own weights. The input has two records and uses the second.
    mkdir -p "$tmp/w/far"
    printf 'graph "two"\nx = input fp16[1, 2, 1, 32]\nk = const fp16[1, 2, 1, 32] all 0.5\nm = const fp16[1, 2, 1, 32] all 2\ns = add(x, k)\ny = mul(s, m)\nreturn y\n' >"$tmp/w/two.ann"
    t "weights to a file" 0 $anneal compile "$tmp/w/two.ann" --no-opt --out "$tmp/w/two.mil"
    for o in "--target m1" --ports "--dump-after all"; do t "no passes, and $o" 2 $anneal compile "$tmp/w/two.ann" --no-opt $o; done
    t "no passes, a program for a chip" 0 $anneal compile "$tmp/w/two.ann" --no-opt --target m1 --emit listing
    sed 's/mul(x = s/mul(x = x/' "$tmp/w/two.mil" >"$tmp/w/in.mil"
    cp "$tmp/w/in.mil" "$tmp/w/r.mil"
    cp "$tmp/w/weights/weight.bin" "$tmp/w/keep.bin"
    same() { # same NAME FILE ENGINE AS: the program's answer is AS
        t "$1, run" 0 $anneal run "$tmp/w/$2" --engine $3 --fill 1 --out y="$tmp/w/y.npy"
        t "$1, the same answer" 0 cmp "$tmp/w/$4" "$tmp/w/y.npy"
    }
    t "run with weights" 0 $anneal run "$tmp/w/in.mil" --engine cpu --fill 1 --out y="$tmp/w/cpu.npy"
    t "run with weights on m1" 0 $anneal run "$tmp/w/in.mil" --engine soft:m1 --fill 1 --out y="$tmp/w/m1.npy"
    t "run the other with weights" 0 $anneal run "$tmp/w/two.mil" --engine cpu --fill 1 --out y="$tmp/w/two.npy"
    t "compile beside the input" 0 $anneal compile "$tmp/w/in.mil" --emit program --out "$tmp/w/p.prog"
    t "compile beside the input for a chip" 0 $anneal compile "$tmp/w/in.mil" --target m1 --out "$tmp/w/q.mil"
    for k in 1 2 3; do t "compile into the input, time $k" 0 $anneal compile "$tmp/w/r.mil" --target m1 --out "$tmp/w/r.mil"; done
    t "the input's weights stay as they were" 0 cmp "$tmp/w/keep.bin" "$tmp/w/weights/weight.bin"
    same "the input" in.mil cpu cpu.npy
    same "the program" p.prog cpu cpu.npy
    same "the text for a chip" q.mil soft:m1 m1.npy
    same "the text that was its own input" r.mil soft:m1 m1.npy
    t "compile into another folder" 0 $anneal compile "$tmp/w/in.mil" --out "$tmp/w/far/a.mil"
    t "compile into another folder again" 0 $anneal compile "$tmp/w/in.mil" --out "$tmp/w/far/a.mil"
    t "weights have their usual place there" 0 grep -q '@model_path/weights/weight.bin' "$tmp/w/far/a.mil"
    t "compile another program into that folder" 0 $anneal compile "$tmp/w/two.mil" --emit program --out "$tmp/w/far/b.prog"
    same "the first one there" far/a.mil cpu cpu.npy
    same "the second one there" far/b.prog cpu two.npy
    t "list with weights" 0 $anneal compile "$tmp/w/in.mil" --emit listing --out "$tmp/w/list.txt"
    t "a listing writes no weights" 1 test -e "$tmp/w/list.txt.weights.bin"

    t "the older dialect" 0 $anneal compile examples/oldchip.mil --emit mil-ios16
    has "the older dialect" out 'func main<ios16>'
    t "graph text" 0 $anneal compile examples/conv.mil --emit graph
    has "graph text" out '= conv('
    cp "$tmp/out" "$tmp/conv.ann"
    t "graph text in" 0 $anneal opt "$tmp/conv.ann"
    t "graphviz" 0 $anneal compile examples/conv.mil --emit dot
    has "graphviz" out '^digraph'
    t "unknown form" 2 $anneal compile examples/conv.mil --emit exe
    t "unknown pass" 2 $anneal opt --passes=frob "$tmp/conv.ann"
    t "opt of MIL" 3 $anneal opt examples/conv.mil
    has "opt of MIL" err 'conv.mil is MIL, and opt reads graph text'
    t "dump after every pass" 0 $anneal compile examples/conv.mil --target m1 --dump-after all
    has "dump on stderr" err '^# after '

    t "one kernel" 0 $anneal build --model stories15m --kernel fwd_attn --layer 2 --emit mil
    has "its weights are references" out 'BLOBFILE'
    t "unknown model" 2 $anneal build --model gpt9
    t "unknown kernel" 2 $anneal build --kernel frob
    t "layer out of range" 3 $anneal build --model stories15m --kernel fwd_attn --layer 99
    t "layer not a number" 2 $anneal build --kernel fwd_attn --layer x
    for o in layer seq; do t "--$o of a whole step" 2 $anneal build --model stories260k --$o 1 --out "$tmp/step"; done
    t "a whole training step, checked" 0 $anneal build --model stories260k --check --out "$tmp/step"
    t "every program of the step checks from its file" 0 sh -c "$anneal check --quiet --target m1,m4 $tmp/step/*.mil"
    t "cost per operation" 0 $anneal cost examples/conv.mil
    has "cost per operation" out 'conv'
    t "published rows" 0 $anneal cost --published
    has "published rows" out 'median'
    printf 'program(1.3)\n[buildInfo = dict<string, string>({{"coremlc-version", "1"}})]\n{\nfunc main<ios18>(tensor<fp16, [1, 2, 1, 4]> x) {\ntensor<fp16, [1, 2, 1, 4]> y = relu(x = x)[name = string("y")];\n} -> (y);\n}\n' >"$tmp/relu.mil"
    # an .npy of eight halves: -1 1 -1 1 -1 1 -1 1
    { printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 1, 4), }"; printf '\000\274\000\074\000\274\000\074\000\274\000\074\000\274\000\074'; } >"$tmp/x.npy"
    { printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 1, 4), }"; printf '\000\000\000\074\000\000\000\074\000\000\000\074\000\000\000\074'; } >"$tmp/want.npy"
    for e in cpu soft:m1 soft:m2 soft:m3 soft:m4 soft:m5; do
        t "run on $e" 0 $anneal run "$tmp/relu.mil" --engine $e --in x="$tmp/x.npy" --out y="$tmp/y.npy"
        t "the answer on $e" 0 cmp "$tmp/y.npy" "$tmp/want.npy"
    done
    # every example, with numbers from a seed; the fast executor gives the bits of the obvious one where that is promised
    mkdir "$tmp/ex"
    t "weights of the examples" 0 sh examples/weights.sh "$anneal" "$tmp/ex"
    t "weights of the examples are what is shipped" 0 cmp "$tmp/ex/weights/weight.bin" examples/weights/weight.bin
    for row in attention:y conv:y elementwise:z hazards:y matmul:z norm:y oldchip:y reduce:sum softmax:y; do
        x=${row%:*} y=${row#*:}
        for e in cpu soft:m1 soft:m4 soft:m5; do
            case $x,$e in oldchip,soft:m1) want=4 ;; *) want=0 ;; esac
            rm -f "$tmp/ex.npy" "$tmp/ref.npy"
            t "example $x on $e" $want $anneal run examples/$x.mil --engine $e --fill 7 --out $y="$tmp/ex.npy"
            case $x,$e in attention,* | *,cpu | oldchip,soft:m1) continue ;; esac
            t "example $x on $e, the obvious way" 0 $anneal run examples/$x.mil --engine $e --fill 7 --out $y="$tmp/ref.npy" --reference
            t "example $x on $e, bit for bit" 0 cmp "$tmp/ex.npy" "$tmp/ref.npy"
        done
    done
    t "run, filled" 0 $anneal run "$tmp/relu.mil" --engine cpu --fill 1 --in x="$tmp/x.npy" --out y="$tmp/y.npy"
    t "run, what is given is not filled" 0 cmp "$tmp/y.npy" "$tmp/want.npy"
    sed 's/y = relu(x = x)/y = gather(x = x, indices = int32(99), axis = int32(0))/; s/tensor<fp16, \[[^]]*\]> x/tensor<fp16, [2, 1]> x/; s/tensor<fp16, \[[^]]*\]> y/tensor<fp16, [1]> y/' "$tmp/relu.mil" >"$tmp/far.mil"
    t "run, a place outside" 3 $anneal run "$tmp/far.mil" --engine cpu --fill 1 --out y="$tmp/y.npy"
    has "run, a place outside, its line" err 'far.mil:[0-9]*: gather: index 99 is outside an extent of 2$'
    sed 's/\[[^]]*\]> x/[?]> x/; s/\[[^]]*\]> y/[?]> y/' "$tmp/relu.mil" >"$tmp/open.mil"
    t "run, filled without a size" 3 $anneal run "$tmp/open.mil" --engine cpu --fill 1 --out y="$tmp/y.npy"
    has "run, filled without a size" err 'open.mil: input x: dimension 0 is ?, wanted a number to fill it$'
    t "run, filled from no number" 2 $anneal run "$tmp/relu.mil" --engine cpu --fill many --out y="$tmp/y.npy"
    t "run, nothing given" 3 $anneal run "$tmp/relu.mil" --engine cpu --out y="$tmp/y.npy"
    t "run, too many threads" 2 $anneal run "$tmp/relu.mil" --engine cpu --threads 1025 --fill 1 --out y="$tmp/y.npy"
    has "run, too many threads" err '0 to 1024, got "1025"'
    for n in abc -5 2x 1025; do
        t "run, AN_THREADS=$n" 3 env AN_THREADS=$n $anneal run "$tmp/relu.mil" --engine cpu --fill 1 --out y="$tmp/y.npy"
        has "run, AN_THREADS=$n" err "AN_THREADS=$n: a whole number"
    done
    t "run, unknown engine" 2 $anneal run "$tmp/relu.mil" --engine soft:m9 --in x="$tmp/x.npy" --out y="$tmp/y.npy"
    t "run, unknown input" 3 $anneal run "$tmp/relu.mil" --engine cpu --in z="$tmp/x.npy" --out y="$tmp/y.npy"
    has "run, unknown input" err 'z'
    t "run, unknown result" 3 $anneal run "$tmp/relu.mil" --engine cpu --in x="$tmp/x.npy" --out q="$tmp/y.npy"
    t "run, no result asked for" 2 $anneal run "$tmp/relu.mil" --engine cpu --in x="$tmp/x.npy"
    t "run, not an npy file" 3 $anneal run "$tmp/relu.mil" --engine cpu --in x="$tmp/relu.mil" --out y="$tmp/y.npy"
    t "run, refused by the chip" 4 $anneal run examples/oldchip.mil --engine soft:m1 --in x="$tmp/x.npy" --out y="$tmp/y.npy"
    t "run, bad text" 3 $anneal run "$tmp/bad.mil" --engine cpu --in x="$tmp/x.npy" --out y="$tmp/y.npy"
    t "compile to a program" 0 $anneal compile "$tmp/relu.mil" --emit program --out "$tmp/relu.prog"
    t "a program, listed" 0 $anneal compile "$tmp/relu.prog" --emit listing
    has "a program, listed" out '^program "main" for "cpu"'
    for o in "--target m1" --ports --no-opt "--dump-after all"; do t "a program, listed with $o" 2 $anneal compile "$tmp/relu.prog" --emit listing $o; done
    t "a program is no text" 2 $anneal compile "$tmp/relu.prog"
    t "run a program" 0 $anneal run "$tmp/relu.prog" --engine cpu --in x="$tmp/x.npy" --out y="$tmp/yp.npy"
    t "the answer of a program" 0 cmp "$tmp/yp.npy" "$tmp/want.npy"
    t "a chip loads what it compiled itself" 4 $anneal run "$tmp/relu.prog" --engine soft:m1 --in x="$tmp/x.npy" --out y="$tmp/yp.npy"
    has "a chip loads what it compiled itself, unless" err '\-\-limit open_images=1'
    t "compile to a program for a chip" 0 $anneal compile "$tmp/relu.mil" --target m1 --emit program --out "$tmp/relu.m1.prog"
    t "a program for a chip is no text" 2 $anneal compile "$tmp/relu.m1.prog"
    has "a program for a chip is no text" err 'anneal run --engine soft:m1 --limit open_images=1 runs it'
    t "run a program on a chip" 0 $anneal run "$tmp/relu.m1.prog" --engine soft:m1 --limit open_images=1 --in x="$tmp/x.npy" --out y="$tmp/ym.npy"
    t "the answer of a program on a chip" 0 cmp "$tmp/ym.npy" "$tmp/want.npy"
    t "run a program on another chip" 4 $anneal run "$tmp/relu.m1.prog" --engine soft:m4 --limit open_images=1 --in x="$tmp/x.npy" --out y="$tmp/ym.npy"
    for p in relu relu.m1; do t "null takes $p.prog" 0 $anneal run "$tmp/$p.prog" --engine null --in x="$tmp/x.npy" --out y="$tmp/yn.npy"; done
    on="--in x=$tmp/x.npy --out y=$tmp/yl.npy"
    t "run, a limit that is heeded" 3 $anneal run "$tmp/relu.mil" --engine soft:m1 --limit qos_max=20 $on
    has "run, a limit that is heeded" err 'quality of service 21; 0 to 20 are taken'
    while read -r given says; do
        t "run --limit $given" 2 $anneal run "$tmp/relu.mil" --engine soft:m1 --limit "$given" $on
        has "run --limit $given" err "$says"
    done <<EOF
frob=1 unknown device limit "frob"; there are compiles, .*open_images
open_images=2 open_images is 2; 0 or 1 is wanted
loaded=-1 loaded is -1; 0 or more is wanted
loaded=many --limit loaded wants a whole number, got "many"
loaded=99999999999999999999 wants a whole number
loaded --limit wants NAME=VALUE, got "loaded"
EOF
    for e in cpu null; do
        t "run, a limit on $e" 2 $anneal run "$tmp/relu.mil" --engine $e --limit loaded=1 $on
        has "run, a limit on $e" err "^anneal: $e has no limit loaded"
    done
    # two results in one file
    twice() { # twice NAME FILE FILE: they are one
        t "$1" 2 $anneal run examples/reduce.mil --engine cpu --fill 1 --out most="$2" --out sum="$3"
        has "$1" err '^anneal: --out most and --out sum both go to '
        empty "$1" out
    }
    twice "run, one file for two results" "$tmp/dup.npy" "$tmp/dup.npy"
    twice "run, one file spelt two ways" "$tmp/dup.npy" "$tmp/./dup.npy"
    t "run, one file for two results is not written" 1 test -e "$tmp/dup.npy"
    : >"$tmp/dup.npy"
    ln -s dup.npy "$tmp/link.npy"
    twice "run, one file and a link to it" "$tmp/dup.npy" "$tmp/link.npy"
    twice "run, standard output for two results" - -
    t "run, two results for nobody" 0 $anneal run examples/reduce.mil --engine cpu --fill 1 --out most=/dev/null --out sum=/dev/null
    t "run, two files" 0 $anneal run examples/reduce.mil --engine cpu --fill 1 --out most="$tmp/dup.npy" --out sum="$tmp/dup2.npy"
    for m in tiny digits; do
        t "train $m, unknown schedule" 2 $anneal train --model $m --schedule slow --steps 1
        has "train $m, unknown schedule" err 'unknown schedule "slow"; known are constant, linear, cosine'
    done
    t "train, a log that is the table too" 2 $anneal train --model tiny --engine cpu --steps 1 --log "$tmp/one" --csv "$tmp/./one"
    has "train, a log that is the table too" err '^anneal: --log and --csv both go to '
    t "compile to a program, refused by the chip" 4 $anneal compile examples/oldchip.mil --target m1 --emit program --out "$tmp/old.prog"
    has "compile to a program, refused by the chip" err '^examples/oldchip.mil:6:43: .*sin is not available'
    printf 'graph "old"\n# refused below\n\nx = input fp16[1, 2, 1, 32]\ny = sin(x)\nreturn y\n' >"$tmp/old.ann"
    t "compile graph text to a program, refused by the chip" 4 $anneal compile "$tmp/old.ann" --target m1 --emit listing
    has "compile graph text to a program, refused by the chip" err "old.ann:5:1: .*sin is not available"
    t "a program for a chip, listed" 0 $anneal compile "$tmp/relu.mil" --target m1 --emit listing
    has "a program for a chip, listed" out 'port_ceiling=32768'
    head -c 100 "$tmp/relu.prog" >"$tmp/cut.prog"
    { head -c 60 "$tmp/relu.prog" && printf X && tail -c +62 "$tmp/relu.prog"; } >"$tmp/spoilt.prog"
    for f in cut spoilt; do
        t "list a program that is $f" 3 $anneal compile "$tmp/$f.prog" --emit listing
        for e in cpu soft:m1; do t "run a program that is $f on $e" 3 $anneal run "$tmp/$f.prog" --engine $e --in x="$tmp/x.npy" --out y="$tmp/yp.npy"; done
        has "run a program that is $f" err "$f.prog: "
    done
    t "facts, one row" 0 $anneal facts N7
    has "facts, one row" out '^1 rows: 1 pass'
    t "facts, a row that is not modelled" 0 $anneal facts E1
    t "facts, a row the cost model misses" 0 $anneal facts P26
    has "facts, a row the cost model misses" out '^P26  off '
    t "facts --json, a row the cost model misses" 0 $anneal facts --json P26
    has "facts --json, a row the cost model misses" out '"status":"pass".*"error_percent":-[0-9.]*,"fidelity_percent":31,"within_fidelity":false}$'
    has "facts --json, its total" out '"rows":1,"pass":1,"fail":0,"not_modelled":0,"outside_fidelity":1}$'
    t "facts --json" 0 $anneal facts --json N5
    has "facts --json" out '"id":"N5"'
    t "facts, no such row" 2 $anneal facts Z9
    t "facts, a row without a name" 2 $anneal facts ''
    has "facts, a row without a name" err 'wants a row or a family, got ""'
    for c in ops targets rules gates bench probe hwx "hwx fields" doctor; do t "$c, a name that is none" 2 $anneal $c ''; done
    t "targets, their arithmetic" 0 $anneal targets
    has "targets, their arithmetic" out '^h13  window_bits  *12  R  facts 3.3'
    t "targets --json, their arithmetic" 0 $anneal targets --json
    has "targets --json, their arithmetic" out '^{"kind":"profile","tier":"h13","switch":"window_bits","value":12,"status":"R","evidence":"facts 3.3'
    for c in "train --model tiny" "train --model mlp" "generate --model tiny --prompt x" "eval --model tiny --data x" "grad --model tiny --tokens x --out y"; do
        t "$c, an engine that computes nothing" 2 $anneal $c --engine null
        has "$c, an engine that computes nothing" err '--engine null computes nothing'
    done
    t "probe" 0 $anneal probe concat
    has "probe" out 'concat(axis'
    t "no such probe" 2 $anneal probe nothing
    for p in probe/*.mil; do
        $anneal probe "$(basename "$p" .mil)" >"$tmp/p.mil"
        t "probe $(basename "$p") parses" 0 $anneal compile --no-opt "$tmp/p.mil"
    done
    t "bench list" 0 $anneal bench list
    has "bench list" out '^gemm'
    t "no such benchmark" 2 $anneal bench frob
    t "bench list takes no name" 2 $anneal bench list gemm
    t "bench" 0 $anneal bench compile --runs 1 --json
    has "bench" out '"of_bound":'
    t "bench, a table" 0 $anneal bench check --runs 1 --markdown
    has "bench, a table" out '^| the same MIL text, m1 and m4 |'
    t "bench, too many runs" 2 $anneal bench compile --runs 401
    tail -c +2 tests/fuzz/corpus-hwx/conv >"$tmp/conv.hwx"
    t "hwx dump" 0 $anneal hwx dump "$tmp/conv.hwx"
    has "hwx dump" out 'ConvCfg  *5000a021  Kw 1, Kh 1'
    t "hwx dump --json" 0 $anneal hwx dump "$tmp/conv.hwx" --json
    has "hwx dump --json" out '^{"kind":"task","task":0,"offset":0,"bytes":628'
    t "hwx dump, not a program file" 3 $anneal hwx dump tests/cli.sh
    has "hwx dump, not a program file" err '^tests/cli.sh: magic 0x[0-9a-f]*, wanted 0xbeefface'
    empty "hwx dump, not a program file" out
    head -c 4000 "$tmp/conv.hwx" >"$tmp/cut.hwx"
    t "hwx dump, cut short" 3 $anneal hwx dump "$tmp/cut.hwx"
    has "hwx dump, cut short" err 'but the file has 0xfa0'
    t "hwx without a verb" 2 $anneal hwx
    t "hwx dump without a file" 2 $anneal hwx dump
    has "hwx dump without a file" err 'hwx dump takes one file, got 0'
    t "hwx fields of a file" 2 $anneal hwx fields "$tmp/conv.hwx"
    has "hwx fields of a file" err 'hwx fields takes no file'
    t "hwx fields" 0 $anneal hwx fields --json
    has "hwx fields" out '"name":"OCGSize"'
    lm="--cache $tmp/programs --threads 1"
    t "generate, no model" 2 $anneal generate --prompt x
    t "generate, two prompts" 2 $anneal generate --model tiny --prompt x --prompt-file "$tmp/x"
    t "generate, no tokenizer" 2 $anneal generate --model tiny --prompt x $lm
    has "generate, no tokenizer" err 'name one with --tokenizer'
    t "generate, unknown weights" 2 $anneal generate --model tiny --weights fp7 $lm
    t "generate, not a number" 2 $anneal generate --model tiny --tokenizer builtin:stories --temperature hot $lm
    t "generate, among none" 2 $anneal generate --model tiny --tokenizer builtin:stories --temperature 1 --top-p 0 $lm
    has "generate, among none" err 'top-p wants a number above 0 (1: all)'
    t "generate, among few of which one is taken" 0 $anneal generate --model stories1m --tokenizer builtin:stories --prompt Once --max-tokens 1 --top-k 5 $lm
    has "generate, among few of which one is taken" err 'warning: --top-k changes nothing: at temperature 0'
    t "generate, guesses of nobody" 2 $anneal generate --model tiny --tokenizer builtin:stories --draft-tokens 3 $lm
    has "generate, guesses of nobody" err 'name a model with --draft, or ask for --lookup'
    t "eval, no data" 2 $anneal eval --model tiny
    stories=../shared/data/llama2c
    if [ -r $stories/stories260K.bin ]; then
        m="--model $stories/stories260K.bin --tokenizer $stories/tok512.bin $lm"
        t "generate" 0 $anneal generate $m --prompt "" --max-tokens 200 --temperature 0 --engine cpu
        has "generate" err 'tok/s'
        { cat $stories/stories260K_greedy_n200.txt; echo; } >"$tmp/want.txt"
        cp "$tmp/out" "$tmp/got.txt"
        t "generate, byte for byte" 0 cmp "$tmp/want.txt" "$tmp/got.txt"
        t "generate on soft:m4" 0 $anneal generate $m --prompt "Once upon" --max-tokens 8 --engine soft:m4
        has "generate on soft:m4" out '^Once upon a time, there was'
        t "generate --json" 0 $anneal generate $m --prompt "Once" --max-tokens 3 --json
        has "generate --json" out '^{"index":2,"token":[0-9]*,"text":".*","logprob":-'
        t "generate again" 0 $anneal generate $m --prompt "Once" --max-tokens 3 --json
        has "generate again" out '"why":"length".*"first_token_ms":[1-9].*"peak_mb":[1-9].*"compiles":0,'
        g="--model $stories/stories260K.bin --tokenizer $stories/tok512.bin --threads 1 --prompt Once --max-tokens 2"
        t "generate, a file as the cache" 3 $anneal generate $g --cache tests/cli.sh
        has "generate, a file as the cache" err 'cannot be kept in "tests/cli.sh": a folder'
        t "generate, a cache below a file" 3 $anneal generate $g --cache tests/cli.sh/programs
        has "generate, a cache below a file" err 'tests/cli.sh/programs: Not a directory'
        for b in 2T -1 many; do
            t "generate, a cache of $b" 3 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=$b $anneal generate $g
            has "generate, a cache of $b" err "ANNEAL_CACHE_BYTES=$b: a whole number"
        done
        t "generate, nothing kept" 0 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=0 $anneal generate $g
        t "generate, nothing was kept" 1 sh -c "ls '$tmp/bound' | grep prog"
        t "generate, kept" 0 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=1M $anneal generate $g
        t "generate, was kept" 0 sh -c "ls '$tmp/bound' | grep prog"
        t "generate, no usual cache" 0 env ANNEAL_CACHE=tests/cli.sh/programs $anneal generate $g
        has "generate, no usual cache" err '^anneal: warning: compiled programs are kept in memory only: .*Not a directory'
        t "generate, too many threads" 2 $anneal generate $g --threads 1025
        t "generate, prompt longer than the context" 3 $anneal generate $m --context 8 --prompt "Once upon a time there was a little girl"
        has "generate, prompt longer than the context" err 'tokens do not fit a context of 8 positions'
        empty "generate, prompt longer than the context" out
        printf 'abc\377' >"$tmp/not.txt"
        t "generate, not UTF-8" 3 $anneal generate $m --prompt-file "$tmp/not.txt"
        has "generate, not UTF-8" err 'not.txt: the text is not UTF-8: byte 3 is 0xff'
        empty "generate, not UTF-8" out
        in="$tmp/not.txt" t "tokenize, any bytes" 0 $anneal tokenize --tokenizer $stories/tok512.bin
        has "tokenize, any bytes" out ' 258$'
        in="$tmp/not.txt" t "chat, not UTF-8" 3 $anneal chat $m --template plain
        t "eval, not UTF-8" 3 $anneal eval $m --data "$tmp/not.txt"
        $anneal convert --model $stories/stories260K.bin --tokenizer $stories/tok512.bin --out "$tmp/asks" --to hf 2>/dev/null
        echo '{"do_sample":true,"temperature":0.8,"top_k":9}' >"$tmp/asks/generation_config.json"
        t "generate as the model asks" 0 $anneal generate --model "$tmp/asks" $lm --prompt "Once" --max-tokens 12 --seed 5
        has "generate as the model asks" err 'as the model asks for: temperature 0.8, top-k 9'
        cp "$tmp/out" "$tmp/got.txt"
        $anneal generate --model "$tmp/asks" $lm --prompt "Once" --max-tokens 12 --seed 5 --temperature 0.8 --top-k 9 >"$tmp/same.txt" 2>/dev/null
        t "generate as the command line asks" 0 cmp "$tmp/got.txt" "$tmp/same.txt"
        t "generate, vocabulary of another model" 3 $anneal generate --model $stories/stories260K.bin --tokenizer $stories/tokenizer.bin $lm
        has "generate, vocabulary of another model" err '32000 entries, the embedding 512 rows'
        in="$tmp/want.txt" t "chat, line by line" 0 $anneal chat $m --max-tokens 4 --template plain
        t "chat, unknown template" 3 $anneal chat $m --template frob
        printf '\001\000\003\000\004\000' >"$tmp/ids.u16"
        t "eval --json" 0 $anneal eval $m --data "$tmp/ids.u16" --json
        has "eval --json" out '^{"tokens":2,"nats_per_token":'
    fi
    # text
    t "data stories" 0 $anneal data stories --count 60 --seed 3
    cp "$tmp/out" "$tmp/stories.txt"
    t "tokenizer train" 0 $anneal tokenizer train --data "$tmp/stories.txt" --vocab 400 --out "$tmp/t.json"
    has "tokenizer train" err '400 tokens from'
    t "tokenizer train, a short text" 0 $anneal tokenizer train --data examples/conv.mil --vocab 4096 --out "$tmp/short.json"
    has "tokenizer train, a short text" err 'warning: [0-9]* of 4096 tokens'
    t "tokenizer train, no text" 3 $anneal tokenizer train --data "$tmp/empty.mil" --out "$tmp/none.json"
    t "tokenizer info" 0 $anneal tokenizer info "$tmp/t.json" --json
    has "tokenizer info" out '"tokens":400,.*"bos":399'
    t "tokenizer info of two" 2 $anneal tokenizer info "$tmp/t.json" --tokenizer builtin:stories
    in="$tmp/stories.txt" t "tokenize" 0 $anneal tokenize --tokenizer "$tmp/t.json"
    cp "$tmp/out" "$tmp/ids.txt"
    t "one line of ids" 0 test "$(wc -l <"$tmp/ids.txt")" -eq 1
    in="$tmp/ids.txt" t "tokenize --decode" 0 $anneal tokenize --tokenizer "$tmp/t.json" --decode
    cp "$tmp/out" "$tmp/got.txt"
    t "the same bytes" 0 cmp "$tmp/got.txt" "$tmp/stories.txt"
    head -c 3000 /dev/urandom >"$tmp/noise"
    in="$tmp/noise" t "tokenize noise" 0 $anneal tokenize --tokenizer "$tmp/t.json" --bos
    has "BOS in front" out '^399 '
    cp "$tmp/out" "$tmp/ids.txt"
    in="$tmp/ids.txt" t "noise back" 0 $anneal tokenize --tokenizer "$tmp/t.json" --decode
    cp "$tmp/out" "$tmp/got.txt"
    t "noise, the same bytes" 0 cmp "$tmp/got.txt" "$tmp/noise"
    t "tokenize nothing" 0 $anneal tokenize --tokenizer "$tmp/t.json"
    t "an empty line" 0 test "$(wc -c <"$tmp/out")" -eq 1
    printf '400' >"$tmp/ids.txt"
    in="$tmp/ids.txt" t "id past the vocabulary" 3 $anneal tokenize --tokenizer "$tmp/t.json" --decode
    has "id past the vocabulary" err 'id 400 at index 0, the vocabulary has 400'
    in="$tmp/stories.txt" t "words are no ids" 3 $anneal tokenize --tokenizer "$tmp/t.json" --decode
    t "tokenize without a tokenizer" 2 $anneal tokenize
    t "no tokenizer" 3 $anneal tokenize --tokenizer "$tmp/noise"
    has "no tokenizer" err 'noise: '
    t "missing tokenizer" 3 $anneal tokenize --tokenizer "$tmp/nothing.json"
    t "--bos with --decode" 2 $anneal tokenize --tokenizer "$tmp/t.json" --decode --bos
    t "data prepare" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/s.u16" --json
    has "data prepare" out '"documents":60,'
    cp "$tmp/s.u16" "$tmp/once.u16"
    t "data prepare, two files" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --data "$tmp/stories.txt" --out "$tmp/s2.u16" --json
    has "data prepare, two files" out '"documents":120,'
    t "data prepare, two files are both there" 0 sh -c 'cat "$1" "$1" | cmp - "$2"' sh "$tmp/once.u16" "$tmp/s2.u16"
    : >"$tmp/empty"
    t "data prepare, an empty file" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/empty" --out "$tmp/e.u16"
    has "data prepare, an empty file" err 'empty is empty'
    t "data prepare, an empty file leaves none" 1 test -e "$tmp/e.u16"
    t "data prepare, ids" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/s.u16" --out "$tmp/e.u16"
    grep -v endoftext "$tmp/stories.txt" | sed G >"$tmp/blank.txt"
    t "data prepare, no separator" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/blank.txt" --out "$tmp/e.u16" --json
    has "data prepare, no separator" out '"documents":1,'
    has "data prepare, no separator" err 'no <|endoftext|>.*--documents'
    t "data prepare, blank lines" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/blank.txt" --documents blank --out "$tmp/e.u16" --json
    has "data prepare, blank lines" out '"documents":60,'
    empty "data prepare, blank lines" err
    awk '{ printf "%s\r\n", $0 }' "$tmp/blank.txt" >"$tmp/crlf.txt"
    t "data prepare, blank lines of CRLF" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/crlf.txt" --documents blank --out "$tmp/e.u16" --json
    has "data prepare, blank lines of CRLF" out '"documents":60,'
    empty "data prepare, blank lines of CRLF" err
    grep -v '^$' "$tmp/blank.txt" >"$tmp/dense.txt"
    t "data prepare, no blank line" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/dense.txt" --documents blank --out "$tmp/e.u16" --json
    has "data prepare, no blank line" err 'documents blank found nowhere to cut: each such file is one document'
    t "data prepare, nothing to be cut" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/dense.txt" --documents whole --out "$tmp/e.u16" --json
    empty "data prepare, nothing to be cut" err
    mkdir "$tmp/texts" && cp "$tmp/stories.txt" "$tmp/texts"
    t "data prepare, a folder" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/texts" --out "$tmp/e.u16"
    has "data prepare, a folder" err 'texts is a folder; text is wanted: name its files'
    rm "$tmp/e.u16"
    for p in "$tmp/e.u16" "$tmp/./e.u16" "$tmp/texts/../e.u16"; do
        t "data prepare, one file for both" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation "$p" --validation-tokens 100
        has "data prepare, one file for both" err 'are one file: ids for training and for validation go into two'
        t "data prepare, one file for both: nothing is written" 1 test -e "$tmp/e.u16"
    done
    t "data prepare, two files of one name" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation "$tmp/texts/e.u16" --validation-tokens 100
    t "data prepare, ids for validation and no file" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation-tokens 100
    has "data prepare, ids for validation and no file" err 'validation-tokens is about a second file: name it with --validation'
    t "data prepare, bad name" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/s.tok"
    t "data prepare, option of stories" 2 $anneal data prepare --count 3
    t "tokenizer without a verb" 2 $anneal tokenizer
    # models between files
    t "convert --help" 0 $anneal convert --help
    t "convert a preset" 0 $anneal convert --model tiny --out "$tmp/a.bin" --seed 4
    empty "convert a preset" out
    t "convert to GGUF" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/a.gguf" --json
    has "convert to GGUF" out '"from":"llama2.c file","to":"gguf","family":"llama","tensors":20,.*"worst":0,"shards":1,"vocabulary":false,"lost":""}'
    t "convert to a folder" 0 $anneal convert --model "$tmp/a.gguf" --out "$tmp/hf"
    t "convert back" 0 $anneal convert --model "$tmp/hf" --out "$tmp/b.bin"
    t "there and back, the same bytes" 0 cmp "$tmp/a.bin" "$tmp/b.bin"
    t "convert, quantised" 0 $anneal convert --model "$tmp/hf" --out "$tmp/q.safetensors" --quantize int4
    has "convert, quantised" err 'off by at most'
    t "convert, no model" 2 $anneal convert --out "$tmp/x.gguf"
    t "convert, unknown kind" 2 $anneal convert --model tiny --out "$tmp/x" --to onnx
    t "convert, unknown form" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --quantize q9_9
    t "convert, a form of other files" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --quantize palette4
    t "convert, what the target cannot say" 3 $anneal convert --model gpt2 --out "$tmp/x.bin"
    has "convert, what the target cannot say" err 'learned positions'
    head -c 5000 "$tmp/a.gguf" >"$tmp/cut.gguf"
    t "convert, a cut file" 3 $anneal convert --model "$tmp/cut.gguf" --out "$tmp/x.bin"
    has "convert, a cut file" err 'cut.gguf: .*tensor "'
    sed 's/"rope_theta": 10000/"rope_theta": 10000, "qk_clip": 3/' "$tmp/hf/config.json" >"$tmp/c.json" && cp "$tmp/c.json" "$tmp/hf/config.json"
    t "convert, an unknown field" 3 $anneal convert --model "$tmp/hf" --out "$tmp/x.bin"
    has "convert, an unknown field" err 'config.json: field "qk_clip" (3) is not known'
    # over the model that is read, however it is spelt
    t "convert, a model of one file" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/self" --to hf
    cp -r "$tmp/self" "$tmp/self.was" && ln -s self "$tmp/self.link"
    for w in "self/model.safetensors self" "self self/model.safetensors" "self self.link" "self.link/model.safetensors self" "self self/../self.link/model.safetensors"; do
        t "convert over itself: $w" 2 $anneal convert --model "$tmp/${w% *}" --out "$tmp/${w#* }" --dtype f16
        has "convert over itself: $w" err 'is the model itself; write to another place$'
    done
    { printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"; printf '\1\0\0\0\2\0\0\0'; } >"$tmp/two.npy"
    { printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"; printf '\1\0\0\0\377\377\377\177'; } >"$tmp/far.npy"
    t "grad, a token that is none" 3 $anneal grad --model tiny --tokens "$tmp/far.npy" --engine cpu --out "$tmp/never"
    has "grad, a token that is none" err 'far.npy: token 2147483647 at position 1; the vocabulary has '
    t "grad over the model" 2 $anneal grad --model "$tmp/self" --tokens "$tmp/two.npy" --engine cpu --out "$tmp/self.link/model.safetensors"
    has "grad over the model" err 'is the model itself; write to another place$'
    t "the model is as it was" 0 diff -r "$tmp/self" "$tmp/self.was"
    t "convert to npy" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/arrays" --to npy
    t "convert over a model of arrays" 2 $anneal convert --model "$tmp/arrays" --out "$tmp/arrays/." --to npy --dtype f16
    t "convert, a tokenizer for nothing" 2 $anneal convert --model tiny --out "$tmp/x.bin" --tokenizer nowhere.json
    has "convert, a tokenizer for nothing" err 'tokenizer goes into gguf and hf alone'
    t "convert to shards" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/shards" --shard-size 100kB
    has "convert to shards" err 'in 5 files, with model.safetensors.index.json'
    t "convert shards back" 0 $anneal convert --model "$tmp/shards" --out "$tmp/c.bin"
    t "shards there and back" 0 cmp "$tmp/a.bin" "$tmp/c.bin"
    t "convert, shards of no size" 2 $anneal convert --model tiny --out "$tmp/x" --shard-size 5TB
    has "convert, shards of no size" err '500MB or 5GB, got "5TB"'
    t "convert, shards of one file" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --shard-size 5GB
    t "convert, a vocabulary of another model" 3 $anneal convert --model tiny --out "$tmp/x.gguf" --tokenizer builtin:stories
    has "convert, a vocabulary of another model" err 'builtin:stories has [0-9]* entries, the embedding 512 rows'
    if [ -r $stories/stories260K.bin ]; then
        t "convert, perplexity" 0 $anneal convert --model $stories/stories260K.bin --out "$tmp/q4.gguf" --quantize q4_0 --tokenizer $stories/tok512.bin \
            --data $stories/stories260K_greedy_n200.txt
        has "convert, perplexity" err 'perplexity of 200 tokens: 1[.]6[0-9]* before, 1[.][67][0-9]* after, +[0-9.]* %'
        t "a GGUF file needs nothing beside it" 0 $anneal generate --model "$tmp/q4.gguf" --prompt "Once upon a time" --max-tokens 8 --temperature 0 --engine cpu
        has "a GGUF file needs nothing beside it" out 'there was'
    fi
    t "convert leaves nothing behind" 1 sh -c "ls -a '$tmp' | grep -e '^[.]*x[.]bin' -e '[.]gguf[.]'"
    # training a built-in network; gradients of a program
    t "train --help" 0 $anneal train --help
    has "train --help" out '^example: anneal train'
    small="--steps 4 --batch 8 --every 2 --test 16 --final-test 16"
    t "train" 0 $anneal train --model mlp --engine cpu $small --log "$tmp/train.jsonl" --save "$tmp/train.safetensors"
    has "train, the table" out '^| 4 | 0\.[0-9]* |$'
    has "train, the last accuracy" out '^accuracy 0\.[0-9]* on 16 test samples$'
    has "train, one dispatch" err '1 dispatch per minibatch'
    t "train, a line for each update" 0 test "$(grep -c '^{"step":[0-9]*,"loss":.*"loss_scale":1' "$tmp/train.jsonl")" -eq 4
    t "train on, from a file, to another end" 3 $anneal train --model mlp --engine cpu $small --steps 6 --resume "$tmp/train.safetensors"
    has "train on, from a file, to another end" err 'train.safetensors: it was trained with "steps 4"; this run has "steps 6"'
    t "train from a file of another network" 3 $anneal train --model glu --engine cpu $small --resume "$tmp/train.safetensors"
    has "train from a file of another network" err 'train.safetensors: it was trained with "model mlp"; this run has "model glu"'
    t "train from a file of another engine" 3 $anneal train --model mlp --engine soft:m1 $small --resume "$tmp/train.safetensors"
    has "train from a file of another engine" err '"engine cpu"; this run has "engine soft:m1"'
    for o in "lr 0.2" "lr-end 0" "schedule linear" "clip 1" "decay 0.1" "seed 2" "warmup 1" "batch 16" "data strokes:3" "accum 2"; do
        t "train from a file, other --$o" 3 $anneal train --model mlp --engine cpu $small --resume "$tmp/train.safetensors" --$o
        has "train from a file, other --$o" err 'train.safetensors: it was trained '
    done
    t "train on to fewer steps" 2 $anneal train --model mlp --engine cpu $small --steps 3 --resume "$tmp/train.safetensors"
    has "train on to fewer steps" err 'train.safetensors is already at step 4 of 3$'
    t "train, all of it done before" 0 $anneal train --model mlp --engine cpu $small --resume "$tmp/train.safetensors"
    has "train, all of it done before" err 'parameters: all 4 updates were done before; digest [0-9a-f]*$'
    has "train, all of it done before" out '^accuracy 0\.[0-9]* on 16 test samples$'
    t "train, all of it done before, as JSON" 0 $anneal train --model mlp --engine cpu $small --resume "$tmp/train.safetensors" --json
    has "train, all of it done before, as JSON" out '"done":4,"loss":null,"accuracy":'
    # a run in two processes is the run in one
    for e in cpu soft:m1; do
        net="--model mlp --engine $e --steps 40 --batch 8 --every 0 --final-test 16"
        t "train 40 on $e" 0 $anneal train $net --json
        whole=$(sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p' "$tmp/out")
        t "train 20 of 40 on $e" 0 $anneal train $net --save "$tmp/half.safetensors" --stop-after 20
        has "train 20 of 40 on $e" err 'stopped after step 20 of 40 and saved in .*half.safetensors; --resume goes on from there$'
        t "train the other 20 on $e" 0 $anneal train $net --resume "$tmp/half.safetensors" --json
        has "train the other 20 on $e" out "^{\"step\":40,.*"
        has "train the other 20 on $e" out "\"digest\":\"${whole:-none}\""
    done
    size=$(wc -c <"$tmp/half.safetensors")
    cp "$tmp/half.safetensors" "$tmp/flipped.safetensors"
    printf '\377' | dd of="$tmp/flipped.safetensors" bs=1 seek=$((size - 1000)) conv=notrunc 2>/dev/null
    t "train on from a damaged file" 3 $anneal train $net --resume "$tmp/flipped.safetensors"
    has "train on from a damaged file" err 'flipped.safetensors: its tensors have the checksum .*: the file is damaged$'
    # what cannot be written is found before the first update
    t "train, saved in a folder" 3 $anneal train --model mlp --engine cpu $small --save "$tmp" --log "$tmp/none.jsonl"
    has "train, saved in a folder" err 'is a folder; a file to save to is wanted$'
    t "train, saved nowhere" 3 $anneal train --model mlp --engine cpu $small --save "$tmp/nowhere/x.safetensors" --log "$tmp/none.jsonl"
    has "train, saved nowhere" err 'nowhere/x.safetensors.*: No such file or directory$'
    empty "train, saved nowhere" out
    t "train, nowhere to log" 3 $anneal train --model mlp --engine cpu $small --save "$tmp/none.safetensors" --log "$tmp/nowhere/log"
    has "train, nowhere to log" err 'nowhere/log: No such file or directory$'
    empty "train, nowhere to log" out
    t "train, nothing left behind" 1 sh -c "ls '$tmp' | grep '^none'"
    # options that would have no effect, or none that can be meant
    while read -r given says; do
        given=$(echo "--$given" | tr '~' ' ')
        t "train $given" 2 $anneal train --engine cpu $small --model mlp $given
        has "train $given" err "$says"
    done <<EOF
lr~0 --lr wants a positive number, got "0"
lr~-1 --lr wants a number
lr-end~1.5 1.5 of the learning rate is left at the end, wanted a fraction from 0 to 1
lr-end~0~--schedule~constant the schedule is constant
lr-end~0.5~--schedule~constant the schedule is constant
batch~5000 network mlp: a batch of 5000, wanted 1 to 4096
seq~5 sequences of 5 for the network mlp, which takes images
math~bf16~--engine~soft:m1 products in bf16 are a matter of cpu; soft:m1
every~0 16 test samples for accuracies between updates
stop-after~2 name a file for it with --save
resume --resume wants a checkpoint
EOF
    t "train --lr-end 0" 0 $anneal train --model mlp --engine cpu --steps 4 --batch 8 --every 0 --final-test 8 --schedule linear --lr 1e-2 --lr-end 0 --json
    has "train --lr-end 0" out '^{"step":4,.*"lr":0.0025,'
    t "train a network that is misspelt" 3 $anneal train --model digit
    has "train a network that is misspelt" err '^anneal: digit: no such file or folder, and no model preset of that name; unknown network "digit"; known are digits, mlp'
    # data that cannot be trained on: the file and the place, and nothing trained
    zeros() { head -c "$1" /dev/zero; }
    images() { printf '\0\0\010\003\0\0\0\004\0\0\0\034\0\0\0\034'; }
    labels() { printf '\0\0\010\001\0\0\0\004'; }
    folder() {
        rm -rf "$tmp/mn"
        mkdir "$tmp/mn"
        for part in train t10k; do
            { images && zeros 3136; } >"$tmp/mn/$part-images-idx3-ubyte"
            { labels && printf '\1\2\3\4'; } >"$tmp/mn/$part-labels-idx1-ubyte"
        done
    }
    bad() {
        t "train, $1" 3 $anneal train --model mlp --engine cpu $small --data "mnist:$tmp/mn" --save "$tmp/none.safetensors" --log "$tmp/none.jsonl"
        has "train, $1" err "$2"
        empty "train, $1" out
        t "train, $1: nothing left behind" 1 sh -c "ls '$tmp' | grep '^none'"
        folder
    }
    folder
    t "train on four images" 0 $anneal train --model mlp --engine cpu $small --data "mnist:$tmp/mn"
    has "train on four images" err 'warning: a minibatch has 8 samples and the data 4: some are in it more than once$'
    has "train on four images" err 'warning: the last accuracy is of 4 test samples, not 16: the data has no more$'
    { labels && printf '\1\2\012\4'; } >"$tmp/mn/train-labels-idx1-ubyte"
    bad "a label out of range" 'train-labels-idx1-ubyte: label 2 (at offset 10) is 10, wanted 0 to 9$'
    { labels && printf '\1\377\3\4'; } >"$tmp/mn/t10k-labels-idx1-ubyte"
    bad "a label out of range in the test part" 't10k-labels-idx1-ubyte: label 1 (at offset 9) is 255, wanted 0 to 9$'
    { printf '\0\0\010\003\0\0\0\004\0\0\0\033\0\0\0\034' && zeros 3024; } >"$tmp/mn/train-images-idx3-ubyte"
    bad "images of the wrong size" 'train-images-idx3-ubyte: images of 27 x 28 pixels at offset 8, wanted 28 x 28$'
    { images && zeros 984; } >"$tmp/mn/train-images-idx3-ubyte"
    bad "images cut short" 'train-images-idx3-ubyte: ends at offset 1000, wanted 3152, inside image 1 of 4$'
    { labels && printf '\1\2'; } >"$tmp/mn/train-labels-idx1-ubyte"
    bad "labels cut short" 'train-labels-idx1-ubyte: ends at offset 10, wanted 12, before element 2 of 4$'
    { printf '\0\0\015\003\0\0\0\004\0\0\0\034\0\0\0\034' && zeros 3248 && printf '\177\300\0\0' && zeros 9292; } >"$tmp/mn/train-images-idx3-ubyte"
    bad "a pixel that is no number" 'train-images-idx3-ubyte: image 1 has NaN at row 1, column 0$'
    : >"$tmp/mn/train-images-idx3-ubyte"
    bad "an empty file" 'train-images-idx3-ubyte: empty file$'
    printf '\0\0\010\003\0\0\0\0\0\0\0\034\0\0\0\034' >"$tmp/mn/t10k-images-idx3-ubyte"
    bad "no images" 't10k-images-idx3-ubyte: no images$'
    if command -v gzip >/dev/null 2>&1; then
        { images && head -c 3136 "$0"; } | gzip >"$tmp/mn/train-images-idx3-ubyte.gz"
        rm "$tmp/mn/train-images-idx3-ubyte"
        t "train on packed images" 0 $anneal train --model mlp --engine cpu $small --data "mnist:$tmp/mn"
        head -c 600 "$tmp/mn/train-images-idx3-ubyte.gz" >"$tmp/cut.gz"
        mv "$tmp/cut.gz" "$tmp/mn/train-images-idx3-ubyte.gz"
        bad "packed images cut short" 'train-images-idx3-ubyte.gz: gzip stream is cut short at offset 600, inside image [0-9] of 4$'
    fi
    : >"$tmp/empty.txt"
    t "train on no text" 3 $anneal train --model charlm --engine cpu --steps 2 --data "text:$tmp/empty.txt" --save "$tmp/none.safetensors" --log "$tmp/none.jsonl"
    has "train on no text" err 'empty.txt: empty text$'
    t "train on no text: nothing left behind" 1 sh -c "ls '$tmp' | grep '^none'"
    t "train, unknown optimizer" 2 $anneal train --model mlp --optimizer lion
    t "train, unknown pipeline" 2 $anneal train --model mlp --pipeline sideways
    has "train, unknown pipeline" err 'sideways'
    t "train, a pipeline of language models" 2 $anneal train --model mlp --pipeline delta
    t "train, no such data" 3 $anneal train --model mlp --data "mnist:$tmp/nowhere"
    has "train, no such data" err 'nowhere'
    t "train, a scale of 0" 2 $anneal train --model mlp --loss-scale 0
    t "train, fp32 state on a chip" 4 $anneal train --model mlp --engine soft:m1 --state fp32
    printf 'graph "g"\nx = input fp16[4, 8]\nw = input fp16[8, 2]\nu = input fp16[2]\ny = matmul(x, w)\nf = floor_div(y, u)\ns = square(y)\nloss = reduce_mean(s) {axes=[0, 1]}\nbad = reduce_sum(f) {axes=[0, 1]}\nreturn loss\n' >"$tmp/g.ann"
    t "grad" 0 $anneal grad "$tmp/g.ann" --loss loss --wrt w
    has "grad" out '^return loss, grad_w='
    # constants of the gradient that are too long for the text go where compile puts weights, and a program that is run reads them there
    printf 'graph "k"\nx = input fp16[1, 64, 1, 4]\nr = reduce_sum(x) {axes=[1], keep_dims=true}\nq = reduce_sum(r)\nreturn q\n' >"$tmp/k.ann"
    t "grad as MIL, to stdout" 0 $anneal grad "$tmp/k.ann" --loss q --emit mil
    has "grad as MIL, to stdout" err 'bytes of weights are not written; --out FILE puts them beside it'
    t "grad as MIL, to a file" 0 $anneal grad "$tmp/k.ann" --loss q --emit mil --out "$tmp/gk/k.mil"
    empty "grad as MIL, to a file" out
    t "grad as MIL, run" 0 $anneal run "$tmp/gk/k.mil" --engine cpu --fill 1 --out "grad_x=$tmp/gk/d.npy"
    t "grad --out and --check" 2 $anneal grad "$tmp/k.ann" --loss q --check --out "$tmp/gk/k.mil"
    t "grad, every input" 3 $anneal grad "$tmp/g.ann" --loss loss
    has "grad, one that does not reach the loss" err 'u does not reach the loss'
    t "grad --check" 0 $anneal grad "$tmp/g.ann" --loss loss --wrt w,x --check --engine soft:m1
    has "grad --check" out 'no slice can pass'
    t "grad, a name twice" 3 $anneal grad "$tmp/g.ann" --loss loss --wrt w,x,w
    has "grad, a name twice" err 'w is named twice'
    t "grad, a loss of several numbers" 3 $anneal grad "$tmp/g.ann" --loss s --wrt w
    has "grad, a loss of several numbers" err 'the loss s is '
    t "grad, an operation without one" 4 $anneal grad "$tmp/g.ann" --loss bad --wrt w
    has "grad, an operation without one" err 'g.ann:6:.*floor_div'
    t "grad without a loss" 2 $anneal grad "$tmp/g.ann"
    printf 'graph "c"\nx = input fp16[1, 2, 6, 40]\nw = input fp16[3, 2, 3, 3]\nc = conv(x, w) {pad_type="custom", pad=[1, 1, 1, 1]}\ns = square(c)\nloss = reduce_mean(s) {axes=[0, 1, 2, 3]}\nreturn loss\n' >"$tmp/c.ann"
    t "grad --check, slices of m1" 0 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check --json
    has "grad --check, slices of m1" out '^{"kind":"hazard","op":"slice'
    t "grad --check, without width offsets" 0 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check --conv-form no-width-offset
    has "grad --check, without width offsets" out 'no slice can pass'
    t "grad, numbers without a check" 2 $anneal grad "$tmp/c.ann" --loss loss --wrt w --in x=x.npy
    t "grad --check, numbers that are not there" 3 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check --in "x=$tmp/nowhere.npy"
    t "grad --check, the convolution" 0 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check
    has "grad --check, the convolution" out 'c[.]ann:4: conv c: slice_by_size .*a slice with a width offset'
    sed 's/fp16/fp32/' "$tmp/c.ann" >"$tmp/c32.ann"
    t "grad --check, fp32" 0 $anneal grad "$tmp/c32.ann" --loss loss --wrt w --check
    has "grad --check, fp32" out 'c32[.]ann:4: conv c: slice_by_size .*a slice with a width offset'
    t "grad --check, a chip without the limit" 0 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check --engine soft:m5
    has "grad --check, a chip without the limit" out 'no slice can pass the range of soft:m5'
    for s in inf nan -8 0 1x 1e999; do
        t "grad, a loss scale of $s" 2 $anneal grad "$tmp/c.ann" --loss loss --wrt w --loss-scale $s
        has "grad, a loss scale of $s" err 'wants a finite number above 0, got "'
    done
    t "grad, an empty name" 2 $anneal grad "$tmp/c.ann" --loss loss --wrt w,
    has "grad, an empty name" err '\-\-wrt has an empty entry: "w,"'
    t "grad --json without a check" 2 $anneal grad "$tmp/c.ann" --loss loss --wrt w --json
    t "grad --check and a form" 2 $anneal grad "$tmp/c.ann" --loss loss --wrt w --check --emit mil
    t "grad --help" 0 $anneal grad --help
    has "grad --help" out 'run and check read (default graph)'
    printf 'graph "n"\nx = input fp16[1, 2, 1, 4]\nw = input fp16[1, 2, 1, 4]\nu = input fp16[3]\nc = conv(x, w) {pad_type="custom", pad=[0, 0, 3, 3]}\ns = square(c)\nloss = reduce_sum(s) {axes=[0, 1, 2, 3]}\nv = relu(u)\nreturn loss, v\n' >"$tmp/n.ann"
    { printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 1, 4), }"; printf '\000\274\000\074\000\274\000\074\000\274\000\176\000\274\000\074'; } >"$tmp/nan.npy"
    t "grad --check, numbers that reach a slice" 0 $anneal grad "$tmp/n.ann" --loss loss --wrt w --check --loss-scale 4096 --in "x=$tmp/x.npy" --in "w=$tmp/x.npy"
    has "grad --check, numbers that reach a slice" out 'n[.]ann:5: conv c: .*; 65536 can reach it; a loss scale up to 254[.]651 is safe'
    t "grad --check, numbers that are missing" 3 $anneal grad "$tmp/n.ann" --loss loss --wrt w --check --in "x=$tmp/x.npy"
    has "grad --check, numbers that are missing" err 'n[.]ann: there is no sample of the input w'
    t "grad --check, a number that is none" 3 $anneal grad "$tmp/n.ann" --loss loss --wrt w --check --in "x=$tmp/nan.npy" --in "w=$tmp/x.npy"
    has "grad --check, a number that is none" err 'nan[.]npy: the sample of x has nan at \[0, 1, 0, 1\], wanted finite numbers'
    printf 'graph "s"\nx = input fp16[4]\ni = const int32[2] {0, 3}\nu = input fp16[2]\ny = scatter(x, i, u) {mode="max"}\nloss = reduce_sum(y) {axes=[0]}\nreturn loss\n' >"$tmp/s.ann"
    t "grad, a mode that is none" 3 $anneal grad "$tmp/s.ann" --loss loss
    has "grad, a mode that is none" err 's[.]ann:5:.*scatter: mode is "max", wanted one of: add update'
    # training a language model
    lt="--model tiny --engine cpu --threads 1 --batch 2 --seq 16 --steps 4"
    t "train tiny" 0 $anneal train $lt --json --save "$tmp/lt" --plot "$tmp/p.svg" --csv "$tmp/p.csv" --profile "$tmp/p.json"
    has "train tiny" out '^{"step":4,"loss":[0-9.]*,"smooth":[0-9.]*,"lr":.*"tok_s":.*"ms":.*"grad_norm":.*"nonfinite":0,"loss_scale":'
    has "train tiny" out '^{"kind":"sample","step":4,"text":"'
    has "train tiny" out '"kind":"result".*"digest":"[0-9a-f]\{16\}"'
    t "train tiny, plot" 0 grep -q '</svg>' "$tmp/p.svg"
    t "train tiny, csv" 0 test "$(wc -l <"$tmp/p.csv")" -eq 5
    t "train tiny, host and waiting in the columns" 0 grep -q '^step,loss,.*,device_ms,.*,host_ms,wait_ms,zero$' "$tmp/p.csv"
    # what cannot be looked at is not "not there": it is not written over, nothing else is taken in its place, and the reason is told
    ln -s loop "$tmp/loop"
    unseen() { # unseen NAME FILE COMMAND…
        name=$1 file=$2
        shift 2
        t "$name" 3 "$@"
        has "$name" err "$file: Too many levels of symbolic links"
    }
    unseen "train, data that cannot be seen" loop $anneal train $lt --data "$tmp/loop"
    unseen "train, data of a list" loop $anneal train $lt --data "$tmp/s.u16,$tmp/loop"
    unseen "train, a model" loop $anneal train --model "$tmp/loop" --steps 1
    unseen "eval, a text" loop $anneal eval --model "$tmp/a.bin" --tokenizer "$tmp/t.json" --data "$tmp/loop"
    unseen "convert, a place to write to" loop $anneal convert --model "$tmp/a.bin" --out "$tmp/loop" --to gguf
    t "convert, the link is as it was" 0 test -L "$tmp/loop"
    mkdir "$tmp/seen" && cp "$tmp/t.json" "$tmp/seen/tokenizer.json" && ln -s loop "$tmp/seen/tokenizer_config.json" && ln -s loop "$tmp/seen/loop" && ln -s loop "$tmp/seen/train.json"
    unseen "tokenize, a configuration" tokenizer_config.json $anneal tokenize --tokenizer "$tmp/seen"
    ln -sf loop "$tmp/seen/tokenizer.json" && cp "$tmp/t.json" "$tmp/seen/vocab.json"
    unseen "tokenize, the first of two" tokenizer.json $anneal tokenize --tokenizer "$tmp/seen"
    unseen "train, a folder that may be a checkpoint" train.json $anneal train $lt --save "$tmp/seen"
    t "convert, a folder to look at" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/part" --to hf
    for f in active.u32 generation_config.json; do
        ln -sf "$tmp/loop" "$tmp/part/$f"
        unseen "eval, $f" $f $anneal eval --model "$tmp/part" --data "$tmp/s.u16"
        rm "$tmp/part/$f"
    done
    mkdir "$tmp/part/weights" && ln -s "$tmp/loop" "$tmp/part/weights/weight.bin" && cp examples/conv.mil "$tmp/part"
    unseen "compile, weights" weight.bin $anneal compile "$tmp/part/conv.mil" --target m1 --emit program --out "$tmp/none.prog"
    for f in images-idx3 labels-idx1; do ln -s "$tmp/loop" "$tmp/part/train-$f-ubyte"; done
    unseen "train, images" train-[a-z]*-idx[13]-ubyte $anneal train --model mlp --data "mnist:$tmp/part"
    # a run that cannot begin leaves nothing
    for w in "--schedule slow" "--data $tmp/nowhere.u16" "--engine soft:m99" "--model $tmp/nowhere"; do
        $anneal train $lt --save "$tmp/none/run" --log "$tmp/none.jsonl" --csv "$tmp/none.csv" $w >"$tmp/out" 2>&1
        t "train tiny $w: refused" 1 test $? -eq 0
        t "train tiny $w: nothing left behind" 1 sh -c "ls '$tmp' | grep '^none'"
    done
    # which tokenizer: a trained model's own, or the one named; checkpoints hold it
    st="--engine cpu --threads 1 --batch 2 --seq 16 --steps 1"
    t "train on, no tokenizer" 2 $anneal train $st --model "$tmp/a.bin"
    has "train on, no tokenizer" err 'a.bin is trained and has no tokenizer of its own: name the one it was trained with by --tokenizer'
    t "train on, no tokenizer, text" 2 $anneal train $st --model "$tmp/a.gguf" --data "$tmp/stories.txt"
    has "train on, no tokenizer, text" err 'a.gguf is trained .*--tokenizer'
    t "train on, ids need none" 0 $anneal train $st --model "$tmp/a.bin" --data "$tmp/s.u16"
    t "convert with a vocabulary" 0 $anneal convert --model "$tmp/a.bin" --tokenizer "$tmp/t.json" --out "$tmp/own.gguf"
    t "train on, its own tokenizer" 0 $anneal train $st --model "$tmp/own.gguf" --save "$tmp/own"
    t "generate from such a checkpoint" 0 $anneal generate --model "$tmp/own" --prompt Once --max-tokens 4 --engine cpu
    t "train with a GGUF file's tokenizer" 0 $anneal train $st --model tiny --tokenizer "$tmp/own.gguf" --data "$tmp/stories.txt" --save "$tmp/own2"
    t "generate from such a checkpoint, too" 0 $anneal generate --model "$tmp/own2" --prompt Once --max-tokens 4 --engine cpu
    in="$tmp/noise" t "its ids" 0 $anneal tokenize --tokenizer "$tmp/own2/step-00000001"
    cp "$tmp/out" "$tmp/ids.txt"
    in="$tmp/noise" t "the ids of the file it came from" 0 $anneal tokenize --tokenizer "$tmp/t.json"
    cp "$tmp/out" "$tmp/got.txt"
    t "are the same" 0 cmp "$tmp/got.txt" "$tmp/ids.txt"
    # prompts are tried before anything is trained
    t "train, a prompt that is too long" 2 $anneal train $lt --prompt "$(head -c 4000 "$tmp/stories.txt")"
    has "train, a prompt that is too long" err '\-\-prompt has [0-9]* tokens; at most 255 and a new one fit a sample$'
    empty "train, a prompt that is too long" out
    # rates: nothing is left at the end, or nothing is learnt
    t "train, no rate at the end" 0 $anneal train $lt --json --sample-every 0 --schedule linear --warmup 0 --lr 0.01 --lr-end 0
    t "train, no rate at the end, logged" 0 test "$(sed -n 's/^{"step":.*"lr":\([0-9.]*\),.*/\1/p' "$tmp/out" | tr '\n' ' ')" = "0.01 0.0075 0.005 0.0025 "
    t "train, a rate of 0" 2 $anneal train $lt --lr 0
    has "train, a rate of 0" err 'lr wants a rate above 0, got "0"'
    # options that would change nothing, and a range
    t "train, norms and nowhere to put them" 2 $anneal train $lt --stats 2
    has "train, norms and nowhere to put them" err '\-\-log'
    t "train, losses on no text" 2 $anneal train $lt --eval-every 2 --validation 0
    has "train, losses on no text" err 'validation 0 keeps none'
    t "train, bf16 on a chip" 2 $anneal train $lt --engine soft:m4 --math bf16
    has "train, bf16 on a chip" err 'soft:m4 .*bf16 products are for cpu'
    t "train, compiles counted on cpu" 2 $anneal train $lt --compile-limit 20
    has "train, compiles counted on cpu" err 'cpu .*limit of compiles is for chips'
    t "train, a rate at the end of a constant schedule" 2 $anneal train $lt --schedule constant --lr-end 0.5
    has "train, a rate at the end of a constant schedule" err '0.5 of the learning rate is to be left at the end, but the schedule is constant'
    for p in prompt sample-tokens; do
        t "train, --$p and no samples" 2 $anneal train $lt --sample-every 0 --$p 3
        has "train, --$p and no samples" err "$p is about samples, and --sample-every 0 makes none"
    done
    for p in prompt sample-tokens sample-every; do
        t "train, --$p without a tokenizer" 2 $anneal train $lt --data "$tmp/once.u16" --$p 3
        has "train, --$p without a tokenizer" err "$p is about samples, which are text, and there is no tokenizer"
    done
    t "train, halves on the host" 2 $anneal train $lt --engine soft:m4 --pipeline dynamic --state halves
    has "train, halves on the host" err 'pipeline dynamic keeps .* in fp32: a state of halves is for resident'
    head -c 34 "$tmp/once.u16" >"$tmp/window.u16"
    t "train, losses on what cannot be kept back" 2 $anneal train $lt --data "$tmp/window.u16" --eval-every 1
    has "train, losses on what cannot be kept back" err 'window.u16 is kept back (1 window of 16 ids'
    for p in resident delta; do
        t "train, a scale of 65536, $p" 2 $anneal train $lt --pipeline $p --loss-scale 65536
        has "train, a scale of 65536, $p" err 'a loss scale of 65536; 0.001 to 65504'
    done
    t "train, the scale on a chip" 0 $anneal train $lt --engine soft:m4 --steps 1 --sample-every 0 --json
    has "train, the scale on a chip" out '"loss_scale":16,'
    t "train, dynamic from there" 0 $anneal train $lt --engine soft:m4 --steps 1 --sample-every 0 --json --loss-scale dynamic
    has "train, dynamic from there" out '"loss_scale":16,'
    # files of the end are tried at the start
    for p in plot profile log csv; do
        t "train, $p that cannot be written" 3 $anneal train $lt --$p "$tmp/nowhere/f"
        empty "train, $p that cannot be written" out
        t "train, a folder as $p" 3 $anneal train $lt --$p "$tmp/texts"
        has "train, a folder as $p" err 'texts.* a [df]'
        empty "train, a folder as $p" out
        t "train, $p to standard output" 2 $anneal train $lt --$p -
        has "train, $p to standard output" err "$p wants a name, got \"-\""
        t "train, $p without a name" 2 $anneal train $lt --$p ''
        has "train, $p without a name" err "$p wants a name, got \"\""
    done
    # what is written may lie in the folder that --save makes; of a run that does not begin nothing stays
    t "train, all it writes in a new folder" 0 $anneal train $lt --save "$tmp/new/run" --log "$tmp/new/run/l.jsonl" --csv "$tmp/new/run/l.csv" --plot "$tmp/new/run/p.svg" --profile "$tmp/new/run/t.json"
    for p in l.jsonl l.csv p.svg t.json latest; do t "train, $p in a new folder" 0 test -s "$tmp/new/run/$p"; done
    t "train, a log in a new folder, no data" 3 $anneal train $lt --data "$tmp/nowhere.txt" --save "$tmp/new2/run" --log "$tmp/new2/run/l.jsonl"
    t "train, a log in a folder nobody makes" 3 $anneal train $lt --save "$tmp/new2/run" --log "$tmp/new2/other/l.jsonl"
    t "train, gone on from nowhere, a log in it" 3 $anneal train $lt --resume "$tmp/new2" --log "$tmp/new2/l.jsonl"
    t "train, no folder stays" 1 test -e "$tmp/new2"
    mkdir "$tmp/piped" && mkfifo "$tmp/piped/losses.jsonl"
    cat "$tmp/piped/losses.jsonl" >/dev/null & # who would wait for a reader has one
    t "train, a pipe among its files" 3 $anneal train $lt --save "$tmp/piped"
    has "train, a pipe among its files" err 'piped/losses.jsonl is a pipe, not a regular file'
    kill $! 2>/dev/null
    t "train, checkpoints to standard output" 2 $anneal train $lt --save -
    t "train, checkpoints without a folder" 2 $anneal train $lt --save ''
    t "train a network, a log to standard output" 2 $anneal train --model mlp --engine cpu $small --log -
    t "train by delta, beside each other" 0 $anneal train $lt --engine soft:m4 --pipeline delta --sample-every 0 --validation 0 --profile "$tmp/ld.json"
    has "train by delta, beside each other" err 'device and host at once .* ms' # that they are is test_pipe_host's to show: how long depends on who else runs
    has "train by delta, the update" err 'host  *update '
    has "train by delta, the loss" err 'main  *loss '
    # a run that starts itself anew is one trace and one curve
    t "train by restarts" 0 $anneal train --model tiny --engine soft:m4 --threads 1 --batch 1 --seq 16 --steps 3 --sample-every 0 --validation 0 --pipeline restart --compile-limit 20 \
        --save "$tmp/lr" --plot "$tmp/lr.svg" --profile "$tmp/lr.json"
    has "train by restarts" err 'going on in a new one after step 1'
    has "train by restarts, drawn" out '^ *1  *3$'
    t "train by restarts, processes in the trace" 0 test "$(grep -c '"process_name"' "$tmp/lr.json")" -ge 2
    t "train by restarts, heads in the trace" 0 test "$(grep -c '"name":"head"' "$tmp/lr.json")" -eq 3
    t "train by restarts, the whole curve" 0 test "$(sed -n 's/<polyline points="\([^"]*\)".*/\1/p' "$tmp/lr.svg" | head -1 | wc -w)" -eq 3
    t "train by restarts, two updates of four" 0 $anneal train --model tiny --engine soft:m4 --threads 1 --batch 1 --seq 16 --steps 4 --sample-every 0 --validation 0 --pipeline restart --compile-limit 20 \
        --save "$tmp/lr2" --stop-after 2
    has "train by restarts, two updates of four" err 'stopped after step 2 and saved'
    t "train tiny again" 2 $anneal train $lt --save "$tmp/lt"
    has "train tiny again" err 'has checkpoints already: go on from them with --resume'
    t "generate from the newest checkpoint of a folder" 0 $anneal generate --model "$tmp/lt" --max-tokens 4 --no-cache --engine cpu
    t "train tiny, other settings" 3 $anneal train $lt --save "$tmp/lt" --resume --lr 0.5
    has "train tiny, other settings" err 'trained with "lr 0.003 to .*this run has "lr 0.5 to'
    t "train tiny, gone on from nowhere" 3 $anneal train $lt --resume "$tmp/nowhere"
    has "train tiny, gone on from nowhere" err 'nowhere: there is no checkpoint in it'
    t "train tiny, saved in a file" 3 $anneal train $lt --save "$tmp/p.svg"
    has "train tiny, saved in a file" err 'p.svg.*Not a directory'
    t "train on text that is not there" 3 $anneal train $lt --data "$tmp/nowhere.txt"
    has "train on text that is not there" err 'nowhere.txt: no such file'
    t "train tiny, another share kept back" 3 $anneal train $lt --save "$tmp/lt" --resume --validation 0.3 --json
    has "train tiny, another share kept back" err 'a validation share of 0.02; this run has 0.3'
    empty "train tiny, another share kept back" out
    t "train tiny, no result without a run" 1 grep -q digest "$tmp/err"
    tt="--model tiny --tokenizer $tmp/t.json --engine cpu --steps 2 --batch 2 --seq 16 --sample-every 0 --json"
    t "train on text without separators" 0 $anneal train $tt --data "$tmp/blank.txt"
    has "train on text without separators" err 'blank.txt has no <|endoftext|>.*--documents'
    t "train on text, blank lines" 0 $anneal train $tt --data "$tmp/blank.txt" --documents blank
    t "train on text, nothing to say" 1 grep -q documents "$tmp/err"
    t "train on text, no such rule" 2 $anneal train $tt --data "$tmp/blank.txt" --documents pages
    t "train on ids, documents" 2 $anneal train $tt --data "$tmp/s.u16" --documents blank
    t "train on two files" 0 $anneal train $tt --data "$tmp/once.u16" --data "$tmp/once.u16"
    sed -n 's/.*"digest"/digest/p' "$tmp/out" >"$tmp/d1"
    t "train on a list" 0 $anneal train $tt --data "$tmp/once.u16,$tmp/once.u16"
    sed -n 's/.*"digest"/digest/p' "$tmp/out" >"$tmp/d2"
    mkdir "$tmp/tokens" && cp "$tmp/once.u16" "$tmp/tokens/b.u16" && cp "$tmp/once.u16" "$tmp/tokens/a.u16"
    t "train on a folder" 0 $anneal train $tt --data "$tmp/tokens"
    sed -n 's/.*"digest"/digest/p' "$tmp/out" >"$tmp/d3"
    t "train on one" 0 $anneal train $tt --data "$tmp/s2.u16"
    sed -n 's/.*"digest"/digest/p' "$tmp/out" >"$tmp/d4"
    t "shards are one corpus" 0 test "$(sort -u "$tmp/d1" "$tmp/d2" "$tmp/d3" "$tmp/d4" | wc -l)" -eq 1
    mkdir "$tmp/bare"
    for x in bare empty /dev/null noise.bin; do
        case $x in /*) ;; *) x=$tmp/$x ;; esac
        [ -e "$x" ] || cp "$tmp/noise" "$x"
        t "train on $x" 3 $anneal train --model tiny --data "$x" --engine cpu
        t "train on $x, no text" 1 grep -q 'is text' "$tmp/err"
    done
    t "train tiny, all of it done before" 0 $anneal train $lt --save "$tmp/lt" --resume
    has "train tiny, all of it done before" err 'step 4 of 4, smoothed loss [0-9.]*,'
    t "train a language model, option of networks" 2 $anneal train $lt --final-test 3
    t "train a network, option of language models" 2 $anneal train --model mlp --prompt x
    t "train a network, another option of language models" 2 $anneal train --model mlp --compact-vocab
    lo="$lt --sample-every 0 --residual-scale depth --softcap 30 --zero-init --compact-vocab --recompute --stats 2 --log $tmp/lo.json"
    t "train, no more updates than there are" 0 $anneal train $lt --sample-every 0 --json --stop-after 4
    has "train, no more updates than there are" out '"validation":[0-9.]*,.*"stopped":false'
    t "train with options" 0 $anneal train $lo --save "$tmp/lo" --stop-after 2
    t "train with options, on" 0 $anneal train $lo --save "$tmp/lo" --resume --plot "$tmp/lo.svg"
    t "train with options, norms" 0 test "$(grep -c '"kind":"statistics".*"weights":{"embed":[0-9.]*.*"gradients":{"embed":' "$tmp/lo.json")" -eq 2
    t "train with options, the whole curve" 0 test "$(sed -n 's/<polyline points="\([^"]*\)".*/\1/p' "$tmp/lo.svg" | head -1 | wc -w)" -eq 4
    t "a compact checkpoint" 0 test -s "$tmp/lo/$(cat "$tmp/lo/latest")/active.u32"
    t "a capped checkpoint" 0 grep -q '"final_logit_softcapping": 30' "$tmp/lo/$(cat "$tmp/lo/latest")/config.json"
    t "generate from a compact checkpoint" 0 $anneal generate --model "$tmp/lo/$(cat "$tmp/lo/latest")" --no-cache --engine cpu --max-tokens 4 --prompt "Once"
    t "convert a capped checkpoint to llama2.c" 3 $anneal convert --model "$tmp/lo" --to llama2c --out "$tmp/lo.bin"
    has "convert a capped checkpoint to llama2.c" err 'soft cap'
    t "train, a cap of 0" 2 $anneal train $lt --softcap 0
    t "train, a residual scale of 7" 2 $anneal train $lt --residual-scale 7
    t "train, zeros in a trained model" 2 $anneal train --model "$tmp/lo" --zero-init --steps 1 --engine cpu
    t "grad --model without tokens" 2 $anneal grad --model tiny --out "$tmp/g.safetensors"

    t "full disk" 3 sh -c "$anneal rules > /dev/full"
}
echo "$pass $fail"
