/* facts_legality.c: what a chip's compiler takes and refuses. In: legality.def, programs with a verdict.  Out:
 * whether the rules and the device of the chip say the same; rows about images and types that need a run. */
#include "check/check.h"
#include "facts/facts_int.h"
#include "target/target.h"

typedef enum { ACCEPT, REJECT, PASSES } verdict;

static const struct {
    const char *fact, *chip;
    verdict want;
    const char *words, *params, *results, *body;
} programs[] = {
#define LEGAL(...) LEGAL_ROW(__VA_ARGS__)
#define LEGAL_ROW(fact_, chip_, want_, words_, params_, results_, body_)                                              \
    { .fact = #fact_, .chip = chip_, .want = want_, .words = words_, .params = params_, .results = results_, .body = body_ },
#include "facts/legality.def"
#undef LEGAL
#undef LEGAL_ROW
};

/* What one program of the table met: the rules by themselves, and the device of its chip. */
typedef struct {
    const check_report *r;
    bool spoke; /* an error has the words */
    const char *message;
    diag said; /* by the device: AN_OK when it compiled and loaded */
} answer;

static bool says(const check_report *r, const char *words, const char **message)
{
    bool found = false;
    for (size_t i = 0; i < r->found.n; i++) {
        const finding *x = &r->found.at[i];
        if (x->sev != SEV_ERROR) continue;
        if (!*message) *message = x->message;
        if (!strstr(x->message, words)) continue;
        if (!found) *message = x->message;
        found = true;
    }
    return found;
}

static bool rule_spoke(const check_report *r, const char *rule)
{
    for (size_t i = 0; i < r->found.n; i++)
        if (r->found.at[i].sev == SEV_ERROR && !strcmp(r->found.at[i].rule, rule)) return true;
    return false;
}

static bool device_refused(const answer *a) { return a->said.st == AN_UNSUPPORTED || a->said.st == AN_INPUT; }

static bool is_accepted(const answer *a, const char *words) { return (void)words, !a->r->status && !a->said.st; }
static bool is_rejected(const answer *a, const char *words)
{
    return a->r->status && a->spoke && device_refused(a) && strstr(a->said.msg, words);
}
static bool is_passed(const answer *a, const char *words)
{
    char rule[64];
    snprintf(rule, sizeof rule, "(%s)", words);
    return !rule_spoke(a->r, words) && (!a->said.st || (device_refused(a) && !strstr(a->said.msg, rule)));
}

static bool (*const agrees[])(const answer *a, const char *words) = {
    [ACCEPT] = is_accepted, [REJECT] = is_rejected, [PASSES] = is_passed
};

/* Weights of any file: zeros. */
static an_status zeros(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes, const void **at,
                       diag *d)
{
    fx *f = user;
    (void)path, (void)offset, (void)dt;
    *at = arena_take(&f->mem, (size_t)bytes, 1, 64);
    return *at ? AN_OK : diag_nomem(d);
}

static an_status on_device(fx *f, const char *target, const char *text, diag *said)
{
    device *dev = NULL;
    dev_program *p = NULL;
    char name[40];
    snprintf(name, sizeof name, "soft:%s", target);
    TRY(device_open(&dev, name, &(device_options){ .threads = 1 }, f->d));
    an_status st = device_compile(
        dev,
        &(dev_source){
            .text = text, .n_text = strlen(text), .file = f->row->id, .weights = { .record = zeros, .user = f } },
        &p, said);
    if (!st) st = dev_program_load(p, said);
    device_close(dev);
    return st == AN_NOMEM ? diag_nomem(f->d) : AN_OK;
}

/* Whether program i of the table is judged as it says; what: the refusal, in the device's words where it is not the
 * one wanted. */
static an_status judge(fx *f, size_t i, bool *ok, bool *taken, const char **what)
{
    const char *text = fx_text(f, programs[i].params, programs[i].results, "%s", programs[i].body);
    const chip *c = chip_find(programs[i].chip);
    check_report *r = NULL;
    answer a = { .message = "" };
    if (!text || !c) return diag_nomem(f->d);
    TRY(on_device(f, programs[i].chip, text, &a.said));
    TRY(check_text(text, strlen(text), &(check_options){ .file = f->row->id, .target = &c, .n_target = 1 }, &r, f->d));
    a.r = r, a.spoke = says(r, programs[i].words, &a.message);
    *ok = agrees[programs[i].want](&a, programs[i].words);
    *taken = !a.said.st;
    *what = arena_str(&f->mem, !*ok && a.said.st ? a.said.msg : a.message);
    check_free(r);
    return *what ? AN_OK : diag_nomem(f->d);
}

/* All programs of the row, by the rules and on the chip's device. got: the last refusal, or how many compiled and
 * loaded. */
an_status fact_legal(fx *f)
{
    int n = 0, good = 0, accepted = 0;
    const char *last = "", *wrong = NULL, *wrong_chip = "";
    for (size_t i = 0; i < COUNT(programs); i++) {
        if (strcmp(programs[i].fact, f->row->id)) continue;
        bool ok, taken;
        const char *what;
        TRY(judge(f, i, &ok, &taken, &what));
        n++;
        good += ok;
        accepted += taken;
        if (programs[i].want == REJECT) last = what;
        if (!ok && !wrong)
            wrong = arena_printf(&f->mem, "%d: %s", n, *what ? what : "accepted"), wrong_chip = programs[i].chip;
    }
    if (wrong) return fx_verdict(f, false, "%d of %d; on %s program %s", good, n, wrong_chip, wrong);
    if (accepted == n) return fx_verdict(f, n && good == n, "%d of %d accepted", accepted, n);
    return fx_verdict(f, n && good == n, "%d accepted, %d refused: %s", accepted, n - accepted, last);
}

/* A convolution whose weight is an input. */
an_status fact_dynamic_conv(fx *f)
{
    enum { C = 4, SIDE = 8, OUT = 6, K = 3 };
    const char *text = fx_text(f, FX_T("1, 4, 8, 8") " x, " FX_T("4, 4, 3, 3") " w", "y",
                               FX_T("1, 4, 6, 6") " y = conv(x = x, weight = w, pad_type = string(\"valid\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), "
                               "dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y\")];");
    double *x = fx_normal(f, C * SIDE * SIDE, 381, 1), *w = fx_normal(f, C * C * K * K, 382, 1),
           *want = fx_take(f, C * OUT * OUT);
    fx_val y = { .name = "y" };
    if (!x || !w || !want) return diag_nomem(f->d);
    for (int o = 0; o < C; o++)
        for (int p = 0; p < OUT * OUT; p++)
            for (int i = 0; i < C * K * K; i++)
                want[o * OUT * OUT + p] +=
                    w[o * C * K * K + i] *
                    x[i / (K * K) * SIDE * SIDE + (p / OUT + i / K % K) * SIDE + p % OUT + i % K];
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, (fx_val[]){ { "x", x, C * SIDE * SIDE }, { "w", w, C * C * K * K } }, 2,
                &y, 1));
    double cosine = fx_cosine(y.x, want, y.n);
    return fx_verdict(f, cosine >= 0.99995, "cosine %.4f", cosine);
}

/* Program bytes that no daemon has signed. */
an_status fact_foreign_image(fx *f)
{
    fx_prog g;
    strbuf bytes = { 0 };
    dev_program *again = NULL;
    engine_error said = { 0 };
    diag refused = { 0 };
    TRY(fx_open(f, &g, fx_chip(f, 0), fx_text(f, FX_T("1, 64, 1, 64") " x", "y", FX_T("1, 64, 1, 64") " y = relu(x = x)[name = string(\"y\")];"), NULL));
    an_status st = dev_program_bytes(g.p, &bytes, f->d);
    an_status adopted = st ? st : device_adopt(g.dev, bytes.at, bytes.n, &(dev_weights){ 0 }, &again, &refused);
    device_error(g.dev, &said);
    fx_close(&g);
    sb_free(&bytes);
    TRY(st);
    if (adopted == AN_NOMEM) return diag_nomem(f->d);
    return fx_verdict(f, adopted && said.status == (uint32_t)fx_arg(f, 0), "status 0x%08x: %.120s",
                      (unsigned)said.status, said.text);
}

/* uint8 pixels dequantised in the graph, against pixels converted on the host. */
an_status fact_image_input(fx *f)
{
    enum { N = 3 * 16 * 32 };
    double *bytes = fx_take(f, N), *host = fx_take(f, N);
    if (!bytes || !host) return diag_nomem(f->d);
    double scale = f16_to_f64(f16_from_f64(1.0 / 255));
    for (int i = 0; i < N; i++) bytes[i] = i % 256, host[i] = dtype_round(DT_F16, scale * bytes[i]);
    const char *in_graph = fx_text(f, "tensor<uint8, [1, 3, 16, 32]> x", "y",
                                   "fp16 s = const()[name = string(\"s\"), val = fp16(%.9g)];\n" FX_T("1, 3, 16, 32") " d = dequantize(input = x, scale = s)[name = string(\"d\")];\n"
                                   FX_T("1, 3, 16, 32") " y = mul(x = d, y = d)[name = string(\"y\")];", scale);
    const char *on_host = fx_text(f, FX_T("1, 3, 16, 32") " x", "y", FX_T("1, 3, 16, 32") " y = mul(x = x, y = x)[name = string(\"y\")];");
    fx_val a = { .name = "y" }, b = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), in_graph, NULL, &(fx_val){ "x", bytes, N }, 1, &a, 1));
    TRY(fx_once(f, fx_chip(f, 0), on_host, NULL, &(fx_val){ "x", host, N }, 1, &b, 1));
    int same = 0;
    for (int i = 0; i < N; i++) same += fx_same(a.x[i], b.x[i]);
    return fx_verdict(f, same == N, "%d of %d identical", same, (int)N);
}
