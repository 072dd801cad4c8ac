/* cmd_run.c: compile a MIL program for an engine, or take a compiled one, and run it once on .npy files. */
#include <errno.h>
#include <stdlib.h>

#include "base/pool.h"
#include "cli/cli.h"

const option run_options[] = {
    { "engine", "E", NULL, "soft:m1 … soft:m5, cpu, null; without it the best one present" },
    { "in", "NAME=F.npy", NULL, "an input; once for each" },
    { "fill", "SEED", NULL, "inputs without --in: numbers between -1 and 1 that the seed chooses; 0 where they are whole numbers" },
    { "out", "NAME=F.npy", NULL, "where a result goes; once for each. Without it all are told of in short" },
    { "json", NULL, NULL, "without --out: one object per result" },
    { "threads", "N", "0", "0: one per CPU" },
    { "limit", "NAME=VALUE", NULL, "soft: a limit instead of the chip's own (anneal limits lists them), once for each; open_images=1 loads a program compiled before" },
    { "reference", NULL, NULL, "the slow, obvious executor" },
    { NULL, NULL, NULL, NULL },
};

typedef struct {
    an_array **in;
    char **want;
    const char **out_file;
    an_array **got;
    char **limit_name;
    an_limit *limit;
    size_t n_in, n_out, n_limit, room; /* room: of got */
} job;

static int read_limits(const args *a, job *j)
{
    for (size_t i = 0; i < a->n_list; i++) {
        const char *value;
        char *end;
        if (strcmp(a->list[i].option, "limit")) continue;
        char *name;
        int code = pair_name(a->list[i].value, "limit", "NAME=VALUE", &name, &value);
        if (code) return code;
        errno = 0;
        j->limit[j->n_limit] = (an_limit){ .name = name, .value = strtoll(value, &end, 10) };
        j->limit_name[j->n_limit++] = name;
        if (*end || errno) return say(AN_USAGE, "--limit %s wants a whole number, got \"%s\"", name, value);
    }
    return 0;
}

static int read_pairs(const args *a, job *j)
{
    for (size_t i = 0; i < a->n_list; i++) {
        if (strcmp(a->list[i].option, "out")) continue;
        char *name;
        int code = pair_name(a->list[i].value, "out", "NAME=FILE.npy", &name, &j->out_file[j->n_out]);
        if (code) return code;
        j->want[j->n_out++] = name;
    }
    int code = read_limits(a, j);
    return code ? code : read_arrays(a, "in", j->in, &j->n_in);
}

static int run_job(const args *a, const char *path, const file_bytes *f, job *j)
{
    long threads, seed = 0;
    if (arg_on(a, "fill") && !arg_int(a, "fill", 0, 0x7fffffff, &seed)) return an_exit_code(AN_USAGE);
    if (!arg_int(a, "threads", 0, POOL_MAX_THREADS, &threads)) return an_exit_code(AN_USAGE);
    const char *shown = strcmp(path, "-") ? path : "<stdin>";
    char *dir = folder_of(path);
    if (!dir) return say(AN_NOMEM, "out of memory");
    an_error e = { 0 };
    an_run_options o = { .engine = arg_of(a, "engine"),
                         .file = shown,
                         .model_dir = dir,
                         .threads = (int)threads,
                         .reference = arg_on(a, "reference"),
                         .want = j->n_out ? (const char *const *)j->want : NULL,
                         .n_want = j->n_out,
                         .fill = arg_on(a, "fill"),
                         .seed = (uint64_t)seed,
                         .limits = j->limit,
                         .n_limits = j->n_limit };
    size_t n = j->room;
    int code = 0;
    if (an_run_mil(j->got, &n, (const char *)f->at, f->n, (const an_array *const *)j->in, j->n_in, &o, &e))
        code = say_error(e.status == AN_USAGE ? NULL : shown, &e); /* what was asked for is wrong, not the file */
    free(dir);
    if (!code && !j->n_out) code = put_results(j->got, n, arg_format(a));
    for (size_t i = 0; i < j->n_out && !code; i++)
        if (an_array_write(j->got[i], j->out_file[i], &e)) code = say_error(NULL, &e);
    return code;
}

int cmd_run(const args *a)
{
    enum { MANY = 1 << 16 }; /* results of a program, when nobody says which */
    if (a->n_files > 1) return say(AN_USAGE, "run takes one file, got %d", a->n_files);
    const char *path = a->n_files ? a->files[0] : "-";
    int code = engine_known(a);
    if (code) return code;
    const size_t room = a->n_list + 1, results = arg_count(a, "out") ? room : MANY;
    job j = { .room = results,
              .in = calloc(room, sizeof *j.in),
              .want = calloc(room, sizeof *j.want),
              .out_file = calloc(room, sizeof *j.out_file),
              .got = calloc(results, sizeof *j.got),
              .limit_name = calloc(room, sizeof *j.limit_name),
              .limit = calloc(room, sizeof *j.limit) };
    file_bytes f = { 0 };
    bool ok = j.in && j.want && j.out_file && j.got && j.limit_name && j.limit;
    code = !ok ? say(AN_NOMEM, "out of memory") : read_pairs(a, &j);
    if (!code && j.n_out && arg_on(a, "json"))
        code = say(AN_USAGE, "--json tells of results that no file keeps; leave out --out or --json");
    if (!code) code = read_text(path, &f);
    if (!code) code = run_job(a, path, &f, &j);
    file_drop(&f);
    for (size_t i = 0; i < room && ok; i++)
        an_array_free(j.in[i]), free(j.want[i]), free(j.limit_name[i]);
    for (size_t i = 0; i < results && ok; i++) an_array_free(j.got[i]);
    free(j.in), free(j.want), free(j.out_file), free(j.got), free(j.limit_name), free(j.limit);
    return code;
}
