/* print.c: the kernels and the presets as text, JSON lines or a document. Every word comes from the two tables. */
#include "model/model_int.h"

static const char *const scope_words[] = {
    [RUN_UP] = "per layer, up", [RUN_DOWN] = "per layer, down", [RUN_ONCE] = "once"
};
static const char *const rope_words[] = {
    [MODEL_ROPE_NONE] = "none", [MODEL_ROPE_INTERLEAVED] = "interleaved", [MODEL_ROPE_HALF] = "half"
};
static const char *const norm_words[] = { [MODEL_NORM_RMS] = "rms", [MODEL_NORM_LAYER] = "layer" };
static const char *const act_words[] = {
    [MODEL_ACT_SWIGLU] = "swiglu", [MODEL_ACT_GELU] = "gelu", [MODEL_ACT_GEGLU] = "geglu"
};
static const struct {
    int set;
    const char *name;
} sets[] = { { MODEL_SET_TRAIN, "train" },
             { MODEL_SET_PREFILL, "prefill" },
             { MODEL_SET_DECODE, "decode" },
             { MODEL_SET_FUSED, "fused" } };

static void put_sets(strbuf *b, int have, const char *quote, const char *between)
{
    bool any = false;
    for (size_t i = 0; i < COUNT(sets); i++) {
        if (!(have & sets[i].set)) continue;
        sb_printf(b, "%s%s%s%s", any ? between : "", quote, sets[i].name, quote);
        any = true;
    }
}

static const char kernels_head[] =
    "# Kernels\n\nPrinted by `anneal kernels --markdown` from `src/model/kernels.def`. Ports are `name:channels` with `[1, channels, 1, S]`:\n"
    "D width, H feed-forward width, Q and K all query and key/value heads, A heads times S (scores), T one, `V*` one port per part of\n"
    "the vocabulary. `?g` only with swiglu, `?n` only with q/k norm, `?r` only when the program adds the residual.\n\n"
    "| kernel | used in | runs | inputs | outputs | what |\n|---|---|---|---|---|---|\n";

void model_kernels_print(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown) sb_puts(b, kernels_head);
    for (int i = 0; i < MK_COUNT; i++) {
        const kernel_row *r = &kernel_rows[i];
        if (json) {
            sb_printf(b, "{\"kernel\":\"%s\",\"sets\":[", r->name);
            put_sets(b, r->sets, "\"", ",");
            sb_printf(b, "],\"runs\":\"%s\",\"inputs\":\"%s\",\"outputs\":\"%s\",\"doc\":", scope_words[r->scope],
                      r->in, r->out);
            sb_json(b, r->doc, strlen(r->doc));
            sb_puts(b, "}\n");
        } else if (markdown) {
            sb_printf(b, "| %s | ", r->name);
            put_sets(b, r->sets, "", ", ");
            sb_printf(b, " | %s | `%s` | `%s` | %s |\n", scope_words[r->scope], r->in, r->out, r->doc);
        } else {
            sb_printf(b, "%-15s %-16s %s -> %s\n    %s\n", r->name, scope_words[r->scope], r->in, r->out, r->doc);
        }
    }
}

static const char presets_head[] =
    "# Models\n\nPrinted by `anneal kernels --markdown` from `src/model/presets.def`.\n\n"
    "| model | layers | D | H | heads | kv heads | head width | S | context | V | eps | rope | theta | norm | act | q/k norm | parameters |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/* One list of columns; the three forms differ only in what stands around each. */
enum { COLUMNS = 17 };
static const char *const column_names[COLUMNS] = { "model", "layers", "dim",  "hidden", "heads", "kv_heads", "head_dim", "seq",       "context",
                                                   "vocab", "eps",    "rope", "theta",  "norm",  "act",      "qk_norm",  "parameters" };
static const bool column_is_text[COLUMNS] = { [0] = true, [11] = true, [13] = true, [14] = true };

static void put_column(strbuf *b, const model_config *c, int column)
{
    const int64_t whole[] = { 0,           c->n_layers, c->dim,     c->hidden, c->n_heads, c->n_kv_heads,
                              c->head_dim, c->seq,      c->context, c->vocab };
    switch (column) {
    case 0: sb_puts(b, c->name); break;
    case 10: sb_printf(b, "%g", c->norm_eps); break;
    case 11: sb_puts(b, rope_words[c->rope]); break;
    case 12: sb_printf(b, "%g", c->rope_theta); break;
    case 13: sb_puts(b, norm_words[c->norm]); break;
    case 14: sb_puts(b, act_words[c->act]); break;
    case 15: sb_puts(b, c->qk_norm ? "true" : "false"); break;
    case 16: sb_printf(b, "%lld", (long long)model_params(c)); break;
    default: sb_printf(b, "%lld", (long long)whole[column]); break;
    }
}

void model_presets_print(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown) sb_puts(b, presets_head);
    for (size_t i = 0; i < model_preset_count(); i++) {
        const model_config *c = model_preset_at(i);
        sb_puts(b, json ? "{" : markdown ? "| " : "");
        for (int k = 0; k < COLUMNS; k++) {
            const char *quote = json && column_is_text[k] ? "\"" : "";
            if (json) sb_printf(b, "%s\"%s\":%s", k ? "," : "", column_names[k], quote);
            else if (markdown) sb_puts(b, k ? " | " : "");
            else if (k) sb_printf(b, "  %s ", column_names[k]);
            put_column(b, c, k);
            sb_puts(b, quote);
        }
        sb_puts(b, json ? "}\n" : markdown ? " |\n" : "\n");
    }
}
