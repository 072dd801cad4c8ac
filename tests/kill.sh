#!/bin/sh
# A run that is killed again and again ends like one that was left alone; single updates in processes of their own do not go astray; a full
# disk costs checkpoints, not the run; whatever else ends a run, what it learned is saved first.   kill.sh ANNEAL [KILLS]
anneal=$1 kills=${2:-50}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() {
    echo "kill.sh: $*"
    exit 1
}
cat >"$tmp/config.json" <<EOF
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16,"intermediate_size":32,"num_hidden_layers":2,"num_attention_heads":2,
"num_key_value_heads":1,"vocab_size":300,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,"hidden_act":"silu"}
EOF
# shellcheck disable=SC2086
{
    $anneal data stories --count 40 --seed 1 >"$tmp/text" && $anneal tokenizer train --data "$tmp/text" --vocab 300 --out "$tmp/t.json" >"$tmp/log" 2>&1 &&
        $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/text" --out "$tmp/s.u16" >"$tmp/log" 2>&1 || bad "no data: $(cat "$tmp/log")"
    train="$anneal train --model $tmp/config.json --data $tmp/s.u16 --engine cpu --threads 1 --batch 2 --seq 16 --sample-every 0 --json"
    twenty() { # updates were done by process $pid; $tmp/out was emptied before it began, or what the run before wrote would be taken for them
        until grep -q '"step":20,' "$tmp/out"; do
            kill -0 $pid 2>/dev/null || bad "it ended by itself: $(cat "$tmp/err")"
            sleep 0.05
        done
    }
    digest() { sed -n 's/.*"kind":"result".*"digest":"\([0-9a-f]*\)".*/\1/p' "$1" | tail -1; }

    steps=5000
    $train --steps $steps >"$tmp/whole" 2>"$tmp/err" || bad "the undisturbed run: $(cat "$tmp/err")"
    want=$(digest "$tmp/whole")
    n=0
    while [ $n -lt "$kills" ]; do
        $train --steps $steps --save "$tmp/run" --save-every 3 --resume >"$tmp/out" 2>"$tmp/err" &
        pid=$!
        # between 20 and 275 ms: before the first update, between saves, within one
        sleep "0.$(printf '%03d' $((20 + $(od -An -N1 -tu1 /dev/urandom))))"
        if ! kill -9 $pid 2>/dev/null; then # faster than the kills: one run is whole, the next begins
            wait $pid || bad "after $n kills: $(tail -3 "$tmp/err")"
            [ "$(digest "$tmp/out")" = "$want" ] || bad "after $n kills the digest is $(digest "$tmp/out"), undisturbed it is $want"
            rm -rf "$tmp/run"
            continue
        fi
        wait $pid 2>/dev/null
        n=$((n + 1))
        if [ -e "$tmp/run/latest" ]; then
            [ -e "$tmp/run/$(cat "$tmp/run/latest")/train.json" ] || bad "after $n kills latest names what is not there"
        fi
    done
    $train --steps $steps --save "$tmp/run" --save-every $steps --resume >"$tmp/last" 2>"$tmp/err" || bad "after $n kills: $(cat "$tmp/err")"
    first=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' "$tmp/last" | head -1)
    [ "$(digest "$tmp/last")" = "$want" ] || bad "after $n kills the digest is $(digest "$tmp/last"), undisturbed it is $want"
    [ "$n" -lt 20 ] || [ "${first:-1}" -gt 1 ] || bad "no checkpoint survived $n kills"

    # five chains of five processes, one update each
    for seed in 1 2 3 4 5; do
        for k in 1 2 3 4 5; do
            $train --steps 5 --batch 8 --lr 0.03 --schedule constant --warmup 0 --seed $seed --save "$tmp/chain$seed" --stop-after 1 --resume >"$tmp/out" 2>"$tmp/err" ||
                bad "chain $seed, process $k: $(cat "$tmp/err")"
            sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*"nonfinite":\([0-9]*\).*/\1 \2/p' "$tmp/out" >>"$tmp/losses$seed"
        done
        awk 'NR == 1 { a = $1 } { b = $1; if ($1 == "null" || $2 != 0) bad = 1 } END { exit !(NR == 5 && !bad && b < a) }' "$tmp/losses$seed" ||
            bad "chain $seed: losses and skipped updates: $(tr '\n' ';' <"$tmp/losses$seed")"
    done

    # files may not grow: the run goes on, says so, ends with exit 3, and what was saved before stays
    $train --steps 12 --save "$tmp/full" --save-every 3 --stop-after 6 >"$tmp/out" 2>"$tmp/err" || bad "before the disk was full: $(cat "$tmp/err")"
    (ulimit -f 4 && exec $train --steps 12 --save "$tmp/full" --save-every 3 --resume) >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq 3 ] || bad "a full disk: exit $code, want 3: $(cat "$tmp/err")"
    grep -q 'was not saved' "$tmp/err" || bad "a full disk: no warning: $(cat "$tmp/err")"
    full=$(digest "$tmp/out")
    $train --steps 12 --save "$tmp/full" --resume >"$tmp/out" 2>"$tmp/err" || bad "after the disk was full: $(cat "$tmp/err")"
    [ "$(digest "$tmp/out")" = "$full" ] || bad "after the disk was full: another digest"
    # a log that may not grow: no half a line stays in it, and the next run adds to it
    (ulimit -f 4 && exec $train --steps 20 --log "$tmp/full.log") >/dev/null 2>"$tmp/err" && bad "a log on a full disk: exit 0: $(cat "$tmp/err")"
    grep -q 'full.log: cannot write: ' "$tmp/err" || bad "a log on a full disk: no message: $(cat "$tmp/err")"
    $train --steps 20 --log "$tmp/full.log" >/dev/null 2>"$tmp/err" || bad "the log after that: $(cat "$tmp/err")"
    awk '!/^{.*}$/ || gsub(/"step":/, "") != 1 { bad = 1 } END { exit bad }' "$tmp/full.log" || bad "a log on a full disk: it has no whole lines"

    # a compile budget of one round: the command executes itself after every update, and ends where one with room to spare does
    again="$anneal train --model $tmp/config.json --data $tmp/s.u16 --engine soft:m4 --pipeline restart --threads 1 --batch 1 --seq 16 --steps 3 --sample-every 0 --validation 0 --json"
    $again --save "$tmp/roomy" --compile-limit 1000 >"$tmp/out" 2>"$tmp/err" || bad "restart, room to spare: $(cat "$tmp/err")"
    $again --save "$tmp/tight" --compile-limit 20 >"$tmp/tight.out" 2>"$tmp/err" || bad "restart: $(cat "$tmp/err")"
    [ "$(grep -c '"again":true' "$tmp/tight.out")" -ge 2 ] || bad "restart: it did not execute itself: $(cat "$tmp/tight.out")"
    [ "$(digest "$tmp/tight.out")" = "$(digest "$tmp/out")" ] || bad "restart: another digest"
    ! grep -q 'going on in a new one after step 3' "$tmp/err" || bad "restart: a process for nothing: $(cat "$tmp/err")"

    # the same with a budget of ten, which one round of one layer takes, and losses on text kept back that the next process has to find
    sed 's/"num_hidden_layers":2/"num_hidden_layers":1/' "$tmp/config.json" >"$tmp/one.json"
    again="$anneal train --model $tmp/one.json --data $tmp/s.u16 --engine soft:m4 --pipeline restart --threads 1 --batch 1 --seq 16 --steps 4 --sample-every 0 --eval-every 2 --json"
    $again --save "$tmp/roomy1" --compile-limit 1000 >"$tmp/out" 2>"$tmp/err" || bad "restart of one layer, room to spare: $(cat "$tmp/err")"
    $again --save "$tmp/ten" --compile-limit 10 >"$tmp/ten.out" 2>"$tmp/err" || bad "restart with a budget of ten: $(cat "$tmp/err")"
    [ "$(grep -c 'going on in a new one' "$tmp/err")" -ge 3 ] || bad "restart with a budget of ten: it did not execute itself: $(cat "$tmp/err")"
    [ "$(digest "$tmp/ten.out")" = "$(digest "$tmp/out")" ] || bad "restart with a budget of ten: another digest"
    [ "$(grep '"validation","step"' "$tmp/ten.out")" = "$(grep '"validation","step"' "$tmp/out")" ] || bad "restart with a budget of ten: other losses on text kept back"
    # the same with names that have blanks in them, from where the files are, and a command line that ends in "--"
    mkdir "$tmp/in here" && cp "$tmp/one.json" "$tmp/in here/a model.json" && cp "$tmp/s.u16" "$tmp/in here/a shard.u16"
    here=" $anneal" # maybe behind an emulator, and named from where this began
    case ${here##* } in /*) ;; *) here="${here% *} $PWD/${here##* }" ;; esac
    (cd "$tmp/in here" && exec $here train --model "a model.json" --data "a shard.u16" --engine soft:m4 --pipeline restart --threads 1 --batch 1 --seq 16 --steps 4 --sample-every 0 \
        --eval-every 2 --json --compile-limit 10 --save "runs/a run" --log "a log" --) >"$tmp/odd.out" 2>"$tmp/err" || bad "restart, odd names: $(cat "$tmp/err")"
    [ "$(digest "$tmp/odd.out")" = "$(digest "$tmp/out")" ] && [ "$(cat "$tmp/in here/runs/a run/latest")" = step-00000004 ] || bad "restart, odd names: $(cat "$tmp/odd.out")"
    [ "$(grep -c '^{"step":' "$tmp/in here/a log")" -eq 4 ] || bad "restart, odd names: the log is $(cat "$tmp/in here/a log")"

    # asked to end: the update is finished and saved, exit 0
    : >"$tmp/out"
    $train --steps 100000 --save "$tmp/asked" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    twenty
    kill -TERM $pid
    wait $pid || bad "SIGTERM: exit $?: $(cat "$tmp/err")"
    grep -q 'stopped after step [0-9]* and saved' "$tmp/err" || bad "SIGTERM: no message: $(cat "$tmp/err")"
    step=$(sed -n 's/.*stopped after step \([0-9]*\) and saved.*/\1/p' "$tmp/err")
    [ "$(cat "$tmp/asked/latest")" = "step-$(printf '%08d' "$step")" ] || bad "SIGTERM after step $step: latest is $(cat "$tmp/asked/latest")"

    # the terminal is closed: the same, even if it says so twice; unless the run was told to outlive it, as all of this was under nohup
    if [ -z "$(sh -c 'kill -HUP $$; echo ignored' 2>/dev/null)" ]; then
        : >"$tmp/out"
        $train --steps 100000 --save "$tmp/closed" >"$tmp/out" 2>"$tmp/err" &
        pid=$!
        twenty
        kill -HUP $pid && kill -HUP $pid 2>/dev/null
        wait $pid || bad "SIGHUP: exit $?: $(cat "$tmp/err")"
        step=$(sed -n 's/.*stopped after step \([0-9]*\) and saved.*/\1/p' "$tmp/err")
        [ "$(cat "$tmp/closed/latest")" = "step-$(printf '%08d' "$step")" ] || bad "SIGHUP after step $step: latest is $(cat "$tmp/closed/latest")"
    fi
    : >"$tmp/out"
    (trap '' HUP && exec $train --steps 3000 >"$tmp/out" 2>"$tmp/err") &
    pid=$!
    twenty
    kill -HUP $pid 2>/dev/null
    wait $pid && grep -q '"done":3000,' "$tmp/out" || bad "SIGHUP that is ignored: $(cat "$tmp/err")"

    # a pipe where the run keeps its losses is refused, as it would wait for a reader; a pipe as the log is the log, and no past
    $train --steps 12 --save "$tmp/fifo" --stop-after 6 >"$tmp/out" 2>"$tmp/err" || bad "before there were pipes: $(cat "$tmp/err")"
    rm "$tmp/fifo/losses.jsonl" && mkfifo "$tmp/fifo/losses.jsonl" "$tmp/fifo.log" || bad "no pipes"
    timeout 60 $train --steps 12 --save "$tmp/fifo" --resume >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 3 ] && grep -q 'losses.jsonl is a pipe, not a regular file' "$tmp/err" || bad "losses into a pipe: $(cat "$tmp/err")"
    rm "$tmp/fifo/losses.jsonl"
    cat "$tmp/fifo.log" >"$tmp/fifo.lines" & log=$!
    $train --steps 12 --save "$tmp/fifo" --log "$tmp/fifo.log" --resume >"$tmp/out" 2>"$tmp/err" || bad "a pipe as the log: $(cat "$tmp/err")"
    wait $log
    [ "$(grep -c '^{"step":' "$tmp/fifo.lines")" -eq 6 ] || bad "a pipe as the log: $(cat "$tmp/fifo.lines")"

    # nobody reads what it writes: it saves and ends with exit 3, and goes on from there
    { $train --steps 100000 --save "$tmp/pipe" 2>"$tmp/err"; echo $? >"$tmp/code"; } | head -2 >"$tmp/out"
    [ "$(cat "$tmp/code")" -eq 3 ] || bad "a closed pipe: exit $(cat "$tmp/code"), want 3: $(cat "$tmp/err")"
    grep -q 'nobody reads standard output' "$tmp/err" || bad "a closed pipe: no message: $(cat "$tmp/err")"
    [ -e "$tmp/pipe/$(cat "$tmp/pipe/latest")/train.json" ] || bad "a closed pipe: nothing was saved"

    # the same of a built-in network, whose checkpoint is a file: asked to end it goes on to the digest of the run that was not; without --save it says so
    net="$anneal train --model mlp --engine cpu --threads 1 --batch 4 --every 0 --final-test 0 --json"
    for sig in INT TERM HUP; do
        [ $sig != HUP ] || [ -z "$(sh -c 'kill -HUP $$; echo ignored' 2>/dev/null)" ] || continue
        for save in "--save $tmp/net.$sig" ""; do
            : >"$tmp/out"
            $net --steps 1000000 $save >"$tmp/out" 2>"$tmp/err" &
            pid=$!
            twenty
            kill -$sig $pid
            wait $pid || bad "a network, SIG$sig: exit $?: $(cat "$tmp/err")"
            if [ -n "$save" ]; then grep -q "stopped after step [0-9]* of 1000000 and saved in .*net.$sig; --resume goes on from there" "$tmp/err" || bad "a network, SIG$sig: no message: $(cat "$tmp/err")"
            else grep -q 'stopped after step [0-9]* of 1000000; nothing was saved, as there is no --save' "$tmp/err" || bad "a network, SIG$sig, no --save: no message: $(cat "$tmp/err")"; fi
        done
        step=$(sed -n 's/.*"kind":"result".*"done":\([0-9]*\),.*/\1/p' "$tmp/out")
        [ "$step" -ge 20 ] || bad "a network, SIG$sig: $step updates"
    done
    { $net --schedule constant --steps 1000000 --save "$tmp/net.pipe" 2>"$tmp/err"; echo $? >"$tmp/code"; } | head -2 >"$tmp/out"
    [ "$(cat "$tmp/code")" -eq 3 ] || bad "a network, a closed pipe: exit $(cat "$tmp/code"), want 3: $(cat "$tmp/err")"
    grep -q 'nobody reads standard output' "$tmp/err" || bad "a network, a closed pipe: no message: $(cat "$tmp/err")"
    step=$(sed -n 's/.*stopped after step \([0-9]*\) of .*/\1/p' "$tmp/err")
    $net --schedule constant --steps $((step + 5)) --resume "$tmp/net.pipe" >"$tmp/out" 2>"$tmp/err" || bad "a network that goes on: $(cat "$tmp/err")"
    want=$(digest "$tmp/out")
    $net --schedule constant --steps $((step + 5)) >"$tmp/out" 2>"$tmp/err" || bad "a network in one go: $(cat "$tmp/err")"
    [ "$(digest "$tmp/out")" = "$want" ] || bad "a network that went on: another digest"

    # the data is cut while it is read: saved, exit 3
    cp "$tmp/s.u16" "$tmp/cut.u16"
    : >"$tmp/out"
    $train --data "$tmp/cut.u16" --steps 100000 --save "$tmp/cut" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    twenty
    : >"$tmp/cut.u16"
    wait $pid
    code=$?
    [ $code -eq 3 ] || bad "data that was cut: exit $code, want 3: $(cat "$tmp/err")"
    grep -q 'cut.u16: it was cut while it was being read' "$tmp/err" || bad "data that was cut: no message: $(cat "$tmp/err")"
    [ -e "$tmp/cut/$(cat "$tmp/cut/latest")/train.json" ] || bad "data that was cut: nothing was saved"

    # a run that diverges from the start leaves no checkpoint of it, and no digest
    $train --lr 1e30 --steps 60 --save "$tmp/wild" --save-every 5 >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq 1 ] || bad "diverged: exit $code, want 1: $(cat "$tmp/err")"
    ! ls -d "$tmp/wild"/step-* >/dev/null 2>&1 || bad "diverged: it was saved: $(ls "$tmp/wild")"
    grep -q '"digest":null' "$tmp/out" || bad "diverged: a digest: $(cat "$tmp/out")"

    # memory for the activations of a few layers, not of all: computed again, the same bits. Sanitizers and emulators take more than is left
    sed 's/"num_hidden_layers":2/"num_hidden_layers":24/; s/"hidden_size":16/"hidden_size":64/; s/"max_position_embeddings":64/"max_position_embeddings":256/' "$tmp/config.json" >"$tmp/deep.json"
    deep="$anneal train --model $tmp/deep.json --data $tmp/s.u16 --engine cpu --threads 1 --batch 8 --seq 256 --steps 1 --sample-every 0 --validation 0 --json"
    if (ulimit -v 150000 && exec $deep --recompute) >/dev/null 2>&1; then
        $deep >"$tmp/out" 2>"$tmp/err" || bad "a deep model: $(cat "$tmp/err")"
        (ulimit -v 150000 && exec $deep) >"$tmp/less" 2>"$tmp/err" || bad "little memory: $(cat "$tmp/err")"
        grep -q 'out of memory: [0-9]* bytes were wanted .*; trying again with --recompute' "$tmp/err" || bad "little memory: no message: $(cat "$tmp/err")"
        [ "$(digest "$tmp/less")" = "$(digest "$tmp/out")" ] || bad "little memory: another digest"
        (ulimit -v 150000 && exec $deep --batch 256) >"$tmp/less" 2>"$tmp/err"
        code=$?
        [ $code -eq 70 ] || bad "too little memory: exit $code, want 70: $(cat "$tmp/err")"
        grep -q 'out of memory: [0-9]* bytes were wanted .*a smaller --batch or --seq' "$tmp/err" || bad "too little memory: no message: $(cat "$tmp/err")"
    fi

    # asked twice, the second time while it saves: it ends at once, and the checkpoint before is whole. A large vocabulary makes saving take a while
    sed 's/"vocab_size":300/"vocab_size":60000/; s/"hidden_size":16/"hidden_size":64/' "$tmp/config.json" >"$tmp/large.json"
    slow="$anneal train --model $tmp/large.json --data $tmp/s.u16 --engine cpu --threads 1 --batch 1 --seq 8 --steps 40 --sample-every 0 --validation 0 --json --compact-vocab"
    $slow --save "$tmp/calm" >"$tmp/out" 2>"$tmp/err" || bad "a large vocabulary: $(cat "$tmp/err")"
    want=$(digest "$tmp/out") hit=
    for try in 1 2 3 4 5 6 7 8; do
        rm -rf "$tmp/twice"
        $slow --save "$tmp/twice" --save-every 4 >"$tmp/out" 2>"$tmp/err" &
        pid=$!
        until [ -e "$tmp/twice/latest" ] && grep -q '"step":5,' "$tmp/out"; do kill -0 $pid 2>/dev/null || bad "asked twice: it ended by itself: $(cat "$tmp/err")"; done
        kill -TERM $pid # after the update that follows a save: there is one to save
        while ! ls -d "$tmp/twice"/.tmp-* >/dev/null 2>&1 && kill -0 $pid 2>/dev/null; do :; done
        kill -TERM $pid 2>/dev/null
        wait $pid
        code=$?
        [ $code -eq 0 ] || [ $code -eq 143 ] || bad "asked twice: exit $code: $(cat "$tmp/err")"
        [ -e "$tmp/twice/$(cat "$tmp/twice/latest")/train.json" ] || bad "asked twice: latest names what is not there"
        [ $code -ne 143 ] || ! ls -d "$tmp/twice"/.tmp-* >/dev/null 2>&1 || { hit=1 && break; }
    done
    [ -n "$hit" ] || bad "asked twice: no save was interrupted in $try tries"
    $slow --save "$tmp/twice" --resume >"$tmp/out" 2>"$tmp/err" || bad "after an interrupted save: $(cat "$tmp/err")"
    [ "$(digest "$tmp/out")" = "$want" ] || bad "after an interrupted save: another digest"
    ! ls -d "$tmp/twice"/.tmp-* >/dev/null 2>&1 || bad "after an interrupted save: what it left is still there"
}
