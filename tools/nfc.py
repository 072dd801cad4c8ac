#!/usr/bin/env python3
"""Prints src/text/nfc.def from Python's own Unicode database: python3 tools/nfc.py > src/text/nfc.def"""
import unicodedata as u

cps = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def rows(name, items, width=150):
    line = ""
    for it in items:
        cell = f"{name}({it})"
        if len(line) + len(cell) + 1 > width:
            print(line)
            line = ""
        line += (" " if line else "") + cell
    if line:
        print(line)


print(f"""/* nfc.def: what NFC needs to know, Unicode {u.unidata_version}. Printed by tools/nfc.py.
 * DECOMPOSE(character, first, second or 0): canonical decompositions, Hangul aside, by character.
 * COMPOSE(second, first, character): the pairs that compose, by second, then first.
 * COMBINING(from, to, class): canonical combining classes other than 0, by character.
 * BLOCK(n): characters n*256 … n*256+255 hold one of the above, or one that composes with what stands before it. */
#ifndef DECOMPOSE
#define DECOMPOSE(c, a, b)
#endif
#ifndef COMPOSE
#define COMPOSE(b, a, c)
#endif
#ifndef COMBINING
#define COMBINING(from, to, class)
#endif
#ifndef BLOCK
#define BLOCK(n)
#endif
""")
dec, second, blocks = [], set(), set()
for c in cps:
    d = u.decomposition(chr(c))
    if d and not d.startswith("<"):
        p = [int(x, 16) for x in d.split()]
        a, b = p[0], p[1] if len(p) > 1 else 0
        back = 1 if b and u.normalize("NFC", chr(a) + chr(b)) == chr(c) else 0
        dec.append((c, a, b, back))
        blocks.add(c >> 8)
        if back:
            second.add(b)
rows("DECOMPOSE", [f"{c:#x},{a:#x},{b:#x}" for c, a, b, k in dec])
print()
rows("COMPOSE", [f"{b:#x},{a:#x},{c:#x}" for b, a, c in sorted((b, a, c) for c, a, b, k in dec if k)])
print()
runs = []
for c in cps:
    k = u.combining(chr(c))
    if not k:
        continue
    blocks.add(c >> 8)
    if runs and runs[-1][1] == c - 1 and runs[-1][2] == k:
        runs[-1][1] = c
    else:
        runs.append([c, c, k])
rows("COMBINING", [f"{a:#x},{b:#x},{k}" for a, b, k in runs])
print()
blocks |= {b >> 8 for b in second} | {0x11} | set(range(0xAC, 0xD8))
rows("BLOCK", [f"{b:#x}" for b in sorted(blocks)])
print("""
#undef DECOMPOSE
#undef COMPOSE
#undef COMBINING
#undef BLOCK""")
