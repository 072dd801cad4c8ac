#!/bin/sh
# Every allocation of some commands refused in turn, every call about files failing, and a run that saves ended at every so many of them: what a
# command cannot do it says, exit 70 or 3, and leaves nothing behind; a run goes on from what was saved.   fault.sh ANNEAL [EACH]
# EACH: of the calls of a training run every so many (default 29; 1: all, some minutes). Where fault.c cannot be loaded before the command
# (another C library, an emulator, sanitizers) there is nothing to do.
anneal=${1# } each=${2:-29}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() {
    echo "fault.sh: $*"
    exit 1
}
${CC:-cc} -shared -fPIC -O1 -o "$tmp/fault.so" "$(dirname "$0")/fault.c" -ldl 2>/dev/null || exit 0
case $anneal in *' '*) exit 0 ;; esac
anneal=$(cd "$(dirname "$anneal")" && pwd)/anneal
dir=$(cd "$(dirname "$0")/.." && pwd)
export ANNEAL_CACHE="$tmp/cache"
with() { # with [NAME=VALUE…] COMMAND…: $tmp/out, $tmp/err and $code are of it, $tmp/count what fault.c says
    env LD_PRELOAD="$tmp/fault.so" FAULT_COUNT="$tmp/count" "$@" >"$tmp/out" 2>"$tmp/err" <"$tmp/in"
    code=$?
}
: >"$tmp/in"
with "$anneal" ops
[ $code -eq 0 ] && [ -s "$tmp/count" ] || exit 0

cat >"$tmp/config.json" <<END
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16,"intermediate_size":32,"num_hidden_layers":1,"num_attention_heads":2,
"num_key_value_heads":1,"vocab_size":300,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,"hidden_act":"silu"}
END
"$anneal" data stories --count 4 --seed 1 >"$tmp/text" && "$anneal" tokenizer train --data "$tmp/text" --vocab 280 --out "$tmp/t.json" 2>"$tmp/err" &&
    "$anneal" data prepare --tokenizer "$tmp/t.json" --data "$tmp/text" --out "$tmp/s.u16" 2>"$tmp/err" &&
    "$anneal" convert --model "$tmp/config.json" --out "$tmp/model" --tokenizer "$tmp/t.json" 2>"$tmp/err" || bad "no data: $(cat "$tmp/err")"

# sweep NAME EACH ARGUMENT…: what it writes goes to $tmp/at
# shellcheck disable=SC2015
sweep() {
    name=$1 step=$2
    shift 2
    for kind in MEM FILE; do
        rm -rf "$tmp/at" "$tmp/cache" && mkdir "$tmp/at"
        with "$anneal" "$@"
        [ $code -eq 0 ] || bad "$name: exit $code: $(cat "$tmp/err")"
        cp "$tmp/out" "$tmp/want" && rm -rf "$tmp/whole" && mv "$tmp/at" "$tmp/whole"
        read -r mems files blocks fds <"$tmp/count"
        n=1 end=$mems
        [ $kind = MEM ] || end=$files
        while [ $n -le "$end" ]; do
            rm -rf "$tmp/at" "$tmp/cache" && mkdir "$tmp/at"
            with FAULT_$kind=$n "$anneal" "$@"
            case $code in
            0) { cmp -s "$tmp/out" "$tmp/want" && diff -r "$tmp/at" "$tmp/whole" >"$tmp/diff" 2>&1; } || { [ $kind = FILE ] && grep -q 'No space left' "$tmp/err"; } || bad "$name, $kind $n: exit 0, and another result: $(cat "$tmp/diff" "$tmp/err")" ;;
            70) [ $kind = MEM ] && grep -q 'out of memory' "$tmp/err" || bad "$name, $kind $n: exit 70: $(cat "$tmp/err")" ;;
            3) [ $kind = FILE ] && grep -q 'No space left' "$tmp/err" || bad "$name, $kind $n: exit 3: $(cat "$tmp/err")" ;;
            *) bad "$name, $kind $n: exit $code: $(cat "$tmp/err")" ;;
            esac
            read -r mems files left open_now <"$tmp/count"
            [ "$left" -le "$blocks" ] && [ "$open_now" -le "$fds" ] || bad "$name, $kind $n: $((left - blocks)) blocks and $((open_now - fds)) descriptors more are left than after a good run"
            ! find "$tmp/at" -name '*.tmp*' | grep -q . || bad "$name, $kind $n: left behind: $(find "$tmp/at" -name '*.tmp*')"
            n=$((n + step))
        done
    done
}
sweep run 1 run "$dir/examples/conv.mil" --engine soft:m1 --fill 1 --threads 1 --out "y=$tmp/at/y.npy"
sweep facts 1 facts R2 --json
sweep refusals 1 facts T2 --json
sweep check 1 check "$dir/examples/attention.mil" --target m1
sweep prepare 7 data prepare --tokenizer "$tmp/t.json" --data "$tmp/text" --out "$tmp/at/s.u16"
sweep convert 9 convert --model "$tmp/model" --threads 1 --out "$tmp/at/m.gguf"
sweep folder 11 convert --model "$tmp/model" --threads 1 --shard-size 10kB --out "$tmp/at/hf"
sweep generate 23 generate --model "$tmp/model" --prompt Once --max-tokens 2 --temperature 0 --threads 1 --engine soft:m4

# a model over another: whatever fails, the folder holds the old files or the new ones; ended at any call it does, or is no model until the next time
"$anneal" convert --model tiny --to hf --out "$tmp/other" 2>"$tmp/err" && "$anneal" convert --model "$tmp/model" --threads 1 --out "$tmp/new" 2>"$tmp/err" || bad "no models: $(cat "$tmp/err")"
over() {
    rm -rf "$tmp/at" && mkdir "$tmp/at" && cp -r "$tmp/other" "$tmp/at/hf"
    with "$@" "$anneal" convert --model "$tmp/model" --threads 1 --out "$tmp/at/hf"
}
is() { diff -r -x '.tmp-*' -x '.new.tmp.*' "$tmp/at/hf" "$1" >/dev/null; }
over FAULT_KILL=0
[ $code -eq 0 ] && diff -r "$tmp/at/hf" "$tmp/new" >"$tmp/diff" || bad "convert over another: exit $code: $(cat "$tmp/err" "$tmp/diff")"
read -r mems files blocks fds <"$tmp/count"
n=1
while [ $n -le "$files" ]; do
    over FAULT_FILE=$n
    case $code in
    0) is "$tmp/new" || bad "convert over another, call $n failed: exit 0, and the folder is: $(ls -A "$tmp/at/hf")" ;;
    3) is "$tmp/other" || bad "convert over another, call $n failed: the folder is not as it was: $(ls -A "$tmp/at/hf")" ;;
    *) bad "convert over another, call $n failed: exit $code: $(cat "$tmp/err")" ;;
    esac
    over FAULT_KILL=$n
    is "$tmp/new" || is "$tmp/other" || [ ! -e "$tmp/at/hf/config.json" ] || bad "convert over another, ended at call $n: some of each: $(ls -A "$tmp/at/hf")"
    with "$anneal" convert --model "$tmp/model" --threads 1 --out "$tmp/at/hf"
    [ $code -eq 0 ] && diff -r "$tmp/at/hf" "$tmp/new" >"$tmp/diff" || bad "convert over another, ended at call $n, and again: exit $code: $(cat "$tmp/err" "$tmp/diff")"
    n=$((n + 1))
done

# a run that saves after every update, ended within saves and rotations; the next process ends as if nothing had been
digest() { sed -n 's/.*"kind":"result".*"digest":"\([0-9a-f]*\)".*/\1/p' "$1"; }
train() { with "$@" "$anneal" train --model "$tmp/config.json" --data "$tmp/s.u16" --engine cpu --threads 1 --batch 1 --seq 8 --steps 4 --save "$tmp/run" --save-every 1 --sample-every 0 --validation 0 --json --resume; }
train FAULT_KILL=0
[ $code -eq 0 ] || bad "train: exit $code: $(cat "$tmp/err")"
want=$(digest "$tmp/out") n=$((each / 2 + 1))
read -r mems files blocks fds <"$tmp/count"
while [ $n -le "$files" ]; do
    rm -rf "$tmp/run"
    train FAULT_KILL=$n
    [ $code -eq 137 ] || bad "train: exit $code at call $n of $files: $(cat "$tmp/err")"
    done=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' "$tmp/out" | tail -1)
    for at in "$tmp/run"/step-*; do
        [ ! -e "$at" ] || [ -e "$at/train.json" ] || bad "train: ended at call $n: a checkpoint in pieces: $(ls "$at")"
    done
    [ ! -e "$tmp/run/latest" ] || [ -e "$tmp/run/$(cat "$tmp/run/latest")/train.json" ] || bad "train: ended at call $n: latest names what is not there"
    train FAULT_KILL=0
    [ $code -eq 0 ] && [ "$(digest "$tmp/out")" = "$want" ] || bad "train: ended at call $n, the next process ends with $code and $(digest "$tmp/out"), not $want: $(cat "$tmp/err")"
    first=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' "$tmp/out" | head -1)
    [ "${first:-5}" -ge "${done:-0}" ] || bad "train: ended at call $n after step $done, the next process begins at $first"
    n=$((n + each))
done

# a crash of the machine leaves what was synced: every file of a checkpoint before it has its name, the folder before it has its own, that name before "latest"
# says it, and "latest" before an older one goes; a new folder for the run is synced into the one it lies in. Nothing is taken out of a checkpoint that has its name
with FAULT_TRACE="$tmp/trace" "$anneal" train --model "$tmp/config.json" --data "$tmp/s.u16" --engine cpu --threads 1 --batch 1 --seq 8 --steps 4 --save "$tmp/deep/er" --save-every 1 \
    --keep 1 --sample-every 0 --validation 0 --tokenizer "$tmp/t.json"
[ $code -eq 0 ] || bad "train, traced: exit $code: $(cat "$tmp/err")"
awk -v run="$tmp/deep/er" -v deep="$tmp/deep" -v tmp="$tmp" '
    function want(ok, what) { if (!ok) { print "line " NR ": " $0 ": " what; bad = 1 } }
    function holds(name) { sub("/[^/]*$", "", name); return name }
    { n++ }
    $1 == "fsync" { at[$2] = n }
    $1 == "mkdir" && $2 == deep && !made { made = n }
    $1 == "unlink" { want($2 !~ "/step-[0-9]+/", "a file of a checkpoint goes") }
    $1 == "rename" {
        if ($2 ~ "[.]tmp[.][0-9]+$") { want(at[$2], "its bytes are not synced"); last[holds($3)] = n }
        if ($3 ~ "/step-[0-9]+$") { want(at[$2] > last[$2], "the folder is not synced"); named = n; steps++ }
        if ($3 == run "/latest") { want(at[run] > named && at[deep] > made && at[tmp] > made, "what it names may not be there"); said = n }
        if ($2 ~ "/step-[0-9]+$") { want(at[run] > said && said > named, "the newer one may not be there"); gone++ }
    }
    END { if (steps != 4 || gone != 3) print steps + 0 " saved, " gone + 0 " gone"; exit bad || steps != 4 || gone != 3 }' "$tmp/trace" >"$tmp/diff" || bad "order of a save: $(cat "$tmp/diff")"

# a loss that the run's folder does not take is told of, and the run goes on; the curve lacks it
rm -rf "$tmp/run"
train FAULT_LINE=2
[ $code -eq 0 ] && [ "$(digest "$tmp/out")" = "$want" ] && [ "$(grep -c 'losses.jsonl: No space left on device: .* update 2,' "$tmp/err")" -eq 1 ] &&
    [ "$(cut -d, -f1 "$tmp/run/losses.jsonl" | tr '\n' ' ')" = '{"step":1 {"step":3 {"step":4 ' ] || bad "a loss not taken: exit $code: $(cat "$tmp/err" "$tmp/run/losses.jsonl")"

# a run that executes itself, asked to end at that very moment: the process that goes on was asked. It saved, so nothing is lost either way
with FAULT_TERM=1 "$anneal" train --model "$tmp/config.json" --data "$tmp/s.u16" --engine soft:m4 --pipeline restart --compile-limit 10 --threads 1 --batch 1 --seq 8 \
    --steps 6 --save "$tmp/anew" --sample-every 0 --validation 0 --json
[ $code -eq 0 ] && grep -q 'stopped after step 2 and saved' "$tmp/err" && [ "$(cat "$tmp/anew/latest")" = step-00000002 ] ||
    bad "SIGTERM on the way into a new process: exit $code: $(cat "$tmp/err")"
