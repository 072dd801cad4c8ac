# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# generate, chat, eval. Read by cli.sh.
lm="--cache $tmp/programs --threads 1"
t "generate, no model" 2 $anneal generate --prompt x
t "generate, two prompts" 2 $anneal generate --model tiny --prompt x --prompt-file "$tmp/x"
t "generate, no tokenizer" 2 $anneal generate --model tiny --prompt x $lm
has "generate, no tokenizer" err 'name one with --tokenizer'
t "generate, unknown weights" 2 $anneal generate --model tiny --weights fp7 $lm
t "generate, not a number" 2 $anneal generate --model tiny --tokenizer builtin:stories --temperature hot $lm
t "generate, among none" 2 $anneal generate --model tiny --tokenizer builtin:stories --temperature 1 --top-p 0 $lm
has "generate, among none" err 'top-p wants a number above 0 (1: all)'
t "generate, among few of which one is taken" 0 $anneal generate --model stories1m --tokenizer builtin:stories --prompt Once --max-tokens 1 --top-k 5 $lm
has "generate, among few of which one is taken" err 'warning: --top-k changes nothing: at temperature 0'
t "generate, guesses of nobody" 2 $anneal generate --model tiny --tokenizer builtin:stories --draft-tokens 3 $lm
has "generate, guesses of nobody" err 'name a model with --draft, or ask for --lookup'
t "eval, no data" 2 $anneal eval --model tiny
stories=../shared/data/llama2c
if [ -r $stories/stories260K.bin ]; then
    m="--model $stories/stories260K.bin --tokenizer $stories/tok512.bin $lm"
    t "generate" 0 $anneal generate $m --prompt "" --max-tokens 200 --temperature 0 --engine cpu
    has "generate" err 'tok/s'
    { cat $stories/stories260K_greedy_n200.txt; echo; } >"$tmp/want.txt"
    cp "$tmp/out" "$tmp/got.txt"
    t "generate, byte for byte" 0 cmp "$tmp/want.txt" "$tmp/got.txt"
    t "generate on soft:m4" 0 $anneal generate $m --prompt "Once upon" --max-tokens 8 --engine soft:m4
    has "generate on soft:m4" out '^Once upon a time, there was'
    t "generate --json" 0 $anneal generate $m --prompt "Once" --max-tokens 3 --json
    has "generate --json" out '^{"index":2,"token":[0-9]*,"text":".*","logprob":-'
    t "generate again" 0 $anneal generate $m --prompt "Once" --max-tokens 3 --json
    has "generate again" out '"why":"length".*"first_token_ms":[1-9].*"peak_mb":[1-9].*"compiles":0,'
    g="--model $stories/stories260K.bin --tokenizer $stories/tok512.bin --threads 1 --prompt Once --max-tokens 2"
    t "generate, a file as the cache" 3 $anneal generate $g --cache tests/cli.sh
    has "generate, a file as the cache" err 'cannot be kept in "tests/cli.sh": a folder'
    t "generate, a cache below a file" 3 $anneal generate $g --cache tests/cli.sh/programs
    has "generate, a cache below a file" err 'tests/cli.sh/programs: Not a directory'
    for b in 2T -1 many; do
        t "generate, a cache of $b" 3 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=$b $anneal generate $g
        has "generate, a cache of $b" err "ANNEAL_CACHE_BYTES=$b: a whole number"
    done
    t "generate, nothing kept" 0 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=0 $anneal generate $g
    t "generate, nothing was kept" 1 sh -c "ls '$tmp/bound' | grep prog"
    t "generate, kept" 0 env ANNEAL_CACHE="$tmp/bound" ANNEAL_CACHE_BYTES=1M $anneal generate $g
    t "generate, was kept" 0 sh -c "ls '$tmp/bound' | grep prog"
    t "generate, into a cache" 0 $anneal generate $g --cache "$tmp/spoilt"
    for p in "$tmp"/spoilt/*.prog; do printf x | dd of="$p" bs=1 seek=100 conv=notrunc 2>/dev/null; done
    t "generate, a cache that is damaged" 0 $anneal generate $g --cache "$tmp/spoilt"
    has "generate, a cache that is damaged" err '^anneal: warning: [0-9]* compiled programs* in the cache w[a-z]* damaged: made again$'
    t "generate, a cache that was damaged" 0 $anneal generate $g --cache "$tmp/spoilt"
    t "generate, it is whole again" 1 grep damaged "$tmp/err"
    t "generate, no usual cache" 0 env ANNEAL_CACHE=tests/cli.sh/programs $anneal generate $g
    has "generate, no usual cache" err '^anneal: warning: compiled programs are kept in memory only: .*Not a directory'
    t "generate, too many threads" 2 $anneal generate $g --threads 1025
    t "generate, prompt longer than the context" 3 $anneal generate $m --context 8 --prompt "Once upon a time there was a little girl"
    has "generate, prompt longer than the context" err 'tokens do not fit a context of 8 positions'
    empty "generate, prompt longer than the context" out
    printf 'abc\377' >"$tmp/not.txt"
    t "generate, not UTF-8" 3 $anneal generate $m --prompt-file "$tmp/not.txt"
    has "generate, not UTF-8" err 'not.txt: the text is not UTF-8: byte 3 is 0xff'
    empty "generate, not UTF-8" out
    in="$tmp/not.txt" t "tokenize, any bytes" 0 $anneal tokenize --tokenizer $stories/tok512.bin
    has "tokenize, any bytes" out ' 258$'
    in="$tmp/not.txt" t "chat, not UTF-8" 3 $anneal chat $m --template plain
    t "eval, not UTF-8" 3 $anneal eval $m --data "$tmp/not.txt"
    $anneal convert --model $stories/stories260K.bin --tokenizer $stories/tok512.bin --out "$tmp/asks" --to hf 2>/dev/null
    echo '{"do_sample":true,"temperature":0.8,"top_k":9}' >"$tmp/asks/generation_config.json"
    t "generate as the model asks" 0 $anneal generate --model "$tmp/asks" $lm --prompt "Once" --max-tokens 12 --seed 5
    has "generate as the model asks" err 'as the model asks for: temperature 0.8, top-k 9'
    cp "$tmp/out" "$tmp/got.txt"
    $anneal generate --model "$tmp/asks" $lm --prompt "Once" --max-tokens 12 --seed 5 --temperature 0.8 --top-k 9 >"$tmp/same.txt" 2>/dev/null
    t "generate as the command line asks" 0 cmp "$tmp/got.txt" "$tmp/same.txt"
    t "generate, vocabulary of another model" 3 $anneal generate --model $stories/stories260K.bin --tokenizer $stories/tokenizer.bin $lm
    has "generate, vocabulary of another model" err '32000 entries, the embedding 512 rows'
    in="$tmp/want.txt" t "chat, line by line" 0 $anneal chat $m --max-tokens 4 --template plain
    t "chat, unknown template" 3 $anneal chat $m --template frob
    printf '\001\000\003\000\004\000' >"$tmp/ids.u16"
    t "eval --json" 0 $anneal eval $m --data "$tmp/ids.u16" --json
    has "eval --json" out '^{"tokens":2,"nats_per_token":'
fi
