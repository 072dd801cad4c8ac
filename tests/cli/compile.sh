# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# compile, opt, build, cost: programs, and weights beside them. Read by cli.sh.
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
