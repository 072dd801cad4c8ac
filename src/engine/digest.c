/* digest.c: a checksum of the constants an image holds, reconstructed as the instructions read them. It is taken from the image,
 * not from where the weights came from: that is what makes it a proof that new weights are in use. */
#include "engine/engine_int.h"

uint64_t image_digest(const image *im)
{
    uint64_t sum = im->p->consts.n;
    for (size_t i = 0; i < im->p->consts.n; i++) {
        uint64_t bytes;
        const etensor *t = &im->p->tensors.at[im->p->consts.at[i].tensor];
        if (im->const_at[i] && et_bytes(t, &bytes)) sum = hash_bytes(im->const_at[i], (size_t)bytes, sum);
    }
    return sum;
}
