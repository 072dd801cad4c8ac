#!/bin/sh
# The weights of conv.mil: numbers from a formula, put into a weight file by the compiler.   weights.sh ANNEAL FOLDER
anneal=${1:?usage: weights.sh ANNEAL FOLDER}
folder=${2:?usage: weights.sh ANNEAL FOLDER}
awk 'BEGIN {
    print "graph \"weights\"\nx = input fp16[1, 16, 3, 3]"
    printf "w = const fp16[16, 16, 3, 3] {"
    for (i = 0; i < 16 * 16 * 9; i++) printf "%s%g", i ? ", " : "", ((i * 37) % 61 - 30) / 128
    print "}\ny = conv(x, w) {pad_type=\"valid\"}\nreturn y"
}' | $anneal compile - --no-opt --out "$folder/weights.mil" && rm "$folder/weights.mil"
