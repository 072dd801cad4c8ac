#!/bin/sh
# Who may include whom: every #include "folder/..." under src/ must be allowed by a row of layers.txt.
# A folder's own headers are always allowed; x_int.h stays inside x.
cd "$(dirname "$0")/.." || exit 2
grep -rnE '^#include "[a-z]+/' src | awk '
  NR == FNR { for (i = 2; i <= NF; i++) ok[$1 $i] = 1; known[$1] = 1; next }
  {
    split($0, p, /[\/:]/); match($0, /"[a-z]+\//); to = substr($0, RSTART + 1, RLENGTH - 2)
    if (!known[p[2] ":"]) { print "no row for folder " p[2] ": " $0; bad = 1 }
    else if (p[2] != to && !ok[p[2] ":" to]) { print "layer " p[2] " may not include " to ": " $0; bad = 1 }
    else if (p[2] != to && $0 ~ /_int\.h"/) { print "private header crosses a folder: " $0; bad = 1 }
  }
  END { exit bad }' tools/layers.txt -
