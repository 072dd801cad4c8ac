/* value.c: types and literals out of MIL text.
 * In: a reader whose current token starts (or has just passed the first word of) a type or literal.
 * Out: types stored once per module, so equal types share one record; literals packed in their element type.
 * Nothing is allocated from a declared size: a list grows by what is written, then its count is compared. */
#include "mil/mil_int.h"

static an_status enter(reader *p)
{
    if (++p->depth <= MIL_MAX_DEPTH) return AN_OK;
    return fail_at(p, p->t.at, "nested more than %d deep", MIL_MAX_DEPTH);
}

/* ---- types ---- */

static uint32_t type_hash(uint64_t seed, const mil_type *t)
{
    uint64_t head = (uint64_t)t->kind << 40 | (uint64_t)t->dt << 16 | (uint64_t)t->rank << 1 | (uint64_t)t->bare;
    uint64_t h = hash_bytes(t->dim, sizeof t->dim, seed ^ head);
    h = hash_bytes(t->sym, sizeof t->sym, h);
    if (t->n_sub) h = hash_bytes(t->sub, (size_t)t->n_sub * sizeof *t->sub, h);
    return (uint32_t)hash_bytes(&t->text, sizeof t->text, h);
}

/* Symbols, texts and parts are stored once already, so pointers compare. */
static bool type_identical(const mil_type *a, const mil_type *b)
{
    return a->kind == b->kind && a->dt == b->dt && a->bare == b->bare && a->rank == b->rank && a->n_sub == b->n_sub &&
           a->text == b->text && !memcmp(a->dim, b->dim, sizeof a->dim) && !memcmp(a->sym, b->sym, sizeof a->sym) &&
           (!a->n_sub || !memcmp(a->sub, b->sub, (size_t)a->n_sub * sizeof *a->sub));
}

/* t->sub may point into scratch: it is copied with the type. */
static an_status type_once(reader *p, const mil_type *t, mil_type **out)
{
    if (p->n_type * 2 >= p->cap_type) {
        uint32_t cap = p->cap_type ? p->cap_type * 2 : 32;
        mil_type **fresh = NULL;
        if (!scratch_room(p, &fresh, 0, cap, sizeof *fresh)) return p->d->st;
        for (uint32_t k = 0; k < p->cap_type; k++) {
            if (!p->type_slot[k]) continue;
            uint32_t i = type_hash(p->seed, p->type_slot[k]) & (cap - 1);
            while (fresh[i]) i = (i + 1) & (cap - 1);
            fresh[i] = p->type_slot[k];
        }
        scratch_drop(p, p->type_slot, p->cap_type * sizeof *fresh);
        p->type_slot = fresh;
        p->cap_type = cap;
    }
    uint32_t i = type_hash(p->seed, t) & (p->cap_type - 1);
    for (; p->type_slot[i]; i = (i + 1) & (p->cap_type - 1))
        if (type_identical(p->type_slot[i], t)) {
            *out = p->type_slot[i];
            return AN_OK;
        }
    mil_type *keep = READER_TAKE(p, mil_type, 1);
    if (!keep) return p->d->st;
    *keep = *t;
    if (t->n_sub) {
        keep->sub = READER_TAKE(p, mil_type *, (size_t)t->n_sub);
        if (!keep->sub) return p->d->st;
        memcpy(keep->sub, t->sub, (size_t)t->n_sub * sizeof *t->sub);
    }
    p->type_slot[i] = keep;
    p->n_type++;
    *out = keep;
    return AN_OK;
}

static an_status read_dim(reader *p, int64_t *dim, const char **sym)
{
    char buf[64];
    tok t = p->t;
    mil_num x;
    if (t.kind == T_WORD || is_punct(p, '?')) {
        mil_name *name = name_of(p, t.s, t.n);
        if (!name) return p->d->st;
        *dim = -1;
        *sym = name->s;
    } else if (t.kind != T_NUMBER) return fail_want(p, "a dimension");
    else if (!num_read(t.s, t.n, &x) || !x.integer || (x.neg && x.mag))
        return fail_at(p, t.at, "dimension %s is not a whole number, '?' or a symbol", tok_show(&t, buf, sizeof buf));
    else if (x.overflow || x.mag > INT64_MAX)
        return fail_at(p, t.at, "dimension %s is past 2^63 - 1", tok_show(&t, buf, sizeof buf));
    else *dim = (int64_t)x.mag;
    lex_next(p);
    return AN_OK;
}

static an_status read_tensor(reader *p, mil_type *t)
{
    char buf[64];
    TRY(expect(p, '<'));
    if (p->t.kind != T_WORD) return fail_want(p, "an element type");
    t->dt = dtype_from_name(p->t.s, p->t.n);
    if (t->dt == DT_NONE) return fail_at(p, p->t.at, "unknown element type %s", tok_show(&p->t, buf, sizeof buf));
    lex_next(p);
    TRY(expect(p, ','));
    TRY(expect(p, '['));
    if (!is_punct(p, ']')) do {
            if (t->rank == MIL_MAX_RANK)
                return fail_at(p, p->t.at, "rank is above %d, the most a tensor has", MIL_MAX_RANK);
            TRY(read_dim(p, &t->dim[t->rank], &t->sym[t->rank]));
            t->rank++;
        } while (accept(p, ','));
    TRY(expect(p, ']'));
    return expect(p, '>');
}

/* list<T, n>, state<T>, dict<K, V>, tuple<T, ...>: parts are types, and a list may end in its length. */
static an_status read_parts(reader *p, mil_type *t, int least, int most)
{
    size_t mark = p->tmp_n;
    TRY(expect(p, '<'));
    if (least || !is_punct(p, '>')) do {
            if (t->kind == MT_LIST && t->n_sub == 1) {
                TRY(read_dim(p, &t->dim[0], &t->sym[0]));
                t->rank = 1;
                break;
            }
            if (t->n_sub == most) return fail_want(p, "'>'");
            mil_type *part;
            TRY(read_type(p, &part));
            mil_type **at = tmp_push(p, sizeof *at);
            if (!at) return p->d->st;
            *at = part;
            t->n_sub++;
        } while (accept(p, ','));
    if (t->n_sub < least) return fail_want(p, "','");
    TRY(expect(p, '>'));
    t->sub = t->n_sub ? (mil_type **)(void *)(p->tmp + mark) : NULL; /* until type_once copies it */
    p->tmp_n = mark;
    return AN_OK;
}

/* A type this reader does not know, such as pixel_buffer<...>: kept as its tokens, evenly spaced, up to the matching
 * '>'. */
static an_status read_other(reader *p, const tok *word, mil_type *t)
{
    size_t mark = p->tmp_n;
    tok_kind last = T_WORD;
    char last_c = 0;
    int open = 0;
    tok now = *word;
    for (bool first = true;; first = false) {
        bool wordy = now.kind != T_PUNCT;
        bool gap = !first && ((last == T_PUNCT && last_c == ',') || (wordy && last != T_PUNCT));
        char *at = tmp_push(p, now.n + gap);
        if (!at) return p->d->st;
        if (gap) *at++ = ' ';
        memcpy(at, now.s, now.n);
        last = now.kind;
        last_c = now.c;
        if (!first) lex_next(p);
        if (now.kind == T_PUNCT && now.c == '<') open++;
        if (now.kind == T_PUNCT && now.c == '>' && !--open) break;
        now = p->t;
        if (now.kind == T_END || now.kind == T_BAD || now.kind == T_ARROW) return fail_want(p, "'>'");
    }
    mil_name *name = name_of(p, (const char *)p->tmp + mark, p->tmp_n - mark);
    if (!name) return p->d->st;
    t->text = name->s;
    p->tmp_n = mark;
    return AN_OK;
}

an_status read_type_after(reader *p, const tok *word, mil_type **out)
{
    char buf[64];
    mil_type t = { .dt = DT_NONE };
    TRY(enter(p));
    static const struct {
        const char *word;
        mil_type_kind kind;
        int least, most;
    } kinds[] = { { "dict", MT_DICT, 2, 2 },
                  { "list", MT_LIST, 1, 1 },
                  { "state", MT_STATE, 1, 1 },
                  { "tuple", MT_TUPLE, 0, INT32_MAX } };
    size_t k = 0;
    if (tok_is(word, "tensor")) {
        TRY(read_tensor(p, &t));
    } else {
        t.dt = dtype_from_name(word->s, word->n);
        while (t.dt == DT_NONE && k < COUNT(kinds) && !tok_is(word, kinds[k].word)) k++;
        if (t.dt != DT_NONE) {
            t.bare = true;
        } else if (k < COUNT(kinds)) {
            t.kind = kinds[k].kind;
            TRY(read_parts(p, &t, kinds[k].least, kinds[k].most));
        } else if (is_punct(p, '<')) {
            t.kind = MT_OTHER;
            TRY(read_other(p, word, &t));
        } else return fail_at(p, word->at, "unknown type %s", tok_show(word, buf, sizeof buf));
    }
    p->depth--;
    return type_once(p, &t, out);
}

an_status read_type(reader *p, mil_type **out)
{
    if (p->t.kind != T_WORD) return fail_want(p, "a type");
    tok word = p->t;
    lex_next(p);
    return read_type_after(p, &word, out);
}

/* ---- literals ---- */

/* "TYPE" for a message, cut to what a message can hold. */
static const char *show_type(const mil_type *t, char *buf, size_t n)
{
    strbuf b = { 0 };
    print_type(&b, t);
    snprintf(buf, n, "%.*s", (int)n - 1, b.at ? b.at : "?");
    sb_free(&b);
    return buf;
}

/* One element at the current token, appended as number i behind `mark`; i < 0 reads it only. */
static an_status read_elem(reader *p, const mil_type *t, size_t mark, int64_t i)
{
    char buf[64], of[40];
    tok now = p->t;
    dtype_kind kind = dtype_class(t->dt);
    mil_num x = { 0 };
    if (kind == KIND_STRING) {
        if (now.kind != T_STRING) return fail_want(p, "a string in quotes");
        const char *s;
        TRY(tok_unquote(p, &now, &s));
        const char **at = i < 0 ? NULL : tmp_push(p, sizeof *at);
        if (at) *at = s;
        else if (i >= 0) return p->d->st;
        lex_next(p);
        return AN_OK;
    }
    if (kind == KIND_BOOL) {
        x.f = tok_is(&now, "true");
        if (x.f == 0 && !tok_is(&now, "false")) return fail_want(p, "true or false");
    } else {
        bool wordy = now.kind == T_NUMBER || now.kind == T_WORD;
        if (wordy && now.n > MIL_MAX_NUMBER)
            return fail_at(p, now.at, "number %s is %zu bytes long; at most %d are read",
                           tok_show(&now, buf, sizeof buf), now.n, MIL_MAX_NUMBER);
        if (!wordy || !num_read(now.s, now.n, &x)) {
            snprintf(of, sizeof of, "a value of type %s", dtype_name(t->dt));
            return fail_want(p, of);
        }
        if (kind != KIND_FLOAT && !x.integer)
            return fail_at(p, now.at, "%s is not an integer; %s wants one", tok_show(&now, buf, sizeof buf),
                           dtype_name(t->dt));
        if (kind != KIND_FLOAT && !num_fits(&x, t->dt)) {
            int bits = dtype_bits(t->dt);
            uint64_t top = kind == KIND_INT ? ((uint64_t)1 << (bits - 1)) - 1
                           : bits == 64     ? UINT64_MAX
                                            : ((uint64_t)1 << bits) - 1;
            return fail_at(p, now.at, "%s does not fit %s, which holds %s%llu to %llu", tok_show(&now, buf, sizeof buf),
                           dtype_name(t->dt), kind == KIND_INT ? "-" : "",
                           (unsigned long long)(kind == KIND_INT ? top + 1 : 0), (unsigned long long)top);
        }
    }
    if (i >= 0) {
        size_t bits = (size_t)dtype_bits(t->dt), end = ((size_t)i + 1) * bits / 8 + (((size_t)i + 1) * bits % 8 != 0);
        if (end > p->tmp_n - mark && !tmp_push(p, end - (p->tmp_n - mark))) return p->d->st;
        num_store(&x, t->dt, p->tmp + mark, i);
    }
    lex_next(p);
    return AN_OK;
}

/* A list may be flat (row-major) or nested as deep as the rank; nested lists must have the declared sizes, and where
 * a size is not declared the first list decides. */
static an_status read_list(reader *p, const mil_type *t, size_t mark, int64_t want, int64_t *n)
{
    char of[120];
    int depth = 0, leaf = 0; /* leaf: the depth values stand at, 0 until the first */
    int64_t count[MIL_MAX_RANK + 1] = { 0 }, size[MIL_MAX_RANK];
    memcpy(size, t->dim, sizeof size);
    for (;;) {
        bool opened = false;
        for (; is_punct(p, '['); opened = true) {
            if (depth == MIL_MAX_RANK || (leaf && depth >= leaf))
                return fail_at(p, p->t.at, "list inside a list of values; %s has rank %d", show_type(t, of, sizeof of),
                               t->rank);
            count[++depth] = 0;
            lex_next(p);
        }
        if (!leaf) {
            leaf = depth;
            if (leaf != 1 && leaf != t->rank)
                return fail_at(p, p->t.at, "values nested %d deep; %s wants a flat list or depth %d", leaf,
                               show_type(t, of, sizeof of), t->rank);
        }
        if (!opened || !is_punct(p, ']')) { /* otherwise an empty list, closed below */
            if (depth != leaf) return fail_want(p, "'['");
            TRY(read_elem(p, t, mark, want < 0 || *n < want ? *n : -1));
            ++*n;
            count[depth]++;
        }
        while (depth && is_punct(p, ']')) {
            if (t->rank > 1 && leaf == t->rank) {
                int64_t *dim = &size[depth - 1];
                if (*dim < 0) *dim = count[depth];
                if (*dim != count[depth])
                    return fail_at(p, p->t.at, "list holds %lld entries; dimension %d of %s wants %lld",
                                   (long long)count[depth], depth - 1, show_type(t, of, sizeof of), (long long)*dim);
            }
            count[--depth]++;
            lex_next(p);
        }
        if (!depth) return AN_OK;
        if (!accept(p, ',')) return fail_want(p, "',' or ']'");
    }
}

static an_status read_tensor_value(reader *p, mil_lit *l)
{
    char of[120];
    mil_type *t = l->type;
    size_t mark = p->tmp_n;
    int64_t want = -1, n = 0;
    if (!type_elems(t, &want)) want = -1;
    loc at = p->t.at;
    bool list = is_punct(p, '[');
    if (list) TRY(read_list(p, t, mark, want, &n));
    else {
        TRY(read_elem(p, t, mark, want == 0 ? -1 : 0));
        n = 1;
    }
    if (want >= 0 && n != want)
        return fail_at(p, at, "%s %lld value%s; %s wants %lld", list ? "list holds" : "a single literal gives",
                       (long long)n, n == 1 ? "" : "s", show_type(t, of, sizeof of), (long long)want);
    l->n = n;
    if (t->dt == DT_STRING) {
        l->kind = ML_STRINGS;
        l->str = tmp_keep(p, mark, (size_t)n, sizeof *l->str);
        return l->str ? AN_OK : p->d->st;
    }
    l->kind = ML_DATA;
    l->data = tmp_keep(p, mark, p->tmp_n - mark, 1);
    return l->data ? AN_OK : p->d->st;
}

/* path = string("..."), offset = tensor<uint64, []>(64), in either order; an untyped value takes the program's
 * spelling. */
static an_status read_blob(reader *p, mil_lit *l)
{
    char buf[64];
    bool path = false, offset = false;
    l->kind = ML_BLOB;
    l->blob_bare = version_is_bare(p->m->version);
    TRY(expect(p, '('));
    do {
        tok key = p->t;
        bool is_path = tok_is(&key, "path");
        if (!is_path && !tok_is(&key, "offset")) return fail_want(p, "path or offset");
        if (is_path ? path : offset)
            return fail_at(p, key.at, "BLOBFILE has two values for %s", is_path ? "path" : "offset");
        lex_next(p);
        TRY(expect(p, '='));
        bool typed = p->t.kind == T_WORD;
        if (typed) {
            mil_type *t;
            loc at = p->t.at;
            TRY(read_type(p, &t));
            if (t->kind != MT_TENSOR || t->rank || (is_path ? t->dt != DT_STRING : !dtype_is_int(t->dt)))
                return fail_at(p, at, "BLOBFILE %s", is_path ? "path wants a string" : "offset wants a uint64");
            if (is_path) l->blob_bare = t->bare;
            TRY(expect(p, '('));
        }
        tok v = p->t;
        mil_num x;
        if (is_path) {
            if (v.kind != T_STRING) return fail_want(p, "a path in quotes");
            TRY(tok_unquote(p, &v, &l->blob_path));
            path = true;
        } else {
            if (v.kind != T_NUMBER) return fail_want(p, "an offset");
            if (!num_read(v.s, v.n, &x) || !num_fits(&x, DT_U64))
                return fail_at(p, v.at, "offset %s is not a uint64", tok_show(&v, buf, sizeof buf));
            l->blob_offset = x.mag;
            offset = true;
        }
        lex_next(p);
        if (typed) TRY(expect(p, ')'));
    } while (accept(p, ','));
    if (!path || !offset) return fail_want(p, path ? "', offset = uint64(...)'" : "', path = string(...)'");
    return expect(p, ')');
}

static an_status read_value(reader *p, mil_type *t, bool inner, mil_lit **out);

static an_status push_item(reader *p, mil_type *t)
{
    mil_lit *item;
    TRY(read_value(p, t, true, &item));
    mil_lit **at = tmp_push(p, sizeof *at);
    if (!at) return p->d->st;
    *at = item;
    return AN_OK;
}

static an_status read_dict(reader *p, mil_lit *l)
{
    size_t mark = p->tmp_n;
    l->kind = ML_DICT;
    TRY(expect(p, '{'));
    if (!is_punct(p, '}')) do {
            TRY(expect(p, '{'));
            TRY(push_item(p, l->type->sub[0]));
            TRY(expect(p, ','));
            TRY(push_item(p, l->type->sub[1]));
            TRY(expect(p, '}'));
            l->n++;
        } while (accept(p, ','));
    TRY(expect(p, '}'));
    l->item = tmp_keep(p, mark, (size_t)l->n * 2, sizeof *l->item);
    return l->item ? AN_OK : p->d->st;
}

static an_status read_items(reader *p, mil_lit *l)
{
    char of[120];
    const mil_type *t = l->type;
    bool tuple = t->kind == MT_TUPLE;
    char close = tuple ? ')' : ']';
    size_t mark = p->tmp_n;
    loc at = p->t.at;
    int64_t want = tuple ? t->n_sub : t->rank ? t->dim[0] : -1;
    l->kind = ML_LIST;
    TRY(expect(p, tuple ? '(' : '['));
    if (!is_punct(p, close)) do {
            if (tuple && l->n == want)
                return fail_at(p, p->t.at, "too many values; %s wants %lld", show_type(t, of, sizeof of),
                               (long long)want);
            TRY(push_item(p, tuple ? t->sub[l->n] : t->sub[0]));
            l->n++;
        } while (accept(p, ','));
    TRY(expect(p, close));
    if (want >= 0 && l->n != want)
        return fail_at(p, at, "list holds %lld values; %s wants %lld", (long long)l->n, show_type(t, of, sizeof of),
                       (long long)want);
    l->item = tmp_keep(p, mark, (size_t)l->n, sizeof *l->item);
    return l->item ? AN_OK : p->d->st;
}

/* Inside a dict, list or tuple a value may repeat its type: string("a"). */
static an_status read_typed_item(reader *p, mil_type *t, mil_lit **out)
{
    char want[120], seen[120];
    loc at = p->t.at;
    TRY(read_literal(p, out));
    const mil_type *u = (*out)->type;
    bool fits = t->kind == MT_TENSOR && u->kind == MT_TENSOR && u->dt == t->dt && u->rank == t->rank;
    for (int k = 0; fits && k < t->rank; k++) fits = t->dim[k] < 0 || t->dim[k] == u->dim[k];
    if (!fits)
        return fail_at(p, at, "value has type %s here; %s is wanted", show_type(u, seen, sizeof seen),
                       show_type(t, want, sizeof want));
    (*out)->type = t;
    return AN_OK;
}

static bool names_value(const tok *t)
{
    mil_num x;
    return t->kind != T_WORD || tok_is(t, "true") || tok_is(t, "false") || tok_is(t, "BLOBFILE") ||
           num_read(t->s, t->n, &x);
}

static an_status read_value(reader *p, mil_type *t, bool inner, mil_lit **out)
{
    char of[120];
    TRY(enter(p));
    if (inner && !names_value(&p->t)) {
        TRY(read_typed_item(p, t, out));
        p->depth--;
        return AN_OK;
    }
    mil_lit *l = READER_TAKE(p, mil_lit, 1);
    if (!l) return p->d->st;
    *out = l;
    l->type = t;
    l->at = p->t.at;
    if (t->kind == MT_STATE || t->kind == MT_OTHER)
        return fail_at(p, p->t.at, "a literal cannot have type %s", show_type(t, of, sizeof of));
    if (tok_is(&p->t, "BLOBFILE")) {
        if (t->kind != MT_TENSOR || t->dt == DT_STRING)
            return fail_at(p, p->t.at, "a file cannot hold %s", show_type(t, of, sizeof of));
        lex_next(p);
        TRY(read_blob(p, l));
    } else if (t->kind == MT_TENSOR) TRY(read_tensor_value(p, l));
    else if (t->kind == MT_DICT) TRY(read_dict(p, l));
    else TRY(read_items(p, l));
    p->depth--;
    return AN_OK;
}

an_status read_literal_after(reader *p, const tok *word, mil_lit **out)
{
    mil_type *t;
    loc at = word->at;
    TRY(read_type_after(p, word, &t));
    TRY(expect(p, '('));
    TRY(read_value(p, t, false, out));
    (*out)->at = at;
    return expect(p, ')');
}

an_status read_literal(reader *p, mil_lit **out)
{
    if (p->t.kind != T_WORD) return fail_want(p, "a typed literal");
    tok word = p->t;
    lex_next(p);
    return read_literal_after(p, &word, out);
}
