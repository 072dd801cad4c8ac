# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# facts, probe, bench, hwx. Read by cli.sh.
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
