# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Training a built-in network, from good and bad data. Read by cli.sh.
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
    { images && head -c 3136 README.md; } | gzip >"$tmp/mn/train-images-idx3-ubyte.gz"
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
