/* docs.c: a text to ids, document by document, in parallel. Tasks are runs of whole documents of about a megabyte,
 * so the result does not depend on how many threads there are. */
#include <stdlib.h>

#include "text/shard.h"

static const struct {
    const char *name;
    docs_rule rule;
} rules[] = { { "auto", DOCS_AUTO },
              { "whole", DOCS_WHOLE },
              { "endoftext", DOCS_ENDOFTEXT },
              { "blank", DOCS_BLANK },
              { "lines", DOCS_LINES } };

bool docs_find(const char *name, docs_rule *out)
{
    for (size_t i = 0; i < COUNT(rules); i++)
        if (!strcmp(rules[i].name, name)) return *out = rules[i].rule, true;
    return false;
}

static const char END[] = "<|endoftext|>";
enum { END_BYTES = sizeof END - 1, TASK_BYTES = 1 << 20 };

/* The next place of needle at or behind i; n: none. */
static size_t find(const char *s, size_t n, size_t i, const char *needle, size_t len)
{
    while (i + len <= n) {
        const char *hit = memchr(s + i, needle[0], n - len + 1 - i);
        if (!hit) return n;
        i = (size_t)(hit - s);
        if (!memcmp(hit, needle, len)) return i;
        i++;
    }
    return n;
}

static bool in_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The line end at or behind i that a blank line follows, which ends at *to; n: none. Lines may end in \r\n, and a
 * blank one may hold spaces and tabs. */
static size_t find_blank(const char *s, size_t n, size_t i, size_t *to)
{
    while ((i = find(s, n, i, "\n", 1)) < n) {
        size_t k = i + 1;
        while (k < n && in_blank(s[k])) k++;
        if (k < n && s[k] == '\n') return *to = k + 1, i;
        i = k;
    }
    return *to = n;
}

static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

typedef struct {
    const char *s;
    size_t n, at;
    docs_rule rule;
} docs;

/* The next document; false: no more. */
static bool next_doc(docs *x, const char **from, size_t *len)
{
    while (x->at < x->n) {
        size_t a = x->at, b = x->n, skip = 0;
        if (x->rule == DOCS_ENDOFTEXT) b = find(x->s, x->n, a, END, END_BYTES), skip = END_BYTES;
        if (x->rule == DOCS_LINES) b = find(x->s, x->n, a, "\n", 1), skip = 1;
        if (x->rule == DOCS_BLANK) find_blank(x->s, x->n, a, &b);
        x->at = MIN(b + skip, x->n);
        if (x->rule == DOCS_ENDOFTEXT) {
            while (a < b && blank(x->s[a])) a++;
            while (b > a && blank(x->s[b - 1])) b--;
        }
        if (x->rule == DOCS_LINES && b > a && x->s[b - 1] == '\r') b--;
        if (a == b) continue;
        *from = x->s + a;
        *len = b - a;
        return true;
    }
    return false;
}

typedef struct {
    size_t from, to; /* bytes of the text */
    tok_ids ids;
    docs_count count;
    diag d;
} task;

typedef struct {
    const tokenizer *t;
    const char *s;
    docs_rule rule;
    task *tasks;
    tok_encoder **enc; /* one for each thread */
    unsigned flags;
} job;

static an_status encode_task(job *j, task *k, tok_encoder *e)
{
    docs x = { .s = j->s + k->from, .n = k->to - k->from, .rule = j->rule };
    const char *doc;
    size_t n;
    while (next_doc(&x, &doc, &n)) {
        TRY(tok_encode(e, doc, n, j->flags, &k->ids, &k->d));
        k->count.documents++;
        k->count.bytes += n;
    }
    return AN_OK;
}

static void run_task(void *user, int64_t i, int thread)
{
    job *j = user;
    if (encode_task(j, &j->tasks[i], j->enc[thread])) { /* the task's own diag says why */ }
}

/* Where the first document ends that does so behind i. Of several blank lines the first one is taken: which others
 * end documents is known from there. */
static size_t end_behind(const char *s, size_t n, size_t i, docs_rule rule)
{
    size_t to;
    if (rule == DOCS_ENDOFTEXT) return MIN(find(s, n, i, END, END_BYTES) + END_BYTES, n);
    if (rule == DOCS_LINES) return MIN(find(s, n, i, "\n", 1) + 1, n);
    while ((i = find_blank(s, n, i, &to)) < n) {
        size_t k = i;
        while (k && in_blank(s[k - 1])) k--;
        if (k && s[k - 1] != '\n') break;
        i = to - 1;
    }
    return to;
}

/* Cut where a document ends, at the first place behind each megabyte. */
static bool make_tasks(const char *s, size_t n, docs_rule rule, task **out, size_t *n_out)
{
    size_t cap = n / TASK_BYTES + 2, k = 0;
    task *t = calloc(cap, sizeof *t);
    if (!t) return false;
    for (size_t at = 0; at < n || !k;) {
        size_t to = n;
        if (n - at > TASK_BYTES && rule != DOCS_WHOLE) to = end_behind(s, n, at + TASK_BYTES, rule);
        t[k].from = at, t[k++].to = to;
        at = to;
        if (at >= n) break;
    }
    *out = t;
    *n_out = k;
    return true;
}

static an_status gather(task *tasks, size_t n, tok_ids *out, docs_count *count, diag *d)
{
    size_t total = out->n;
    for (size_t i = 0; i < n; i++) {
        if (tasks[i].d.st) return diag_fail(d, tasks[i].d.st, NOWHERE, "%s", tasks[i].d.msg);
        total += tasks[i].ids.n;
    }
    if (total > out->cap) {
        uint32_t *p = realloc(out->at, total * sizeof *p);
        if (!p) return diag_nomem(d);
        out->at = p;
        out->cap = total;
    }
    for (size_t i = 0; i < n; i++) {
        if (tasks[i].ids.n) memcpy(out->at + out->n, tasks[i].ids.at, tasks[i].ids.n * sizeof *out->at);
        out->n += tasks[i].ids.n;
        count->documents += tasks[i].count.documents;
        count->bytes += tasks[i].count.bytes;
    }
    return AN_OK;
}

an_status docs_encode(const tokenizer *t, const char *text, size_t n, docs_rule rule, pool *p, tok_ids *out,
                      docs_count *count, diag *d)
{
    bool named = rule != DOCS_AUTO, any = named || find(text, n, 0, END, END_BYTES) < n;
    if (rule == DOCS_AUTO) rule = any ? DOCS_ENDOFTEXT : DOCS_WHOLE;
    tok_info info;
    tok_get(t, &info);
    int threads = pool_threads(p);
    job j = { .t = t, .s = text, .rule = rule, .flags = info.bos >= 0 ? TOK_BOS : info.eos >= 0 ? TOK_EOS : 0 };
    size_t n_tasks = 0;
    *count = (docs_count){ .undivided = !any };
    j.enc = calloc((size_t)threads, sizeof *j.enc);
    an_status st = j.enc && make_tasks(text, n, rule, &j.tasks, &n_tasks) ? AN_OK : diag_nomem(d);
    for (int i = 0; i < threads && !st; i++) st = tok_encoder_new(t, &j.enc[i], d);
    if (!st) pool_run(p, run_task, &j, (int64_t)n_tasks);
    if (!st) st = gather(j.tasks, n_tasks, out, count, d);
    if (named && rule != DOCS_WHOLE && count->documents < 2) count->undivided = true;
    for (int i = 0; i < threads && j.enc; i++) tok_encoder_free(j.enc[i]);
    for (size_t i = 0; i < n_tasks; i++) tok_ids_free(&j.tasks[i].ids);
    free(j.enc);
    free(j.tasks);
    return st;
}
