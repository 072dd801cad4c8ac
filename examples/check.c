/* check.c: ask, from C, which chips take a MIL program.   cc check.c $(pkg-config --cflags --libs anneal) */
#include <stdio.h>

#include <anneal.h>

static const char text[] =
    "program(1.3)\n"
    "[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [1, 64, 1, 512]> x) {\n"
    "        tensor<fp16, [1, 64, 1, 512]> y = sin(x = x)[name = string(\"y\")];\n"
    "    } -> (y);\n"
    "}\n";

int main(void)
{
    an_error e = { 0 };
    an_report *r;
    if (an_check_mil(&r, text, sizeof text - 1, NULL, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return an_exit_code(e.status);
    }
    for (size_t i = 0; i < an_report_findings(r); i++) {
        an_finding f;
        an_report_finding(r, i, &f);
        printf("%s %s, line %u: %s\n  fix: %s\n", f.target, f.severity, f.line, f.message, f.fix);
    }
    for (size_t i = 0; i < an_report_costs(r); i++) {
        an_cost c;
        an_report_cost(r, i, &c);
        printf("%s: about %.0f us, %s bound\n", c.target, c.latency_us, c.bound);
    }
    an_report_free(r);
    return 0;
}
