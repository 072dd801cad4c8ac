# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# What a command reads is not written over, however it is spelt. Read by cli.sh.
f="$tmp/files" && mkdir "$f" && cp "$tmp/stories.txt" "$f/text" && cp "$tmp/t.json" "$f/t.json"
t "files, ids" 0 $anneal data prepare --tokenizer "$f/t.json" --data "$f/text" --out "$f/s.u16"
t "files, a model" 0 $anneal convert --model tiny --out "$f/hf" --to hf
cp "$f/hf/config.json" "$f/llama.json" && ln -s s.u16 "$f/link" && ln "$f/s.u16" "$f/hard" && mkdir "$f/shards" && cp "$f/s.u16" "$f/shards" && ln -s shards "$f/far"
tr="$anneal train --model $f/llama.json --data $f/s.u16 --engine cpu --threads 1 --batch 2 --seq 16 --steps 4 --sample-every 0 --validation 0"
t "files, a run" 0 $tr --save "$f/r" --save-every 2 --stop-after 2 --plot "$f/r/p.svg" --log "$f/r/l.jsonl" --profile "$f/r/t.json"
cp -r "$f" "$tmp/files.was"
kept() { # kept NAME OPTION OPTION COMMAND…: refused with both names; nothing is written
    name=$1 out=$2 from=$3
    shift 3
    t "$name" 2 "$@"
    has "$name" err "^anneal: $out goes to \".*, which $from reads: it would be lost; name another file\$"
    empty "$name" out
    t "$name: all is as it was" 0 diff -r "$f" "$tmp/files.was"
}
for p in plot log csv profile; do
    for d in s.u16 link hard ./hf/../s.u16; do kept "train, --$p over the data, $d" --$p --data $tr --$p "$f/$d"; done
    kept "train, --$p over the configuration" --$p --model $tr --$p "$f/llama.json"
    kept "train, --$p over a tokenizer" --$p --tokenizer $tr --tokenizer "$f/t.json" --$p "$f/t.json"
    for d in config.json model.safetensors; do
        kept "train, --$p into a model, $d" --$p --model $tr --model "$f/hf" --$p "$f/hf/$d"
    done
    kept "train, --$p over a shard of a folder" --$p --data $tr --data "$f/shards" --$p "$f/far/s.u16"
    kept "train, --$p over one of several" --$p --data $tr --data "$f/hard,$f/shards/s.u16" --$p "$f/shards/s.u16"
    kept "train, --$p over a checkpoint" --$p --save $tr --save "$f/r" --resume --$p "$f/r/step-00000002/state.safetensors"
    kept "train, --$p over a checkpoint that is continued" --$p --model $tr --model "$f/r" --$p "$f/r/step-00000002/config.json"
    for d in r/latest new/latest ./new/losses.jsonl; do
        t "train, --$p to $d" 2 $tr --save "$f/${d%/*}" --resume --$p "$f/$d"
        has "train, --$p to $d" err "^anneal: --save and --$p both go to \""
        t "train, --$p to $d: all is as it was" 0 diff -r "$f" "$tmp/files.was"
    done
done
kept "train beside a file of the model" --plot --model $tr --model "$f/hf/model.safetensors" --plot "$f/hf/config.json"
mkdir "$f/mnist" && for d in train t10k; do echo x >"$f/mnist/$d-images-idx3-ubyte" && echo x >"$f/mnist/$d-labels-idx1-ubyte"; done
cp -r "$f/mnist" "$tmp/files.was"
net="$anneal train --model mlp --engine cpu --threads 1 --batch 4 --steps 4 --every 0 --final-test 0"
for p in save log; do
    kept "train a network, --$p over images" --$p --data $net --data "mnist:$f/mnist" --$p "$f/mnist/train-images-idx3-ubyte"
    kept "train a network, --$p over a text" --$p --data $net --model charlm --data "text:$f/text" --$p "$f/text"
done
t "train a network" 0 $net --save "$f/net" --stop-after 2
cp "$f/net" "$tmp/files.was/net"
kept "train a network, the log over what it goes on from" --log --resume $net --resume "$f/net" --log "$f/net"
t "train a network, on in its own file" 0 $net --save "$f/net" --resume --stop-after 1
t "train a network, on in its own file, named" 0 $net --save "$f/net" --resume "$f/net"
cp "$f/net" "$tmp/files.was/net"
kept "tokenizer train over the text" --out --data $anneal tokenizer train --data "$f/text" --vocab 300 --out "$f/text"
kept "data prepare over the text" --out --data $anneal data prepare --tokenizer "$f/t.json" --data "$f/t.json,$f/text" --out "$f/text"
kept "data prepare over the tokenizer" --validation --tokenizer $anneal data prepare --tokenizer "$f/t.json" --data "$f/text" --out "$f/e.u16" --validation "$f/t.json"
kept "convert over the text" --out --data $anneal convert --model tiny --to gguf --tokenizer "$f/t.json" --data "$f/text" --out "$f/text"
kept "convert over the tokenizer" --out --tokenizer $anneal convert --model tiny --to gguf --tokenizer "$f/t.json" --out "$f/t.json"
kept "convert over the configuration" --out --model $anneal convert --model "$f/hf" --to gguf --out "$f/hf/config.json"
cp "$tmp/two.npy" "$f/two.npy" && cp -r "$tmp/w/in.mil" "$tmp/w/weights" "$f" && cp "$tmp/x.npy" "$f/x.npy"
cp -r "$f/two.npy" "$f/in.mil" "$f/weights" "$f/x.npy" "$tmp/files.was"
kept "grad over the tokens" --out --tokens $anneal grad --model tiny --tokens "$f/two.npy" --engine cpu --out "$f/two.npy"
kept "run over an input" "--out y" "--in x" $anneal run "$tmp/relu.mil" --engine cpu --in "x=$f/x.npy" --out "y=$f/x.npy"
kept "run over the program" "--out y" run $anneal run "$f/in.mil" --engine cpu --fill 1 --out "y=$f/in.mil"
kept "run over its weights" "--out y" run $anneal run "$f/in.mil" --engine cpu --fill 1 --out "y=$f/weights/weight.bin"
kept "compile over its weights" --out compile $anneal compile "$f/in.mil" --out "$f/weights/weight.bin"
for e in program listing dot; do kept "compile, a $e over the text" --out compile $anneal compile "$f/in.mil" --emit $e --out "$f/in.mil"; done
kept "grad over the program" --out grad $anneal grad "$f/in.mil" --loss y --out "$f/in.mil"
# beside what is read there is room, and a run goes on in its folder with all it wrote there before
t "train on in a folder" 0 $tr --save "$f/r" --resume --plot "$f/r/p.svg" --log "$f/r/l.jsonl" --profile "$f/r/t.json"
t "train on in a folder, the model is the run" 0 $tr --model "$f/r" --save "$f/r" --resume
mkdir "$f/tok" && cp "$f/t.json" "$f/tok/tokenizer.json"
for k in 1 2; do
    t "train, a curve beside the model, time $k" 0 $tr --model "$f/hf" --plot "$f/hf/p.svg" --log "$f/hf/l.jsonl"
    t "data prepare beside the tokenizer, time $k" 0 $anneal data prepare --tokenizer "$f/tok" --data "$f/text" --out "$f/tok/again.u16"
    t "convert into the folder of the model, time $k" 0 $anneal convert --model "$f/hf" --out "$f/hf/half.safetensors" --dtype f16
done
