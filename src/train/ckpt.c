/* ckpt.c: folders that are whole or not there; ckpt.h says what is in them. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "format/json.h"
#include "train/ckpt.h"
#include "train/log.h"

enum { CKPT_VERSION = 5, KEEP = 2, DIGITS = 16 };
static const char STATE[] = "state.safetensors", TRAIN[] = "train.json", LATEST[] = "latest";
/* the end of train.json, around the checksum of what is before it */
static const char SEAL[] = ",\n  \"checksum\": \"", SEAL_END[] = "\"\n}\n";

/* ---- folders ---- */

static int64_t step_of(const char *name) /* -1: no checkpoint's name */
{
    char *end;
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
    errno = 0;
    long long v = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : v;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Steps of the checkpoints in dir, newest first. */
static an_status list(const char *dir, arena *mem, int64_t **out, size_t *n, diag *d)
{
    VEC(int64_t) v = { 0 };
    DIR *at = opendir(dir);
    *out = NULL, *n = 0;
    if (!at) return errno == ENOENT ? AN_OK : file_fail("list", dir, d);
    an_status st = AN_OK;
    for (struct dirent *e; !st && (errno = 0, e = readdir(at));) {
        int64_t s = step_of(e->d_name);
        if (s >= 0 && !VEC_PUSH(mem, &v, s)) st = diag_nomem(d);
    }
    if (!st && errno) st = file_fail("list", dir, d);
    closedir(at);
    if (v.n) qsort(v.at, v.n, sizeof *v.at, newest_first);
    *out = v.at, *n = v.n;
    return st;
}

/* Behind the step that was just written there may be folders that were not intact when the run went on from an
 * earlier one. They are none of the newest: counted as such they would push out the only one that is whole. Nor are
 * those of a row of skipped updates, which may be the end of the run: only the newest of them stays, beside the
 * others. What goes is renamed first: no checkpoint is ever in pieces. */
static void sweep(const char *dir, int keep, const ckpt_note *now, const char *temp)
{
    arena mem = { 0 };
    diag d = { 0 };
    int64_t *step;
    size_t n;
    if (!list(dir, &mem, &step, &n, &d))
        for (size_t i = 0, seen = 0; i < n; i++) {
            if (step[i] > now->step || (step[i] == now->step && now->applied < now->step)) continue;
            if (step[i] <= now->applied && ++seen <= (size_t)(keep > 0 ? keep : KEEP)) continue;
            char *old = arena_printf(&mem, "%s/step-%08lld", dir, (long long)step[i]),
                 *gone = arena_printf(&mem, "%s/.tmp-old-%08lld", dir, (long long)step[i]);
            if (!old || !gone) continue;
            folder_remove(gone);
            if (!rename(old, gone)) folder_remove(gone);
        }
    DIR *at = opendir(dir); /* what died half way */
    for (struct dirent *e; at && (e = readdir(at));) {
        char *left = strncmp(e->d_name, ".tmp-", 5) ? NULL : arena_printf(&mem, "%s/%s", dir, e->d_name);
        if (left && strcmp(left, temp)) folder_remove(left);
    }
    if (at) closedir(at);
    arena_free(&mem);
}

/* ---- checksums ---- */

/* Up to version 4 signs of neighbours could change together and leave it as it was. */
static uint64_t sum_of(int64_t version, const void *p, size_t n)
{
    return version >= 1 && version <= 4 ? hash_bytes(p, n, 0) : hash_many(p, n, 0);
}

static an_status digest_of(const char *path, int version, uint64_t *hash, uint64_t *bytes, diag *d)
{
    file_bytes f;
    TRY(file_map(path, &f, d));
    *hash = sum_of(version, f.at, f.n), *bytes = f.n;
    file_drop(&f);
    return AN_OK;
}

static an_status intact(const char *path, diag *d);
static const char *last_of(const char *path);

/* ---- writing ---- */

static void put_note(strbuf *b, const ckpt_note *n)
{
    sb_printf(b,
              "{\n  \"version\": %d,\n  \"anneal\": \"" AN_VERSION
              "\",\n  \"step\": %lld,\n  \"epoch\": %llu,\n  \"sample\": %llu,\n",
              CKPT_VERSION, (long long)n->step, (unsigned long long)n->pos.epoch, (unsigned long long)n->pos.sample);
    sb_printf(
        b,
        "  \"applied\": %lld,\n  \"data\": \"%016llx\",\n  \"seed\": \"%llu\",\n  \"validation\": %.17g,\n  \"smooth\": ",
        (long long)n->applied, (unsigned long long)n->data_digest, (unsigned long long)n->seed, n->validation);
    if (isfinite(n->smooth)) sb_printf(b, "%.17g", n->smooth);
    else sb_puts(b, "null");
    if (n->owed) sb_puts(b, ",\n  \"owed\": true");
    sb_puts(b, ",\n  \"setting\": ");
    sb_json(b, n->setting, strlen(n->setting));
    sb_puts(b, ",\n  \"exact\": ");
    sb_json(b, n->exact, strlen(n->exact));
    if (!*n->sums) return;
    sb_puts(b, ",\n  \"sums\": ");
    sb_json(b, n->sums, strlen(n->sums));
}

static an_status put_files(strbuf *b, const char *dir, diag *d)
{
    DIR *at = opendir(dir);
    const char *between = "";
    an_status st = AN_OK;
    if (!at) return file_fail("list", dir, d);
    sb_puts(b, ",\n  \"files\": {");
    for (struct dirent *e; !st && (errno = 0, e = readdir(at));) {
        uint64_t hash = 0, bytes = 0;
        strbuf path = { 0 };
        if (e->d_name[0] == '.') continue;
        sb_printf(&path, "%s/%s", dir, e->d_name);
        st = path.oom ? diag_nomem(d) : digest_of(path.at, CKPT_VERSION, &hash, &bytes, d);
        sb_free(&path);
        sb_printf(b, "%s\n    ", between);
        sb_json(b, e->d_name, strlen(e->d_name));
        sb_printf(b, ": { \"bytes\": %llu, \"hash\": \"%016llx\" }", (unsigned long long)bytes,
                  (unsigned long long)hash);
        between = ",";
    }
    if (!st && errno) st = file_fail("list", dir, d);
    closedir(at);
    sb_puts(b, "\n  }");
    if (b->n) sb_printf(b, "%s%016llx%s", SEAL, (unsigned long long)sum_of(CKPT_VERSION, b->at, b->n), SEAL_END);
    return st ? st : b->oom ? diag_nomem(d) : AN_OK;
}

static an_status fill(const ckpt_options *o, pipeline *p, const lm_shape *s, const ckpt_note *note, const char *dir,
                      arena *mem, diag *d)
{
    lm_model *m;
    char *path = arena_printf(mem, "%s/%s", dir, STATE);
    if (!path) return diag_nomem(d);
    TRY(pipe_save(p, path, NULL, 0, d)); /* first: it refuses what is not finite, which would never be again */
    TRY(lm_shape_model(s, p, o->generation, &(lm_options){ .dt = DT_F32, .threads = o->pool }, &m, d));
    lm_converted done;
    an_status st = lm_convert(
        m, dir, &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1, .fresh = true, .threads = o->pool },
        &done, d);
    lm_close(m);
    TRY(st);
    for (size_t i = 0; i < o->n_tokenizer; i++) {
        if (!(path = arena_printf(mem, "%s/%s", dir, o->tokenizer[i].name))) return diag_nomem(d);
        TRY(file_write(path, o->tokenizer[i].at, o->tokenizer[i].n, d));
    }
    strbuf b = { 0 };
    put_note(&b, note);
    st = put_files(&b, dir, d);
    path = arena_printf(mem, "%s/%s", dir, TRAIN);
    if (!st) st = path ? file_write(path, b.at, b.n, d) : diag_nomem(d);
    sb_free(&b);
    return st ? st : folder_sync(dir, d);
}

/* Synced once more: what it named before may go now. */
static an_status point_to(const char *dir, const char *name, arena *mem, diag *d)
{
    char *latest = arena_printf(mem, "%s/%s", dir, LATEST), *line = arena_printf(mem, "%s\n", name);
    file_bytes f = { 0 };
    diag none = { 0 };
    if (!latest || !line) return diag_nomem(d);
    const size_t n = strlen(line);
    const bool there = !file_read_plain(latest, false, JSON_MAX_BYTES, &f, &none) && f.n == n && !memcmp(f.at, line, n);
    path_info i;
    if (f.at) file_drop(&f);
    if (there) return AN_OK;
    if (path_look(latest, &i) && !i.plain) unlink(latest); /* a pipe would be written into, and waited for */
    TRY(file_write(latest, line, n, d));
    return folder_sync(dir, d);
}

an_status ckpt_settle(const char *dir, const char *path, int keep, const ckpt_note *note, diag *d)
{
    arena mem = { 0 };
    an_status st = point_to(dir, last_of(path), &mem, d);
    if (!st) sweep(dir, keep, note, "");
    arena_free(&mem);
    return st;
}

static an_status publish(const ckpt_options *o, const char *temp, const char *name, arena *mem, diag *d)
{
    char *to = arena_printf(mem, "%s/%s", o->dir, name);
    if (!to) return diag_nomem(d);
    path_info i;
    diag why = { 0 };
    if (path_look(to, &i) && !intact(to, &why)) folder_remove(temp); /* the same step of the same run: it is there */
    else if (why.st == AN_NOMEM) return diag_nomem(d); /* what could not be looked at may be whole */
    else {
        folder_remove(to);
        if (rename(temp, to)) return file_fail("rename to", to, d);
        TRY(folder_sync(o->dir, d));
    }
    return point_to(o->dir, name, mem, d);
}

static char *temp_name(arena *mem, const char *dir) { return arena_printf(mem, "%s/.tmp-%ld", dir, (long)getpid()); }

static int open_lock(const char *path, bool *made)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    *made |= fd >= 0;
    return fd >= 0 || errno != EEXIST ? fd : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

/* Two processes would rotate each other's checkpoints away. The system drops the lock of one that died; one that
 * leaves may take the file away while another waits for it. */
static an_status take_lock(const char *path, ckpt_hold *h, diag *d)
{
    for (int i = 0; i < 1000; i++) {
        int fd = open_lock(path, &h->made);
        if (fd < 0) return file_fail("open", path, d);
        struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        if (!fcntl(fd, F_SETLK, &all)) {
            if (file_is_at(fd, path)) return h->fd = fd, AN_OK;
            close(fd);
            continue;
        }
        const bool held = errno == EACCES || errno == EAGAIN;
        struct flock by = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        if (held && !fcntl(fd, F_GETLK, &by) && by.l_type != F_UNLCK)
            diag_fail(d, AN_USAGE, NOWHERE,
                      "%s: process %ld is training into it; wait for its end, or name another folder", h->dir,
                      (long)by.l_pid);
        else if (held)
            diag_fail(d, AN_USAGE, NOWHERE, "%s: another process was training into it until now; try again", h->dir);
        close(fd);
        return held ? AN_USAGE : AN_OK;
    }
    return diag_fail(d, AN_USAGE, NOWHERE, "%s: other processes begin to train into it and end at once; try again",
                     h->dir);
}

static char *lock_name(arena *mem, const char *dir) { return arena_printf(mem, "%s/.lock", dir); }

/* Folders that were just made are still there after a crash when those they lie in are synced; one that may not be
 * read cannot be, and keeps nobody from training. */
static an_status sync_above(const char *dir, size_t was, arena *mem, diag *d)
{
    for (size_t i = was; i < strlen(dir); i++) {
        if (i != was && dir[i] != '/') continue;
        char *above = i ? arena_printf(mem, "%.*s", (int)i, dir) : arena_printf(mem, *dir == '/' ? "/" : ".");
        diag none = { 0 };
        if (!above) return diag_nomem(d);
        const an_status tried = folder_sync(above, &none);
        (void)tried;
    }
    return AN_OK;
}

an_status ckpt_enter(const char *dir, ckpt_hold *h, diag *d)
{
    arena mem = { 0 };
    char *temp = temp_name(&mem, dir), *path = lock_name(&mem, dir);
    *h = (ckpt_hold){ .fd = -1, .was = strlen(dir), .dir = dir };
    an_status st = temp && path ? dir_make_new(dir, &h->was, d) : diag_nomem(d);
    if (!st) st = sync_above(dir, h->was, &mem, d);
    if (!st) folder_remove(temp), st = dir_make(temp, d);
    if (!st) folder_remove(temp), st = take_lock(path, h, d);
    arena_free(&mem);
    if (st) ckpt_leave(h);
    return st;
}

void ckpt_leave(ckpt_hold *h)
{
    arena mem = { 0 };
    diag none = { 0 };
    bool any = true;
    char *path = h->made ? lock_name(&mem, h->dir) : NULL;
    if (path && !ckpt_any(h->dir, &any, &none) && !any) unlink(path); /* while it is held */
    if (h->fd >= 0) close(h->fd);
    if (h->dir) dir_unmake(h->dir, h->was);
    arena_free(&mem);
    *h = (ckpt_hold){ .fd = -1 };
}

an_status ckpt_save(const ckpt_options *o, pipeline *p, const lm_shape *s, const ckpt_note *note, diag *d)
{
    arena mem = { 0 };
    char *temp = temp_name(&mem, o->dir), *name = arena_printf(&mem, "step-%08lld", (long long)note->step);
    an_status st = temp && name ? dir_make(o->dir, d) : diag_nomem(d);
    if (!st) {
        folder_remove(temp);
        st = dir_make(temp, d);
        if (!st) st = fill(o, p, s, note, temp, &mem, d);
        if (!st) st = publish(o, temp, name, &mem, d);
        if (st) folder_remove(temp);
        else sweep(o->dir, o->keep, note, temp);
    }
    arena_free(&mem);
    return st;
}

/* ---- reading ---- */

static an_status bad(const char *path, const char *what, diag *d)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "%s/%s: %s", path, TRAIN, what);
}

static bool text_u64(const json_t *top, const char *key, int base, uint64_t *out)
{
    const char *s = json_string_value(json_object_get(top, key));
    char *end;
    if (!s || !isxdigit((unsigned char)*s)) return false; /* no sign, no spaces before it */
    errno = 0;
    *out = strtoull(s, &end, base);
    return !*end && !errno;
}

static an_status read_note(const char *path, json_t *top, ckpt_note *n, diag *d)
{
    const json_t *step = json_object_get(top, "step"), *epoch = json_object_get(top, "epoch"),
                 *sample = json_object_get(top, "sample");
    const json_t *smooth = json_object_get(top, "smooth"), *version = json_object_get(top, "version"),
                 *applied = json_object_get(top, "applied"), *kept = json_object_get(top, "validation");
    const char *setting = json_string_value(json_object_get(top, "setting")),
               *exact = json_string_value(json_object_get(top, "exact")),
               *sums = json_string_value(json_object_get(top, "sums"));
    int v = json_is_integer(version) && json_integer_value(version) > 0 && json_integer_value(version) <= CKPT_VERSION
                ? (int)json_integer_value(version)
                : 0;
    if (v < 1) return bad(path, "version is none of 1 to 5", d);
    if (!json_is_integer(step) || !json_is_integer(epoch) || !json_is_integer(sample) || json_integer_value(step) < 0 ||
        json_integer_value(epoch) < 0 || json_integer_value(sample) < 0)
        return bad(path, "step, epoch and sample must be whole numbers of at least 0", d);
    if (v > 1 && (!json_is_integer(applied) || json_integer_value(applied) < 0 || !json_is_number(kept)))
        return bad(path, "applied or validation is not a number", d);
    *n = (ckpt_note){ .version = v,
                      .applied = json_integer_value(v > 1 ? applied : step),
                      .validation = v > 1 ? json_number_value(kept) : 0,
                      .step = json_integer_value(step),
                      .pos = { (uint64_t)json_integer_value(epoch), (uint64_t)json_integer_value(sample) },
                      .smooth = json_is_number(smooth) ? json_number_value(smooth) : (double)NAN,
                      .owed = json_is_true(json_object_get(top, "owed")) };
    if (!text_u64(top, "data", 16, &n->data_digest) || !text_u64(top, "seed", 10, &n->seed))
        return bad(path, "data or seed is not a number", d);
    if (!setting || strlen(setting) >= sizeof n->setting) return bad(path, "there is no setting", d);
    if (v > 2 && (!exact || strlen(exact) >= sizeof n->exact)) return bad(path, "there are no exact settings", d);
    snprintf(n->setting, sizeof n->setting, "%s", setting);
    snprintf(n->exact, sizeof n->exact, "%s", v > 2 ? exact : "");
    snprintf(n->sums, sizeof n->sums, "%s", sums ? sums : "");
    static const char scale[] = ", loss scale 0"; /* it once stood for the default of cpu, which is 1 */
    char *at = strstr(n->exact, scale), *digit = at ? at + sizeof scale - 2 : NULL;
    if (digit && (digit[1] == ',' || digit[1] == ' ')) *digit = '1';
    return AN_OK;
}

static an_status check_seal(const char *path, const file_bytes *f, const json_t *top, diag *d)
{
    const size_t tail = sizeof SEAL - 1 + DIGITS + sizeof SEAL_END - 1;
    const json_int_t version = json_integer_value(json_object_get(top, "version"));
    if (version == 1 && !json_object_get(top, "checksum")) return AN_OK;
    const char *end = (const char *)f->at + f->n;
    uint64_t want;
    if (f->n <= tail || memcmp(end - tail, SEAL, sizeof SEAL - 1) ||
        memcmp(end - (sizeof SEAL_END - 1), SEAL_END, sizeof SEAL_END - 1) || !text_u64(top, "checksum", 16, &want))
        return bad(path, "its checksum is missing", d);
    uint64_t hash = sum_of(version, f->at, f->n - tail);
    if (hash == want) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE, "%s/%s: it has the checksum %016llx; %016llx was written", path, TRAIN,
                     (unsigned long long)hash, (unsigned long long)want);
}

static an_status open_note(const char *path, json_t **top, diag *d)
{
    strbuf b = { 0 };
    file_bytes f = { 0 };
    sb_printf(&b, "%s/%s", path, TRAIN);
    an_status st = b.oom ? diag_nomem(d) : file_read_plain(b.at, true, JSON_MAX_BYTES, &f, d);
    if (!st) st = json_text(f.at, f.n, b.at, top, d);
    if (!st && (st = check_seal(path, &f, *top, d))) json_decref(*top);
    if (f.at) file_drop(&f);
    sb_free(&b);
    return st;
}

static an_status check_files(const char *path, int version, json_t *top, diag *d)
{
    const char *name;
    json_t *files = json_object_get(top, "files"), *f;
    if (!json_is_object(files) || !json_object_get(files, STATE)) return bad(path, "it names no state.safetensors", d);
    json_object_foreach(files, name, f)
    {
        uint64_t want, hash = 0, bytes = 0;
        strbuf b = { 0 };
        const json_t *size = json_object_get(f, "bytes");
        if (strchr(name, '/') || !text_u64(f, "hash", 16, &want) || !json_is_integer(size))
            return bad(path, "a file's size or hash is missing", d);
        sb_printf(&b, "%s/%s", path, name);
        an_status st = b.oom ? diag_nomem(d) : digest_of(b.at, version, &hash, &bytes, d);
        sb_free(&b);
        TRY(st);
        if ((json_int_t)bytes != json_integer_value(size) || hash != want)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "%s/%s: %llu bytes with checksum %016llx; %lld with %016llx were written", path, name,
                             (unsigned long long)bytes, (unsigned long long)hash, (long long)json_integer_value(size),
                             (unsigned long long)want);
    }
    return AN_OK;
}

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* One under the name of another step is a copy of somebody's: taken for that step, it would stand in the way of it. */
static an_status intact(const char *path, diag *d)
{
    json_t *top;
    ckpt_note n;
    TRY(open_note(path, &top, d));
    an_status st = read_note(path, top, &n, d);
    if (!st && n.step != step_of(last_of(path)))
        st = diag_fail(d, AN_INPUT, NOWHERE, "%s/%s: it is of step %lld, and not what the name of its folder says",
                       path, TRAIN, (long long)n.step);
    if (!st) st = check_files(path, n.version, top, d);
    json_decref(top);
    return st;
}

an_status ckpt_is_one(const char *path, bool *is, diag *d)
{
    path_info i;
    strbuf b = { 0 };
    sb_printf(&b, "%s/%s", path, TRAIN);
    *is = false;
    an_status st = b.oom ? diag_nomem(d) : path_find(b.at, is, &i, d);
    sb_free(&b);
    return st;
}

an_status ckpt_any(const char *dir, bool *any, diag *d)
{
    arena mem = { 0 };
    int64_t *step;
    size_t n;
    an_status st = list(dir, &mem, &step, &n, d);
    *any = !st && n;
    arena_free(&mem);
    return st;
}

an_status ckpt_find(const char *dir, arena *mem, const char **path, void (*warn)(void *user, const char *line),
                    void *user, diag *d)
{
    int64_t *step;
    size_t n;
    TRY(list(dir, mem, &step, &n, d));
    for (size_t i = 0; i < n; i++) {
        diag why = { 0 };
        if (!(*path = arena_printf(mem, "%s/step-%08lld", dir, (long long)step[i]))) return diag_nomem(d);
        if (!intact(*path, &why)) return AN_OK;
        if (why.st == AN_NOMEM) return diag_nomem(d);
        log_say(warn, user, "%s; trying the checkpoint before it", why.msg);
    }
    return diag_fail(d, AN_INPUT, NOWHERE,
                     n ? "%s: none of its checkpoints is intact" : "%s: there is no checkpoint in it", dir);
}

/* Settings are lists; what both begin with alike says nothing. */
static an_status differs(const char *path, const char *file, const char *here, diag *d)
{
    size_t from = 0;
    for (size_t i = 0; file[i] && file[i] == here[i]; i++)
        if (file[i] == ' ' && i && file[i - 1] == ',') from = i + 1;
    return diag_fail(d, AN_INPUT, NOWHERE, "%.100s: it was trained with \"%.110s\"; this run has \"%.110s\"", path,
                     file + from, here + from);
}

static an_status same_run(const char *path, const ckpt_note *file, const ckpt_note *here, diag *d)
{
    if (strcmp(file->setting, here->setting)) return differs(path, file->setting, here->setting, d);
    const char *exact = file->version > 4 ? here->exact : here->exact4;
    if (file->version > 2 && strcmp(file->exact, exact)) return differs(path, file->exact, exact, d);
    if (file->seed != here->seed)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: it was trained with seed %llu; this run has seed %llu", path,
                         (unsigned long long)file->seed, (unsigned long long)here->seed);
    if (file->version == 1) return AN_OK;
    if (file->validation != here->validation)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: it was trained with a validation share of %g; this run has %g",
                         path, file->validation, here->validation);
    if (file->version > 4 && file->data_digest != here->data_digest)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s: it was trained on other data (checksum %016llx); that of this run has %016llx", path,
                         (unsigned long long)file->data_digest, (unsigned long long)here->data_digest);
    return AN_OK;
}

an_status ckpt_load(const char *path, pipeline *p, ckpt_note *note, diag *d)
{
    json_t *top;
    ckpt_note n;
    arena mem = { 0 };
    TRY(open_note(path, &top, d));
    an_status st = read_note(path, top, &n, d);
    json_decref(top);
    if (!st) st = same_run(path, &n, note, d);
    char *state = arena_printf(&mem, "%s/%s", path, STATE);
    if (!st) st = state ? pipe_load(p, state, NULL, 0, &mem, d) : diag_nomem(d);
    arena_free(&mem);
    if (!st) { /* a file of an earlier version has others of these, or none; what is saved from now on has this run's */
        n.data_digest = note->data_digest, n.validation = note->validation;
        memcpy(n.exact, note->exact, sizeof n.exact);
        memcpy(n.exact4, note->exact4, sizeof n.exact4);
        *note = n;
    }
    return st;
}
