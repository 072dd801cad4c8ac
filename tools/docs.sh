#!/bin/sh
# The documents that are printed from tables: docs.sh ANNEAL compares them, docs.sh ANNEAL FOLDER rewrites them there.
anneal=$1 to=$2 bad=0
for t in ops targets rules gates passes kernels isa limits; do
    if [ -n "$to" ]; then
        $anneal $t --markdown >"$to/$t.md" || exit 1
    elif ! $anneal $t --markdown | cmp -s - "docs/$t.md"; then
        echo "docs/$t.md is not what \`anneal $t --markdown\` prints: run make accept and read the diff"
        bad=1
    fi
done
# hwx.md: the fields of program files.
if [ -n "$to" ]; then
    $anneal hwx fields --markdown >"$to/hwx.md" || exit 1
elif ! $anneal hwx fields --markdown | cmp -s - docs/hwx.md; then
    echo "docs/hwx.md is not what \`anneal hwx fields --markdown\` prints: run make accept and read the diff"
    bad=1
fi
# numerics.md is written by hand down to a mark; what follows is printed.
mark='<!-- anneal facts --markdown -->'
page() { sed "/^$mark\$/q" docs/numerics.md && $anneal facts --markdown; }
if [ -n "$to" ]; then
    new=$(page) && printf '%s\n' "$new" >"$to/numerics.md" || exit 1
elif ! page | cmp -s - docs/numerics.md; then
    echo "docs/numerics.md does not end with what \`anneal facts --markdown\` prints: run make accept and read the diff"
    bad=1
fi
# anneal.1 is written by hand but for its OPTIONS, which stand between two marks.
man() {
    sed '/^\.\\" begin: /q' docs/anneal.1 && $anneal help --man && sed -n '/^\.\\" end$/,$p' docs/anneal.1
}
if [ -n "$to" ]; then
    new=$(man) && printf '%s\n' "$new" >"$to/anneal.1" || exit 1
elif ! man | cmp -s - docs/anneal.1; then
    echo "the OPTIONS of docs/anneal.1 are not what \`anneal help --man\` prints: run make accept and read the diff"
    bad=1
fi
# README.md has a table of the benchmark pages between two marks. It stands beside docs.
readme() {
    sed '/^<!-- tools\/speed_table.sh -->$/q' README.md && sh tools/speed_table.sh docs/speed_*.md &&
        sed -n '/^<!-- end -->$/,$p' README.md
}
if [ -n "$to" ]; then
    new=$(readme) && printf '%s\n' "$new" >"$to/../README.md" || exit 1
elif ! readme | cmp -s - README.md; then
    echo "the table of README.md is not what tools/speed_table.sh prints of docs/speed_*.md: run make accept and read the diff"
    bad=1
fi
exit $bad
