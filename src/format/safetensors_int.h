/* safetensors_int.h: what the reader and the writer agree on. */
#ifndef FORMAT_SAFETENSORS_INT_H
#define FORMAT_SAFETENSORS_INT_H

/* The format's own library stops at 100 MB; 32 MiB name a quarter of a million tensors. */
enum { SAFETENSORS_MAX_HEADER = 32 << 20 };

#endif
