/* cmd_convert.c: a model as another kind of file. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/pool.h"
#include "cli/cli.h"

const option convert_options[] = {
    { "model", "M", NULL, "a Hugging Face folder, a folder of .npy files, .safetensors, llama2.c .bin, .gguf, config.json or a preset (random weights)" },
    { "out", "PATH", NULL, "the file, or the folder for hf and npy" },
    { "to", "KIND", NULL, "safetensors, hf, gguf, llama2c or npy; without it the ending of --out says which (.safetensors, .gguf, .bin), and any other name is an hf folder" },
    { "dtype", "TYPE", NULL, "f32, f16 or bf16 for what is not quantised; without it numbers stay as they are where the target can hold them" },
    { "quantize", "FORM", NULL, "int8, int4 or palette4; gguf: q8_0 or q4_0; llama2c: int8" },
    { "bin-version", "N", NULL, "llama2c: 0, 1 or 2; without it 0, or 2 with int8" },
    { "shard-size", "SIZE", NULL, "hf: files of at most so many bytes of tensors, and their index: 500MB, 5GB, or a number of bytes" },
    { "data", "F", NULL, "afterwards, how well both predict a text, or ids as .u16, .u32 or llm.c's .bin: perplexity before and after" },
    { "tokenizer", "T", NULL, "goes into a gguf file or an hf folder, and reads --data: tokenizer.json, tokenizer.model, tokenizer.bin, GGUF or a folder; without it the model's own" },
    { "seed", "N", "0", "of the weights of a preset" },
    { "threads", "N", "0", "0: the CPUs" },
    { "json", NULL, NULL, "one object" },
    { NULL, NULL, NULL, NULL },
};

/* Perplexity of what is in a file: in fp32, so that nothing but the numbers themselves changes from one to the other. */
static int score(const args *a, const char *model, uint64_t seed, int threads, an_score *s)
{
    an_lm *m = NULL;
    an_error e = { 0 };
    an_lm_options o = { .model = model, .tokenizer = arg_of(a, "tokenizer"), .engine = "cpu", .weights = "fp32",
                        .no_cache = true, .seed = seed, .threads = threads };
    o.no_tokenizer = !o.tokenizer && an_is_token_file(arg_of(a, "data"));
    int code = an_lm_open(&m, &o, &e) || an_lm_eval(m, arg_of(a, "data"), NULL, NULL, s, &e) ? say_error(NULL, &e) : 0;
    an_lm_close(m);
    return code;
}

/* "5GB", "500MB", "20kB" or bytes; powers of ten, as the tools that write such shards count. */
static bool read_size(const char *s, uint64_t *out)
{
    static const struct {
        const char *tail;
        uint64_t unit;
    } units[] = { { "", 1 }, { "B", 1 }, { "kB", 1000 }, { "KB", 1000 }, { "MB", 1000000 }, { "GB", 1000000000 } };
    char *end;
    errno = 0;
    unsigned long long n = strtoull(s, &end, 10);
    for (size_t i = 0; i < COUNT(units) && *s >= '0' && *s <= '9' && !errno; i++)
        if (!strcmp(end, units[i].tail) && n && n <= INT64_MAX / units[i].unit) return *out = n * units[i].unit, true;
    say(AN_USAGE, "--shard-size wants a size above 0 such as 500MB or 5GB, got \"%s\"", s);
    return false;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static bool takes_vocabulary(const args *a)
{
    const char *to = arg_of(a, "to"), *out = arg_of(a, "out");
    return to ? !strcmp(to, "gguf") || !strcmp(to, "hf") : !ends_with(out, ".safetensors") && !ends_with(out, ".bin");
}

int cmd_convert(const args *a)
{
    const char *model = arg_of(a, "model"), *out = arg_of(a, "out");
    long version = -1, seed, threads;
    if (a->n_files) return say(AN_USAGE, "convert takes no file, got \"%s\"; the model is --model M", a->files[0]);
    if (!model || !out) return say(AN_USAGE, "convert needs --model M and --out PATH");
    if (arg_on(a, "bin-version") && !arg_int(a, "bin-version", 0, 2, &version)) return an_exit_code(AN_USAGE);
    if (!arg_int(a, "seed", 0, 0x7fffffff, &seed) || !arg_int(a, "threads", 0, POOL_MAX_THREADS, &threads))
        return an_exit_code(AN_USAGE);
    an_converted done;
    an_error e = { 0 };
    an_convert_options o = { .to = arg_of(a, "to"),
                             .dtype = arg_of(a, "dtype"),
                             .quantize = arg_of(a, "quantize"),
                             .version = (int)version + 1,
                             .seed = (uint64_t)seed,
                             .threads = (int)threads };
    an_score before, after;
    bool scored = arg_of(a, "data") != NULL;
    int code;
    if (arg_of(a, "shard-size") && !read_size(arg_of(a, "shard-size"), &o.shard_bytes)) return an_exit_code(AN_USAGE);
    /* elsewhere it serves to judge the result */
    if (takes_vocabulary(a) || !scored) o.tokenizer = arg_of(a, "tokenizer");
    if (scored && (code = score(a, model, (uint64_t)seed, (int)threads, &before))) return code;
    if (an_convert(model, out, &o, &done, &e)) return say_error(NULL, &e);
    if (scored && (code = score(a, out, 0, (int)threads, &after))) return code;
    if (!arg_on(a, "json")) {
        fprintf(stderr, "%s: %lld tensors of a %s model from a %s, %.1f MB in, %.1f MB out", out,
                (long long)done.tensors, done.family, done.from, (double)done.bytes_in * 1e-6,
                (double)done.bytes_out * 1e-6);
        if (done.worst > 0) fprintf(stderr, "; off by at most %.2g of a tensor's largest value\n", done.worst);
        else fprintf(stderr, "; no number changed\n");
        if (done.shards > 1)
            fprintf(stderr, "in %d files, with model.safetensors.index.json beside them\n", done.shards);
        if (!strcmp(done.to, "gguf") || !strcmp(done.to, "hf"))
            fprintf(stderr, "%s\n",
                    done.vocabulary ? "its vocabulary goes along" : "no vocabulary goes along; --tokenizer names one");
        if (done.lost[0]) fprintf(stderr, "not kept: %s\n", done.lost);
        if (scored)
            fprintf(stderr, "perplexity of %zu tokens: %.4f before, %.4f after, %+.2f %% (%+.5f nats a token)\n",
                    after.tokens, before.ppl, after.ppl, 100 * expm1(after.nats_per_token - before.nats_per_token),
                    after.nats_per_token - before.nats_per_token);
        return 0;
    }
    strbuf b = { 0 };
    sb_puts(&b, "{\"out\":");
    sb_json(&b, out, strlen(out));
    sb_printf(
        &b,
        ",\"from\":\"%s\",\"to\":\"%s\",\"family\":\"%s\",\"tensors\":%lld,\"bytes_in\":%llu,\"bytes_out\":%llu,\"worst\":%.9g",
        done.from, done.to, done.family, (long long)done.tensors, (unsigned long long)done.bytes_in,
        (unsigned long long)done.bytes_out, done.worst);
    sb_printf(&b, ",\"shards\":%d,\"vocabulary\":%s,\"lost\":", done.shards, done.vocabulary ? "true" : "false");
    sb_json(&b, done.lost, strlen(done.lost));
    if (scored) {
        sb_printf(&b, ",\"tokens\":%zu,\"ppl_before\":", after.tokens);
        sb_number(&b, before.ppl);
        sb_puts(&b, ",\"ppl_after\":");
        sb_number(&b, after.ppl);
    }
    sb_puts(&b, "}\n");
    if (b.oom) return sb_free(&b), say(AN_NOMEM, "out of memory");
    fputs(b.at, stdout);
    sb_free(&b);
    return 0;
}
