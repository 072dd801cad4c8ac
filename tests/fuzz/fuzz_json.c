/* fuzz_json: any bytes as a config.json. A configuration that is accepted is valid, and written again it reads back
 * the same. */
#include "fuzz_t.h"
#include "lm/lm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    model_config c, again;
    lm_generation g, g2;
    if (lm_config_read("config.json", data, n, &c, &g, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0]);
        return 0;
    }
    strbuf out = { 0 };
    need(!model_config_check(&c, &d) && g.n_eos >= 0 && g.n_eos <= LM_MAX_EOS);
    /* a choice no single family has: windows with biases */
    if (lm_config_json(&c, &g, &out, &d)) need(d.st == AN_INPUT);
    else {
        need(!lm_config_read("again.json", out.at, out.n, &again, &g2, &d));
        need(c.dim == again.dim && c.n_layers == again.n_layers && c.window == again.window &&
             c.scaling.kind == again.scaling.kind);
        need(c.scaling.factor == again.scaling.factor && c.norm_eps == again.norm_eps &&
             c.rope_theta == again.rope_theta && c.tied == again.tied);
        need(g.bos == g2.bos && g.n_eos == g2.n_eos);
    }
    sb_free(&out);
    return 0;
}
