#!/bin/sh
# embed.sh FILE…: the probe programs as a C table on stdout. Leading "// key: value" lines become columns; the text keeps
# the program alone, because a remark is not part of the dialect Apple's parser is known to take.
echo '#include "api/api_int.h"'
echo 'const probe_text probe_texts[] = {'
for f in "$@"; do
    awk -v name="$(basename "$f" .mil)" '
        function quote(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return s }
        /^\/\/ claim: /  { claim = substr($0, 11); next }
        /^\/\/ rule: /   { rule = substr($0, 10); next }
        /^\/\/ result: / { result = substr($0, 12); next }
        { text = text "\n        \"" quote($0) "\\n\"" }
        END { printf "    { \"%s\", \"%s\", \"%s\", \"%s\",%s },\n", name, quote(claim), rule, quote(result), text }' "$f"
done
echo '};'
echo 'const size_t n_probe_texts = sizeof probe_texts / sizeof *probe_texts;'
