/* text_int.h: what printing, reading and comparing graphs share. */
#ifndef GRAPH_TEXT_INT_H
#define GRAPH_TEXT_INT_H

#include "graph/graph.h"

enum { TEXT_FEW = 16 }; /* constants of at most so many elements are written out; larger ones as bytes */

/* How a node was written, as words after the statement: `y = add(x, c) !inline`. */
static const struct {
    unsigned bit;
    const char *word;
} text_flags[] = {
    { INST_INLINE_ARG, "inline" },
    { INST_DYNAMIC_ATTR, "dynamic" },
    { INST_BLOB_DATA_OFFSET, "data_offset" },
    { INST_AGAIN, "again" },
    { INST_STATE, "state" },
};

void text_number(strbuf *b, dtype dt, double x); /* fewest digits that read back as x when held in dt */

#endif
