/* SPDX-License-Identifier: Apache-2.0 */
/* The reported links between GPUs, from a simulated NVML (fake_nvml.c). */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "memory/device/cuda_nvml.h"

static void expect_route(const char *from, const char *to, const char *says)
{
    char text[DEVICE_ROUTE] = "?";
    struct cuda_nvml *n = cuda_nvml_open(from);
    assert_non_null(n);
    cuda_nvml_route(n, to, text);
    assert_string_equal(text, says);
    cuda_nvml_close(n);
}

static void test_routes(void **state)
{
    (void)state;
    expect_route("0000:18:00.0", "0000:2a:00.0", "NVLink x16");
    expect_route("0000:2a:00.0", "0000:18:00.0", "NVLink x16");
    expect_route("0000:3b:00.0", "0000:5e:00.0", "NVLink x2");
    expect_route("0000:5e:00.0", "0000:3b:00.0", "NVLink x2");
    expect_route("0000:18:00.0", "0000:3b:00.0", "PCIe switch");
    expect_route("0000:18:00.0", "0000:5e:00.0", "across nodes");
    expect_route("0000:18:00.0", "0000:99:00.0", "");
}

static void test_unknown(void **state)
{
    char text[DEVICE_ROUTE] = "?";
    (void)state;
    assert_null(cuda_nvml_open("0000:99:00.0"));
    cuda_nvml_route(NULL, "0000:18:00.0", text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_unknown),
    };
    /* A later dlopen by name gets the fake library that is already loaded. */
    if (!dlopen("tests/unit/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
        printf("%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
