#!/bin/sh
# The README's table of speed. In: benchmark pages (tools/speed.sh), one for each machine.  Out: a column for each page; what
# its cases have, from least to most, in a row for each line of `rows`.
#
# A row: words | benchmarks | cases that count | cases that do not | what of them: a column of the page (bound, rate,
# median), or in slashes what stands in a case's name, with words to show behind it
[ $# -gt 0 ] || { echo "usage: tools/speed_table.sh PAGE..." >&2; exit 2; }
rows='products by fp32 weights, of the rate of the kernel in L1|gemm|^f32 [Wd][^,]*$||bound
products by fp16 weights|gemm|^f16 [Wd]||bound
products of bf16|gemm|^bf16 [Wd]||bound
products of int8|gemm|^i8 [Wd]||bound
OpenBLAS 0.3.21 at the fp32 shapes, of our rate|gemm|openblas||bound
BLIS 0.9, likewise|gemm|, blis||bound
a layer of Stories110M forward, of the rate of its products alone|block|.||bound
causal attention, 12 heads, of the rate of the kernel in L1|attention|.||bound
elementwise chains, of copy bandwidth|eltwise|.|arithmetic|bound
norms and softmax along rows, likewise|norm softmax|rows|arithmetic|bound
norms along columns, likewise|norm|channels|arithmetic,movement|bound
softmax along columns, likewise|softmax|channels|arithmetic,movement|bound
Adam, AdamW, momentum, likewise|adam|.||bound
new weights for a layer, from bytes that stay, likewise|dispatch|bytes that stay||bound
a 768x256x768 product on `soft:m4`|soft|m4||/[0-9.]+ x cpu/times that on `cpu`
the same on `soft:m1`|soft|m1||/[0-9.]+ x cpu/times
a tiny program, one dispatch|dispatch|convolution||median
an MLP step of 64 images, SGD, fp32|train_mlp|^sgd, fp32.*steps||/[0-9]+ steps/steps/s
the same, of the kernel in L1 by the usual count of 90 MFLOP|train_mlp|^sgd, fp32.*steps||/[0-9.]+ % by/%
the step with bf16 products|train_mlp|^sgd, bf16.*steps||/[0-9]+ steps/steps/s
the same, of the kernel in L1|train_mlp|^sgd, bf16.*steps||/[0-9.]+ % by/%
a step of Stories110M, bf16 products, 256 tokens|train|^bf16, B 1||median
bf16, 1024 tokens|train|^bf16, B 4||median
fp32, 256 tokens|train|^fp32, B 1||median
fp32, 1024 tokens|train|^fp32, B 4||median
these four, times their products packed ahead and the update|train|.||/[0-9.]+ of the floor/times
times the products at the rate of the kernel in L1, and the update|train|.||/[0-9.]+ by the kernel/times
decoding Stories110M in fp16|decode|^stories110m fp16||rate
in int8|decode|^stories110m int8||rate
in int4|decode|^stories110m int4||rate
its prompt of 256 tokens, in fp16|prefill|^stories110m fp16||rate
in bf16|prefill|^stories110m bf16||rate'

# What of a page a row asks for.
cell() { # PAGE BENCHMARKS CASES LEFT_OUT WHAT
    awk -v names=" $2 " -v take="$3" -v leave="$4" -v what="$5" -F ' *[|] *' '
        BEGIN {
            split("least median rate bound", column, " ")
            for (i in column) if (column[i] == what) at = i + 3
            n_leave = split(leave, left, ",")
            if (!at) { split(what, part, "/"); find = part[2]; unit = substr(what, length(find) + 3) }
        }
        function number(s) { return s + 0 }
        /^## / { inside = index(names, " " substr($0, 4) " ") > 0; next }
        !inside || !/^[|] / || $2 == "case" { next }
        {
            if ($2 !~ take) next
            for (i = 1; i <= n_leave; i++) if (index($2, left[i])) next
            cell = at ? $at : match($2, find) ? substr($2, RSTART, RLENGTH) : ""
            if (cell == "") next
            if (at) { unit = cell; sub(/^[0-9.]+ */, "", unit) }
            x = number(cell)
            if (!n++ || x < least) least = x
            if (n == 1 || x > most) most = x
        }
        END {
            if (!n) print "–"
            else if (least == most) print least " " unit
            else print least " to " most " " unit
        }' "$1"
}

printf '| what'
for page; do printf ' | [%s](%s)' "$(sed -n '1s/^# Speed: //p' "$page")" "$page"; done
printf ' | `anneal bench` |\n|---'
for page; do printf '|---'; done
printf '|---|\n'
printf '%s\n' "$rows" | while IFS='|' read -r words names take leave what; do
    printf '| %s' "$words"
    for page; do printf ' | %s' "$(cell "$page" "$names" "$take" "$leave" "$what")"; done
    printf ' | `%s` |\n' "$names"
done
