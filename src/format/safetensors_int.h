/* safetensors_int.h: what the reader and the writer agree on. */
#ifndef FORMAT_SAFETENSORS_INT_H
#define FORMAT_SAFETENSORS_INT_H

#include "base/str.h"

/* The format's own library stops at 100 MB; 32 MiB name a quarter of a million tensors. */
enum { SAFETENSORS_MAX_HEADER = 32 << 20 };

/* One entry of a checksum of metadata: they are added up, so that their order does not matter. */
static inline uint64_t meta_hash(const char *key, const char *value)
{
    return hash_many(value, strlen(value), hash_many(key, strlen(key), 0));
}

#endif
