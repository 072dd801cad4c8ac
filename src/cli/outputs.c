/* outputs.c: files that would be lost without a word: those a command reads, when it writes to them, and one of two
 * results that go to one place. Known before anything is written. */
#include "cli/files.h"

/* "--out y", "--plot"; what is no option is the command's own. */
static void put_option(strbuf *b, const args *a, const named_file *f)
{
    sb_printf(b, "%s%s%s%s", *f->option ? "--" : "", *f->option ? f->option : a->cmd->name, f->of ? " " : "",
              f->of ? f->of : "");
}

static void put_spelling(strbuf *b, const named_file *f, const named_file *other)
{
    sb_printf(b, "\"%s\"", f->path);
    if (strcmp(f->path, other->path)) sb_printf(b, ", also spelt \"%s\"", other->path);
}

static int tell(strbuf *b)
{
    int code = b->oom ? say(AN_NOMEM, "out of memory") : say(AN_USAGE, "%s", b->at);
    sb_free(b);
    return code;
}

/* A program as text again, which can be read as before; a listing or a drawing of it could not. */
static bool is_text(const args *a)
{
    const char *as = arg_of(a, "emit");
    return as && (!strncmp(as, "mil", 3) || !strcmp(as, "graph"));
}

/* Where it is meant: a folder of checkpoints is gone on from, with all its files, and a program is rewritten. */
static bool is_in_place(const args *a, const named_file *out, const named_file *in)
{
    if (out->behind || in->behind) return out->behind && in->behind;
    return out->kind == in->kind && (out->kind == FILE_RUN || (out->kind == FILE_PROGRAM && is_text(a)));
}

static int not_read(const args *a, const named_files *out, const named_files *in)
{
    path_info o, i;
    for (size_t k = 0; k < out->n; k++) {
        const named_file *w = &out->at[k];
        if (!path_look(w->path, &o) || !o.plain) continue; /* a new file is no harm; into a folder others are put */
        for (size_t n = 0; n < in->n; n++) {
            const named_file *r = &in->at[n];
            if (is_in_place(a, w, r) || (r->tensors && w->kind == FILE_TENSORS)) continue;
            if (!path_look(r->path, &i) || !i.plain || !path_same(w->path, r->path)) continue;
            strbuf b = { 0 };
            put_option(&b, a, w);
            sb_puts(&b, " goes to ");
            put_spelling(&b, w, r);
            sb_puts(&b, ", which ");
            put_option(&b, a, r);
            sb_puts(&b, " reads: it would be lost; name another file");
            return tell(&b);
        }
    }
    return 0;
}

static int apart(const args *a, const named_files *out)
{
    for (size_t i = 0; i < out->n; i++)
        for (size_t k = i + 1; k < out->n; k++) {
            const named_file *x = &out->at[i], *y = &out->at[k];
            if ((x->kind == FILE_RUN && y->kind == FILE_RUN) || !path_same(x->path, y->path)) continue;
            strbuf b = { 0 };
            put_option(&b, a, x);
            sb_puts(&b, " and ");
            put_option(&b, a, y);
            sb_puts(&b, " both go to ");
            put_spelling(&b, x, y);
            sb_puts(&b, ": one would replace the other");
            return tell(&b);
        }
    return 0;
}

int outputs_apart(const args *a)
{
    arena mem = { 0 };
    named_files out = { 0 }, in = { 0 };
    bool ok = files_named(a, true, &mem, &out);
    if (ok && out.n) ok = files_named(a, false, &mem, &in); /* most commands write to standard output alone */
    int code = ok ? apart(a, &out) : say(AN_NOMEM, "out of memory");
    if (!code) code = not_read(a, &out, &in);
    arena_free(&mem);
    return code;
}
