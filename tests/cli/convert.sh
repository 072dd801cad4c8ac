# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Models between files. Read by cli.sh.
t "convert --help" 0 $anneal convert --help
t "convert a preset" 0 $anneal convert --model tiny --out "$tmp/a.bin" --seed 4
empty "convert a preset" out
t "convert to GGUF" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/a.gguf" --json
has "convert to GGUF" out '"from":"llama2.c file","to":"gguf","family":"llama","tensors":20,.*"worst":0,"shards":1,"vocabulary":false,"lost":""}'
t "convert to a folder" 0 $anneal convert --model "$tmp/a.gguf" --out "$tmp/hf"
t "convert back" 0 $anneal convert --model "$tmp/hf" --out "$tmp/b.bin"
t "there and back, the same bytes" 0 cmp "$tmp/a.bin" "$tmp/b.bin"
t "convert, quantised" 0 $anneal convert --model "$tmp/hf" --out "$tmp/q.safetensors" --quantize int4
has "convert, quantised" err 'off by at most'
t "convert, no model" 2 $anneal convert --out "$tmp/x.gguf"
t "convert, unknown kind" 2 $anneal convert --model tiny --out "$tmp/x" --to onnx
t "convert, unknown form" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --quantize q9_9
t "convert, a form of other files" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --quantize palette4
t "convert, what the target cannot say" 3 $anneal convert --model gpt2 --out "$tmp/x.bin"
has "convert, what the target cannot say" err 'learned positions'
head -c 5000 "$tmp/a.gguf" >"$tmp/cut.gguf"
t "convert, a cut file" 3 $anneal convert --model "$tmp/cut.gguf" --out "$tmp/x.bin"
has "convert, a cut file" err 'cut.gguf: .*tensor "'
sed 's/"rope_theta": 10000/"rope_theta": 10000, "qk_clip": 3/' "$tmp/hf/config.json" >"$tmp/c.json" && cp "$tmp/c.json" "$tmp/hf/config.json"
t "convert, an unknown field" 3 $anneal convert --model "$tmp/hf" --out "$tmp/x.bin"
has "convert, an unknown field" err 'config.json: field "qk_clip" (3) is not known'
# over the model that is read, however it is spelt
t "convert, a model of one file" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/self" --to hf
cp -r "$tmp/self" "$tmp/self.was" && ln -s self "$tmp/self.link"
for w in "self/model.safetensors self" "self self/model.safetensors" "self self.link" "self.link/model.safetensors self" "self self/../self.link/model.safetensors"; do
    t "convert over itself: $w" 2 $anneal convert --model "$tmp/${w% *}" --out "$tmp/${w#* }" --dtype f16
    has "convert over itself: $w" err 'is the model itself; write to another place$'
done
{ printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"; printf '\1\0\0\0\2\0\0\0'; } >"$tmp/two.npy"
{ printf '\223NUMPY\001\000v\000'; printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"; printf '\1\0\0\0\377\377\377\177'; } >"$tmp/far.npy"
t "grad, a token that is none" 3 $anneal grad --model tiny --tokens "$tmp/far.npy" --engine cpu --out "$tmp/never"
has "grad, a token that is none" err 'far.npy: token 2147483647 at position 1; the vocabulary has '
t "grad over the model" 2 $anneal grad --model "$tmp/self" --tokens "$tmp/two.npy" --engine cpu --out "$tmp/self.link/model.safetensors"
has "grad over the model" err 'is the model itself; write to another place$'
t "the model is as it was" 0 diff -r "$tmp/self" "$tmp/self.was"
t "convert to npy" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/arrays" --to npy
t "convert over a model of arrays" 2 $anneal convert --model "$tmp/arrays" --out "$tmp/arrays/." --to npy --dtype f16
t "convert, a tokenizer for nothing" 2 $anneal convert --model tiny --out "$tmp/x.bin" --tokenizer nowhere.json
has "convert, a tokenizer for nothing" err 'tokenizer goes into gguf and hf alone'
t "convert to shards" 0 $anneal convert --model "$tmp/a.bin" --out "$tmp/shards" --shard-size 100kB
has "convert to shards" err 'in 5 files, with model.safetensors.index.json'
t "convert shards back" 0 $anneal convert --model "$tmp/shards" --out "$tmp/c.bin"
t "shards there and back" 0 cmp "$tmp/a.bin" "$tmp/c.bin"
t "convert, shards of no size" 2 $anneal convert --model tiny --out "$tmp/x" --shard-size 5TB
has "convert, shards of no size" err '500MB or 5GB, got "5TB"'
t "convert, shards of one file" 2 $anneal convert --model tiny --out "$tmp/x.gguf" --shard-size 5GB
t "convert, a vocabulary of another model" 3 $anneal convert --model tiny --out "$tmp/x.gguf" --tokenizer builtin:stories
has "convert, a vocabulary of another model" err 'builtin:stories has [0-9]* entries, the embedding 512 rows'
echo '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":48,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":40,"max_position_embeddings":64}' >"$tmp/narrow.json"
t "convert, rows of no whole blocks" 0 $anneal convert --model "$tmp/narrow.json" --out "$tmp/narrow.gguf" --quantize q8_0
has "convert, rows of no whole blocks" err 'not kept: 14 of 16 matrices are not quantised, for their rows are no whole blocks of 32$'
printf '\1\0\2\0\3\0\4\0\5\0\6\0\7\0\1\0' >"$tmp/eight.u16"
t "convert, both in fp32" 0 $anneal convert --model "$tmp/narrow.json" --out "$tmp/narrow16.gguf" --dtype f16 --data "$tmp/eight.u16" --json
cp "$tmp/out" "$tmp/both"
for w in narrow.json narrow16.gguf; do
    t "eval, $w" 0 $anneal eval --model "$tmp/$w" --data "$tmp/eight.u16" --engine cpu --weights fp32 --json
    ppl=$(sed 's/.*"ppl":\([0-9.]*\)}/\1/' "$tmp/out") && cp "$tmp/both" "$tmp/out"
    has "convert, both in fp32: $w" out "\"ppl_[a-z]*\":$ppl[,}]"
done
if [ -r $stories/stories260K.bin ]; then
    t "convert, perplexity" 0 $anneal convert --model $stories/stories260K.bin --out "$tmp/q4.gguf" --quantize q4_0 --tokenizer $stories/tok512.bin \
        --data $stories/stories260K_greedy_n200.txt
    has "convert, perplexity" err 'perplexity of 200 tokens: 1[.]6[0-9]* before, 1[.][67][0-9]* after, +[0-9.]* %'
    t "a GGUF file needs nothing beside it" 0 $anneal generate --model "$tmp/q4.gguf" --prompt "Once upon a time" --max-tokens 8 --temperature 0 --engine cpu
    has "a GGUF file needs nothing beside it" out 'there was'
fi
t "convert leaves nothing behind" 1 sh -c "ls -a '$tmp' | grep -e '^[.]*x[.]bin' -e '[.]gguf[.]'"
