#!/bin/sh
# The benchmark page. In: the anneal command; what to call this machine.  Out: the page, on standard output: this machine, then
# every benchmark as a table. It takes about ten minutes; nothing else should run.
anneal=${1:?usage: tools/speed.sh path/to/anneal [machine]}
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
threads=${AN_THREADS:-$(getconf _NPROCESSORS_ONLN)}
cat <<END
# Speed: ${2:-${cpu:-$(uname -m)}}

Every case is checked first, then timed; its rate stands beside a bound measured in turns with it, in the same run, so that whatever slows both
alike does not count. Least and median are times of one run. A product's bound is its kernel with operands in the first cache, that of what
moves memory is a copy by all threads, that of decoding is reading the weights.

Measured by \`sh tools/speed.sh build/anneal\` on $(date -u +%Y-%m-%d): ${cpu:-$(uname -m)}, threads: $threads. OpenBLAS and BLIS are timed in turns with ours
where they can be loaded.
END
exec "$anneal" bench --markdown
