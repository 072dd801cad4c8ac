# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Tokenizers and token files. Read by cli.sh.
t "data stories" 0 $anneal data stories --count 60 --seed 3
cp "$tmp/out" "$tmp/stories.txt"
t "tokenizer train" 0 $anneal tokenizer train --data "$tmp/stories.txt" --vocab 400 --out "$tmp/t.json"
has "tokenizer train" err '400 tokens from'
t "tokenizer train, a short text" 0 $anneal tokenizer train --data examples/conv.mil --vocab 4096 --out "$tmp/short.json"
has "tokenizer train, a short text" err 'warning: [0-9]* of 4096 tokens'
t "tokenizer train, no text" 3 $anneal tokenizer train --data "$tmp/empty.mil" --out "$tmp/none.json"
t "tokenizer info" 0 $anneal tokenizer info "$tmp/t.json" --json
has "tokenizer info" out '"tokens":400,.*"bos":399'
t "tokenizer info of two" 2 $anneal tokenizer info "$tmp/t.json" --tokenizer builtin:stories
in="$tmp/stories.txt" t "tokenize" 0 $anneal tokenize --tokenizer "$tmp/t.json"
cp "$tmp/out" "$tmp/ids.txt"
t "one line of ids" 0 test "$(wc -l <"$tmp/ids.txt")" -eq 1
in="$tmp/ids.txt" t "tokenize --decode" 0 $anneal tokenize --tokenizer "$tmp/t.json" --decode
cp "$tmp/out" "$tmp/got.txt"
t "the same bytes" 0 cmp "$tmp/got.txt" "$tmp/stories.txt"
head -c 3000 /dev/urandom >"$tmp/noise"
in="$tmp/noise" t "tokenize noise" 0 $anneal tokenize --tokenizer "$tmp/t.json" --bos
has "BOS in front" out '^399 '
cp "$tmp/out" "$tmp/ids.txt"
in="$tmp/ids.txt" t "noise back" 0 $anneal tokenize --tokenizer "$tmp/t.json" --decode
cp "$tmp/out" "$tmp/got.txt"
t "noise, the same bytes" 0 cmp "$tmp/got.txt" "$tmp/noise"
t "tokenize nothing" 0 $anneal tokenize --tokenizer "$tmp/t.json"
t "an empty line" 0 test "$(wc -c <"$tmp/out")" -eq 1
printf '400' >"$tmp/ids.txt"
in="$tmp/ids.txt" t "id past the vocabulary" 3 $anneal tokenize --tokenizer "$tmp/t.json" --decode
has "id past the vocabulary" err 'id 400 at index 0, the vocabulary has 400'
in="$tmp/stories.txt" t "words are no ids" 3 $anneal tokenize --tokenizer "$tmp/t.json" --decode
t "tokenize without a tokenizer" 2 $anneal tokenize
t "no tokenizer" 3 $anneal tokenize --tokenizer "$tmp/noise"
has "no tokenizer" err 'noise: '
t "missing tokenizer" 3 $anneal tokenize --tokenizer "$tmp/nothing.json"
t "--bos with --decode" 2 $anneal tokenize --tokenizer "$tmp/t.json" --decode --bos
t "data prepare" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/s.u16" --json
has "data prepare" out '"documents":60,'
cp "$tmp/s.u16" "$tmp/once.u16"
t "data prepare, two files" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --data "$tmp/stories.txt" --out "$tmp/s2.u16" --json
has "data prepare, two files" out '"documents":120,'
t "data prepare, two files are both there" 0 sh -c 'cat "$1" "$1" | cmp - "$2"' sh "$tmp/once.u16" "$tmp/s2.u16"
: >"$tmp/empty"
t "data prepare, an empty file" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/empty" --out "$tmp/e.u16"
has "data prepare, an empty file" err 'empty is empty'
t "data prepare, an empty file leaves none" 1 test -e "$tmp/e.u16"
t "data prepare, ids" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/s.u16" --out "$tmp/e.u16"
grep -v endoftext "$tmp/stories.txt" | sed G >"$tmp/blank.txt"
t "data prepare, no separator" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/blank.txt" --out "$tmp/e.u16" --json
has "data prepare, no separator" out '"documents":1,'
has "data prepare, no separator" err 'no <|endoftext|>.*--documents'
t "data prepare, blank lines" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/blank.txt" --documents blank --out "$tmp/e.u16" --json
has "data prepare, blank lines" out '"documents":60,'
empty "data prepare, blank lines" err
awk '{ printf "%s\r\n", $0 }' "$tmp/blank.txt" >"$tmp/crlf.txt"
t "data prepare, blank lines of CRLF" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/crlf.txt" --documents blank --out "$tmp/e.u16" --json
has "data prepare, blank lines of CRLF" out '"documents":60,'
empty "data prepare, blank lines of CRLF" err
grep -v '^$' "$tmp/blank.txt" >"$tmp/dense.txt"
t "data prepare, no blank line" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/dense.txt" --documents blank --out "$tmp/e.u16" --json
has "data prepare, no blank line" err 'documents blank found nowhere to cut: each such file is one document'
t "data prepare, nothing to be cut" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/dense.txt" --documents whole --out "$tmp/e.u16" --json
empty "data prepare, nothing to be cut" err
mkdir "$tmp/texts" && cp "$tmp/stories.txt" "$tmp/texts"
t "data prepare, a folder" 3 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/texts" --out "$tmp/e.u16"
has "data prepare, a folder" err 'texts is a folder; text is wanted: name its files'
rm "$tmp/e.u16"
for p in "$tmp/e.u16" "$tmp/./e.u16" "$tmp/texts/../e.u16"; do
    t "data prepare, one file for both" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation "$p" --validation-tokens 100
    has "data prepare, one file for both" err '^anneal: --out and --validation both go to '
    t "data prepare, one file for both: nothing is written" 1 test -e "$tmp/e.u16"
done
t "data prepare, two files of one name" 0 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation "$tmp/texts/e.u16" --validation-tokens 100
t "data prepare, ids for validation and no file" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/e.u16" --validation-tokens 100
has "data prepare, ids for validation and no file" err 'validation-tokens is about a second file: name it with --validation'
t "data prepare, bad name" 2 $anneal data prepare --tokenizer "$tmp/t.json" --data "$tmp/stories.txt" --out "$tmp/s.tok"
t "data prepare, option of stories" 2 $anneal data prepare --count 3
t "tokenizer without a verb" 2 $anneal tokenizer
