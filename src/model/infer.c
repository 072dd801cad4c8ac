/* infer.c: the programs of text generation: a prompt in one go, then token by token.
 * In: the residual stream.  Out: the stream after a block, and what the key/value cache keeps.
 *
 * A prompt is padded to a bucket; the causal mask keeps the padding out of every real position. Decoding runs the
 * matrices on the engine and attention over the cache on the host, whose length changes with every token. Its
 * programs are as wide as the smallest safe surface; the token is position 0 and the rest is ignored. */
#include "model/model_int.h"

void build_prefill_attn(kernel *k)
{
    val x = port_in(k, "x");
    qkv p = block_qkv(k, x, true);
    val attn = block_attend(k, &p);
    port_out(k, "x", block_residual(k, x, nn_linear(k->g, attn, weight(k, MW_WO), weight(k, MW_BO)), MW_POST1));
    port_out(k, "k", p.k);
    port_out(k, "v", p.v);
}

void build_prefill_ffn(kernel *k) { port_out(k, "x", block_ffn(k, port_in(k, "x")).y); }

void build_decode_proj(kernel *k)
{
    qkv p = block_qkv(k, port_in(k, "x"), false);
    port_out(k, "q", p.q);
    port_out(k, "k", p.k);
    port_out(k, "v", p.v);
}

void build_decode_ffn(kernel *k) { port_out(k, "x", block_ffn(k, port_in(k, "x")).y); }
