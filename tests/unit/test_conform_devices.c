/* test_conform_devices.c: which devices the conformance suites run on: all, the one AN_DEVICE names, or none and
 * then they fail. */
#include "conform.h"

static int ran;

static void counts(void **state)
{
    (void)state;
    ran++;
}

typedef struct {
    int code, ran;
} outcome;

static outcome run_with(const char *name)
{
    static const conform_row suite[] = { ROW(counts) };
    if (name) setenv("AN_DEVICE", name, 1);
    else unsetenv("AN_DEVICE");
    ran = 0;
    int code = conform_main("devices", suite, COUNT(suite));
    return (outcome){ code, ran };
}

static outcome unset, empty, one, unknown;

static void named_or_all(void **state)
{
    (void)state;
    assert_true(unset.code == 0 && unset.ran > 1);
    assert_true(empty.code == 0 && empty.ran == unset.ran);
    assert_true(one.code == 0 && one.ran == 1);
    assert_true(unknown.code != 0);
}

int main(void)
{
    /* a group cannot run inside a test */
    unset = run_with(NULL), empty = run_with(""), one = run_with("cpu"), unknown = run_with("soft:m99");
    const struct CMUnitTest tests[] = { cmocka_unit_test(named_or_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
