#!/bin/sh
# What `make run` shows: the default model learns to write from the built-in stories, in less than a minute on two cores.   demo.sh ANNEAL
anneal=$1 steps=${STEPS:-1000}
out=$(dirname "$anneal")/run
rm -rf "$out"
mkdir -p "$out" || exit 1
echo "anneal train: a model of a million weights from nothing, on stories made here"
"$anneal" train --engine cpu --math bf16 --batch 4 --steps "$steps" --lr 0.004 --save "$out/checkpoints" --save-every 500 --plot "$out/loss.svg" --log "$out/log.jsonl" --sample-every 0 || exit 1
model=$out/checkpoints/$(cat "$out/checkpoints/latest")
echo
choice="--engine cpu --max-tokens 110 --temperature 0.6 --seed 2"
echo "$anneal generate --model $model --prompt \"Once upon a time\" $choice"
# shellcheck disable=SC2086
"$anneal" generate --model "$model" --prompt "Once upon a time" $choice || exit 1
echo
echo "loss curve: $out/loss.svg · log: $out/log.jsonl · go on: $anneal train --engine cpu --model $model --save runs/more"
