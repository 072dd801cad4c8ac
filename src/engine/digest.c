/* digest.c: a checksum of the constants an image holds, as the instructions read them: reconstructed, or as they are stored. It is taken from the image,
 * not from where the weights came from: that is what makes it a proof that new weights are in use. */
#include "engine/engine_int.h"

uint64_t image_digest(const image *im)
{
    uint64_t sum = im->p->consts.n;
    for (size_t i = 0; i < im->p->consts.n; i++) {
        uint64_t bytes;
        const const_entry *c = &im->p->consts.at[i];
        const etensor *t = &im->p->tensors.at[c->tensor];
        for (int k = 0; !im->const_at[i] && im->stored[i].at[0] && k < c->n_src; k++) sum = hash_many(im->stored[i].at[k], (size_t)c->src[k].bytes, sum);
        if (im->const_at[i] && et_bytes(t, &bytes)) sum = hash_many(im->const_at[i], (size_t)bytes, sum);
    }
    return sum;
}
