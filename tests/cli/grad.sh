# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Gradients of a program. Read by cli.sh.
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
t "grad, --wrt again" 0 $anneal grad "$tmp/g.ann" --loss loss --wrt w --wrt x
has "grad, --wrt again" out '^return loss, grad_w=.*, grad_x='
t "grad, --wrt again, a name twice" 3 $anneal grad "$tmp/g.ann" --loss loss --wrt w --wrt x,w
t "grad, two losses" 2 $anneal grad "$tmp/g.ann" --loss loss --loss bad --wrt w
has "grad, two losses" err 'one loss, got --loss 2 times'
empty "grad, two losses" out
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
has "grad --check, numbers that reach a slice" out 'n[.]ann:5: conv c: .*; 65536 can reach it; up to a loss scale of 254[.]651 nothing here passes that'
t "grad --check, numbers that are missing" 3 $anneal grad "$tmp/n.ann" --loss loss --wrt w --check --in "x=$tmp/x.npy"
has "grad --check, numbers that are missing" err 'n[.]ann: there is no sample of the input w'
t "grad --check, a number that is none" 3 $anneal grad "$tmp/n.ann" --loss loss --wrt w --check --in "x=$tmp/nan.npy" --in "w=$tmp/x.npy"
has "grad --check, a number that is none" err 'nan[.]npy: the sample of x has nan at \[0, 1, 0, 1\], wanted finite numbers'
printf 'graph "s"\nx = input fp16[4]\ni = const int32[2] {0, 3}\nu = input fp16[2]\ny = scatter(x, i, u) {mode="max"}\nloss = reduce_sum(y) {axes=[0]}\nreturn loss\n' >"$tmp/s.ann"
t "grad, a mode that is none" 3 $anneal grad "$tmp/s.ann" --loss loss
has "grad, a mode that is none" err 's[.]ann:5:.*scatter: mode is "max", wanted one of: add update'
