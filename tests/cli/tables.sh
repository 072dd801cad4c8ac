# shellcheck shell=sh disable=SC2013,SC2016,SC2034,SC2086,SC2154
# Help, tables, doctor, and arguments that no command takes. Read by cli.sh.
t "no arguments" 2 $anneal
has "usage on stderr" err '^usage: anneal'
empty "no arguments" out
t "help" 0 $anneal --help
has "help on stdout" out '^usage: anneal'
empty "help" err
t "unknown command" 2 $anneal frobnicate
has "unknown command" err 'no command "frobnicate"'
for w in trian:train gen:generate; do
    t "misspelt command ${w%:*}" 2 $anneal ${w%:*}
    has "misspelt command ${w%:*}" err "did you mean ${w#*:}?"
    t "help of a misspelt command ${w%:*}" 2 $anneal help ${w%:*}
done
t "version" 0 $anneal --version
has "version" out '^anneal [0-9]'
for c in --version --help "check --help"; do t "$c on a full disk" 3 sh -c "$anneal $c >/dev/full"; done
for c in $($anneal --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    t "$c --help" 0 $anneal $c --help
    has "$c --help shows an example" out '^example: anneal'
    t "$c --help, no line is too long" 1 grep -q '.\{110\}' "$tmp/out"
done
for c in ops targets rules gates passes kernels isa limits probe doctor; do
    t "$c" 0 $anneal $c
    t "$c --json" 0 $anneal $c --json
    has "$c --json" out '^{".*}$'
    if command -v python3 >/dev/null 2>&1; then
        t "$c --json is JSON" 0 python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$tmp/out"
    fi
done
# doctor: what is here, and variables that no command would run with
t "doctor, a strongest instruction set" 0 env AN_ISA=scalar AN_THREADS=3 ANNEAL_CACHE="$tmp/nowhere" ANNEAL_CACHE_BYTES=3k $anneal doctor --json
has "doctor, threads" out '^{"kind":"threads","count":3,"from":"AN_THREADS"}$'
has "doctor, cache" out '^{"kind":"cache","folder":".*/nowhere","programs":0,"bytes":0,"most_bytes":3072,"why_not":""}$'
has "doctor, libraries" out '^{"kind":"library","name":"jansson","version":"[0-9.]*","found":true'
has "doctor, libraries that may be there" out '^{"kind":"library","name":"openblas",.*"get":"apt-get install '
t "doctor, no instruction set in use" 1 grep -q '"kind":"isa".*"used":true' "$tmp/out"
t "doctor makes no folder" 1 test -e "$tmp/nowhere"
for v in AN_ISA=mmx AN_THREADS=many ANNEAL_CACHE_BYTES=2T; do
    t "doctor, $v" 3 env $v $anneal doctor
    has "doctor, $v" out "problem .*$v: "
    has "doctor, $v" err "^anneal: $v: "
    has "doctor, $v, the rest" out 'soft:<chip>'
done
grep '^\.B' docs/anneal.1 >"$tmp/man"
for c in $($anneal --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    t "man page, $c" 0 grep -qw "$c" "$tmp/man"
done
for v in $(grep -rho 'getenv("AN[A-Z_]*")' src | cut -d'"' -f2 | sort -u); do
    t "man page, $v" 0 grep -qw "$v" "$tmp/man"
done
t "unknown option" 2 $anneal check --tarket m1 examples/conv.mil
has "unknown option is guessed" err 'did you mean --target'
t "option without value" 2 $anneal check --target
t "table takes no file" 2 $anneal ops examples/conv.mil
t "two forms of one table" 2 $anneal ops --json --markdown
