/* emit.c: the finished program: tensors in order of first use, instructions laid out by the instruction table, ports
 * sorted by name, the manifest of constants and their inline bytes. In: a planned compile.  Out: a program that owns
 * everything it needs. */
#include <stdlib.h>

#include "codegen/codegen_int.h"

typedef struct {
    cg *c;
    program *p;
    int *tensor;  /* ours -> the program's, NONE */
    int *entry;   /* const -> manifest, NONE */
    int *in_port; /* input in declaration order -> port */
    strbuf data;
    diag *d;
} out;

static void nomem(out *o) { diag_nomem(o->d); }

static const char *keep_str(out *o, const char *s)
{
    const char *k = s ? arena_str(&o->p->mem, s) : NULL;
    if (s && !k) nomem(o);
    return k;
}

static void put_dims(const shape *s, int *rank, int64_t *dim)
{
    *rank = s->rank;
    for (int i = 0; i < s->rank; i++) dim[i] = s->d[i];
}

static void put_const(out *o, int slot);

static int put_tensor(out *o, int t)
{
    if (t < 0 || o->d->st) return NONE;
    if (o->tensor[t] >= 0) return o->tensor[t];
    const tens *v = &o->c->t.at[t], *r = &o->c->t.at[v->root];
    /* the manifest names the tensor that is not a view */
    if (r->where == SPACE_CONST && v->root != t) put_tensor(o, v->root);
    etensor e = { .dt = v->dt, .where = r->where, .offset = v->at };
    put_dims(&v->sh, &e.rank, e.dim);
    if (r->where == SPACE_SCRATCH) e.offset += r->offset;
    if (r->where == SPACE_INPUT) e.slot = (uint32_t)o->in_port[r->slot];
    if (r->where == SPACE_OUTPUT) e.slot = (uint32_t)r->slot;
    o->tensor[t] = (int)o->p->tensors.n;
    if (!VEC_PUSH(&o->p->mem, &o->p->tensors, e)) {
        nomem(o);
        return NONE;
    }
    if (r->where == SPACE_CONST) {
        if (o->entry[r->slot] < 0) put_const(o, r->slot);
        if (!o->d->st) o->p->tensors.at[o->tensor[t]].slot = (uint32_t)o->entry[r->slot];
    }
    return o->tensor[t];
}

static void put_const(out *o, int slot)
{
    static const char zero[MEMORY_ALIGN] = { 0 };
    const cst *k = &o->c->consts.at[slot];
    const_entry e = { .kind = k->kind, .n_src = k->n_src, .axis = k->axis, .tensor = (uint32_t)o->tensor[k->tensor] };
    for (int i = 0; i < k->n_src; i++) {
        const source *s = &k->src[i];
        const_source *to = &e.src[i];
        *to = (const_source){ .path = keep_str(o, s->path), .offset = s->offset, .dt = s->dt, .bytes = s->bytes };
        put_dims(&s->sh, &to->rank, to->dim);
        if (s->path) continue;
        sb_putn(&o->data, zero, ROUND_UP(o->data.n, (size_t)MEMORY_ALIGN) - o->data.n);
        to->offset = o->data.n;
        sb_putn(&o->data, s->data, s->bytes);
    }
    o->entry[slot] = (int)o->p->consts.n;
    if (o->data.oom || !VEC_PUSH(&o->p->mem, &o->p->consts, e)) nomem(o);
}

static void put_ins(out *o, const ins *n)
{
    int n_param = 0;
    for (int k = 0; k < n->n_step; k++) n_param += fn_params(n->steps[k].fn);
    insn x = { .op = n->op, .line = n->line };
    int n_y = n->op == IN_EWS ? CHAIN_MOST_RESULTS : n->n_y;
    x.n_t = (uint32_t)(n_y + n->n_opnd + (n->chain ? 1 + n->n_ext : 0));
    x.n_i = (uint32_t)(n->i.n + (n->op == IN_EWS ? (size_t)n->n_y : 0) +
                       (n->chain ? 1 + (size_t)(n->n_step * CHAIN_STEP) : 0));
    x.n_f = (uint32_t)(n->n_f + (n->chain ? 1 + n_param : 0));
    int64_t *t = TAKE(&o->p->mem, int64_t, x.n_t + 1u), *i = TAKE(&o->p->mem, int64_t, x.n_i + 1u);
    double *f = TAKE(&o->p->mem, double, x.n_f + 1u);
    if (!t || !i || !f) {
        nomem(o);
        return;
    }
    x.t = t, x.i = i, x.f = f;
    for (int k = 0; k < n_y; k++) *t++ = k < n->n_y ? put_tensor(o, n->y[k]) : NONE;
    for (int k = 0; k < n->n_opnd; k++) *t++ = put_tensor(o, n->opnd[k]);
    for (size_t k = 0; k < n->i.n; k++) *i++ = n->i.at[k];
    for (int k = 0; k < n->n_f; k++) *f++ = n->f[k];
    if (n->op == IN_EWS) {
        *i++ = n->n_y - 1;
        for (int k = 1; k < n->n_y; k++) *i++ = n->from[k];
    }
    if (n->chain) {
        *t++ = n->n_ext;
        for (int k = 0; k < n->n_ext; k++) *t++ = put_tensor(o, n->ext[k]);
        *i++ = n->n_step * CHAIN_STEP;
        *f++ = n_param;
        int at = 0;
        for (int k = 0; k < n->n_step; k++) {
            const step *s = &n->steps[k];
            *i++ = s->fn;
            for (int j = 0; j < 3; j++) *i++ = s->arg[j];
            *i++ = at;
            *i++ = s->dt;
            for (int j = 0; j < fn_params(s->fn); j++) *f++ = s->p[j];
            at += fn_params(s->fn);
        }
    }
    if (!VEC_PUSH(&o->p->mem, &o->p->insns, x)) nomem(o);
}

/* ---- ports ---- */

static int by_name(const void *a, const void *b) { return strcmp(((const eport *)a)->name, ((const eport *)b)->name); }

/* Inputs sorted by name; in_port says where each one of the graph went. */
static void put_inputs(out *o)
{
    const graph *g = o->c->g;
    size_t n = g->inputs.n;
    eport *ports = TAKE(&o->p->mem, eport, n + 1);
    if (!ports) {
        nomem(o);
        return;
    }
    for (size_t i = 0; i < n; i++)
        ports[i] = (eport){ .name = keep_str(o, graph_value(g, g->inputs.at[i])->name), .tensor = (uint32_t)i };
    if (o->d->st) return;
    qsort(ports, n, sizeof *ports, by_name);
    for (size_t i = 0; i < n; i++) o->in_port[ports[i].tensor] = (int)i;
    for (size_t i = 0; i < o->c->t.n && !o->d->st; i++) {
        const tens *t = &o->c->t.at[i];
        if (t->where != SPACE_INPUT || t->root != (int)i) continue;
        eport *p = &ports[o->in_port[t->slot]];
        p->bytes = t->bytes;
        p->tensor = (uint32_t)put_tensor(o, (int)i);
    }
    for (size_t i = 0; i < n && !o->d->st; i++)
        if (!VEC_PUSH(&o->p->mem, &o->p->inputs, ports[i])) nomem(o);
}

static uint64_t hash_program(const program *p, uint64_t seed)
{
    uint64_t h = hash_bytes(p->data, (size_t)p->n_data, seed);
    for (size_t k = 0; k < p->insns.n; k++) {
        const insn *n = &p->insns.at[k];
        h = hash_bytes(&n->op, sizeof n->op, h);
        h = hash_bytes(n->t, n->n_t * sizeof *n->t, h);
        h = hash_bytes(n->i, n->n_i * sizeof *n->i, h);
        h = hash_bytes(n->f, n->n_f * sizeof *n->f, h);
    }
    for (size_t k = 0; k < p->tensors.n; k++) {
        const etensor *t = &p->tensors.at[k];
        const int64_t row[4] = { (int64_t)t->dt, (int64_t)t->where, t->slot, (int64_t)t->offset };
        h = hash_bytes(row, sizeof row, h);
        h = hash_bytes(t->dim, (size_t)t->rank * sizeof *t->dim, h);
    }
    for (size_t k = 0; k < p->consts.n; k++)
        for (int j = 0; j < p->consts.at[k].n_src; j++) {
            const const_source *s = &p->consts.at[k].src[j];
            if (s->path) h = hash_bytes(s->path, strlen(s->path), h);
            h = hash_bytes(&s->offset, sizeof s->offset, h);
        }
    const eport *ports[2] = { p->inputs.at, p->outputs.at };
    for (int k = 0; k < 2; k++)
        for (size_t j = 0; j < (k ? p->outputs.n : p->inputs.n); j++)
            h = hash_bytes(ports[k][j].name, strlen(ports[k][j].name), h);
    return hash_bytes(&p->num, sizeof p->num, h);
}

program *emit_program(cg *c, diag *d)
{
    out o = { .c = c, .d = d };
    o.p = program_new(c->g->title ? c->g->title : "program", c->o.target ? c->o.target : "cpu", c->num);
    o.tensor = TAKE(&c->mem, int, c->t.n + 1);
    o.entry = TAKE(&c->mem, int, c->consts.n + 1);
    o.in_port = TAKE(&c->mem, int, c->g->inputs.n + 1);
    if (!o.p || !o.tensor || !o.entry || !o.in_port) {
        program_free(o.p);
        diag_nomem(d);
        return NULL;
    }
    o.p->mem.limit = c->o.limit;
    for (size_t i = 0; i < c->t.n; i++) o.tensor[i] = NONE;
    for (size_t i = 0; i < c->consts.n; i++) o.entry[i] = NONE;
    put_inputs(&o);
    for (size_t i = 0; i < c->ins.n && !d->st; i++) put_ins(&o, &c->ins.at[i]);
    for (size_t i = 0; i < c->consts.n && !d->st; i++)
        if (c->consts.at[i].kind == CK_CAUSAL || c->consts.at[i].kind == CK_FIXED)
            put_tensor(&o, c->consts.at[i].tensor); /* no instruction reads it */
    for (size_t i = 0; i < c->outs.n && !d->st; i++) {
        int t = (int)c->outs.at[i].tensor;
        eport p = { .name = keep_str(&o, c->outs.at[i].name),
                    .bytes = c->t.at[cg_root(c, t)].bytes,
                    .tensor = (uint32_t)put_tensor(&o, t) };
        if (!VEC_PUSH(&o.p->mem, &o.p->outputs, p)) nomem(&o);
    }
    unsigned char *data = d->st ? NULL : arena_take(&o.p->mem, o.data.n + 1, 1, MEMORY_ALIGN);
    if (!d->st && !data) nomem(&o);
    if (data && o.data.n) memcpy(data, o.data.at, o.data.n);
    o.p->data = data;
    o.p->n_data = o.data.n;
    o.p->scratch_bytes = c->scratch;
    sb_free(&o.data);
    if (d->st) {
        program_free(o.p);
        return NULL;
    }
    o.p->mem.limit = 0;
    o.p->key = c->o.key ? c->o.key : hash_program(o.p, 0);
    return o.p;
}
