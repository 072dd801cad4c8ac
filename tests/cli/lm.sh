# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Training a language model. Read by cli.sh.
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
    $anneal train $lt --save "$tmp/none/run" --log "$tmp/none.jsonl" --csv "$tmp/none.csv" --plot "$tmp/none/run/p.svg" --profile "$tmp/none/run/p.json" $w >"$tmp/out" 2>&1
    t "train tiny $w: refused" 1 test $? -eq 0
    t "train tiny $w: nothing left behind" 1 sh -c "ls '$tmp' | grep '^none'"
done
# nobody sees how far it is: it goes on to its end. Nobody reads what it finds, be it by the same pipe: it ends early, and the exit code says so
un="train --model tiny --engine cpu --threads 1 --batch 2 --seq 16 --steps 200 --every 1 --sample-every 0 --validation 0"
{ $anneal $un --log "$tmp/un.jsonl" 2>&1 >"$tmp/curve"; echo $? >"$tmp/code"; } | true
t "train, nobody reads standard error" 0 test "$(cat "$tmp/code")" -eq 0
t "train, nobody reads standard error, all updates" 0 test "$(grep -c '^{"step":' "$tmp/un.jsonl")" -eq 200
t "train, nobody reads standard error, the result" 0 test -s "$tmp/curve"
{ $anneal $un --log "$tmp/un2.jsonl" 2>&1; echo $? >"$tmp/code"; } | true
t "train, nobody reads either" 0 test "$(cat "$tmp/code")" -eq 3
t "train, nobody reads either, it ends early" 0 test "$(grep -c '^{"step":' "$tmp/un2.jsonl")" -lt 200
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
t "train, more left of the rate than there was" 2 $anneal train $lt --lr-end 2
has "train, more left of the rate than there was" err '2 of the learning rate is left at the end, wanted a fraction from 0 to 1'
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
t "train, fp16 on the host" 2 $anneal train $lt --engine soft:m4 --pipeline dynamic --state fp16
has "train, fp16 on the host" err 'pipeline dynamic keeps .* in fp32; a state of fp16 is for resident'
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
# a loss on text kept back that was due after a save is told of once: by the process that saved, or by the next one if that was killed between the two
t "train, a look after a save" 0 $anneal train $lt --sample-every 0 --json --eval-every 2 --save "$tmp/look" --stop-after 2
cp "$tmp/out" "$tmp/look.out" && cp -r "$tmp/look" "$tmp/look2" && grep -v validation "$tmp/look/losses.jsonl" >"$tmp/look2/losses.jsonl"
has "train, a look after a save" out '"validation","step":2'
t "train, a look that was told of" 0 $anneal train $lt --sample-every 0 --json --eval-every 2 --save "$tmp/look" --resume
t "train, a look that was told of: once" 1 grep -q '"validation","step":2' "$tmp/out"
t "train, a look that is owed" 0 $anneal train $lt --sample-every 0 --json --eval-every 2 --save "$tmp/look2" --resume
t "train, a look that is owed: the same" 0 test "$(grep '"validation","step":2' "$tmp/out")" = "$(grep '"validation","step":2' "$tmp/look.out")"
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
t "train tiny, its folder spelt another way" 0 $anneal train $lt --save "$tmp/lt" --resume "$tmp/lt/"
t "train tiny, on in another folder" 2 $anneal train $lt --save "$tmp/lt" --resume "$tmp/bare"
has "train tiny, on in another folder" err 'are two folders; a run goes on in its own'
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
