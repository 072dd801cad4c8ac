# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# run: numbers in and out, engines and their limits, program files. Read by cli.sh.
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
printf 'program(1.3)\n[buildInfo = dict<string, string>({{"coremlc-version", "1"}})]\n{\nfunc main<ios18>(tensor<fp16, [8]> x, tensor<fp16, [1]> a) {\ntensor<int32, [1]> b = cast(x = a, dtype = string("int32"))[name = string("b")];\ntensor<fp16, [4]> y = slice_by_size(x = x, begin = b, size = tensor<int32, [1]>([4]))[name = string("y")];\n} -> (y);\n}\n' >"$tmp/at.mil"
t "run, a slice at a computed place" 4 $anneal run "$tmp/at.mil" --engine soft:m2 --fill 1 --out y="$tmp/y.npy"
has "run, a slice at a computed place" err 'at.mil:6:[0-9]*: .*slice_by_size y: .*computed at run time: no device here does that$'
t "check, a slice at a computed place" 0 $anneal check "$tmp/at.mil" --target m2
has "check, a slice at a computed place" out 'the software engine does not run it'
sed 's/\[[^]]*\]> x/[?]> x/; s/\[[^]]*\]> y/[?]> y/' "$tmp/relu.mil" >"$tmp/open.mil"
t "run, filled without a size" 4 $anneal run "$tmp/open.mil" --engine cpu --fill 1 --out y="$tmp/y.npy"
has "run, filled without a size" err 'open.mil:[0-9]*:[0-9]*: input x: a tensor fp16 of \[?\] is too large, or has an extent that is not known$'
sed 's/\[[^]]*\]> x/[1, 1, 1, 20000000000]> x/; s/\[[^]]*\]> y/[1, 1, 1, 20000000000]> y/' "$tmp/relu.mil" >"$tmp/wide.mil"
t "run, judged before it is filled" 4 $anneal run "$tmp/wide.mil" --engine soft:m1 --fill 1 --out y="$tmp/y.npy"
has "run, judged before it is filled" err 'wide.mil:.*max dimension 16384'
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
t "run, no file for a result" 0 $anneal run "$tmp/relu.mil" --engine cpu --in x="$tmp/x.npy"
has "run, no file for a result" out '^y: fp16 \[1, 2, 1, 4\], 0 to 1, mean 0.5: 0 1 0 1 0 1 0 1$'
t "run, results as objects" 0 $anneal run "$tmp/relu.mil" --engine cpu --in x="$tmp/x.npy" --json
has "run, results as objects" out '^{"result":"y","type":"fp16","shape":\[1, 2, 1, 4\],"least":0,"mean":0.5,"largest":1,"nan":0,"inf":0,"first":\[0,1,0,1,0,1,0,1\]}$'
t "run, all results" 0 $anneal run examples/reduce.mil --engine soft:m1 --fill 1
has "run, all results, one" out '^most: fp16 '
has "run, all results, the other" out '^sum: fp16 '
sed 's/relu(x = x)/log(x = x, epsilon = fp16(0))/' "$tmp/relu.mil" >"$tmp/log.mil"
t "run, results that are no numbers" 0 $anneal run "$tmp/log.mil" --engine cpu --in x="$tmp/x.npy"
has "run, results that are no numbers" out '^y: fp16 \[1, 2, 1, 4\], 0 to 0, mean 0, 4 NaN: NaN 0 NaN 0 '
t "run, no numbers as objects" 0 $anneal run "$tmp/log.mil" --engine cpu --in x="$tmp/x.npy" --json
has "run, no numbers as objects" out '"nan":4,"inf":0,"first":\[null,0,'
t "run, files and objects" 2 $anneal run "$tmp/relu.mil" --engine cpu --fill 1 --out y="$tmp/y.npy" --json
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
