/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies that compute the preceding op on the fly, on a GPU: GELU or a modulated norm. Codes,
 * scales, largest magnitudes and statistics have the same bits as from two separate ops.  Sums over
 * the rows of an operand can be computed with its copies, and must not change the copies' bits.
 */
#include "fp8_buffers.h"

/* Whether both buffers of each pair have the same bytes on the GPU. */
static bool same_pairs(struct buffer *const (*pair)[2], int n)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)desc_bytes(&pair[i][0]->desc);
        must(!cudaMemcpy(pair[i][1]->host, pair[i][0]->device, bytes, cudaMemcpyDeviceToHost),
             "a copy");
        ok &= same(pair[i][1]);
    }
    return ok;
}

/* Copies of a modulated norm, stored or computed on the fly, when it outputs only statistics and
 * the largest magnitude.  Its shift and scale are rows of a table, one per sequence; its rows are
 * short and long. */
static void test_norm(struct cuda_libs *libs)
{
    static const int64_t widths[] = {128, 272, 1152};
    enum { SEQUENCES = 3, LENGTH = 100, ROWS = SEQUENCES * LENGTH, PARTS = 6 };
    for (int k = 0; k < 3; k++) {
        const int64_t c = widths[k];
        const struct norm_attr norm = {.eps = 1e-6f};
        struct buffer x = draw(CKPT_BF16, 2, ROWS, c, 1, 3.f), y = make(CKPT_BF16, 2, ROWS, c);
        struct buffer shift = draw(CKPT_BF16, 2, SEQUENCES * PARTS, c, 2, 1.f), scale = shift;
        struct buffer stats[2], most[2];
        struct copies q[2];
        const struct ckpt_desc all = {.dtype = CKPT_BF16,
                                      .ndim = 3,
                                      .shape = {SEQUENCES, LENGTH, c},
                                      .stride = {LENGTH * c, c, 1}};
        for (int i = 0; i < 2; i++) {
            q[i] = make_copies(&y.desc, CKPT_F8E4M3);
            most[i] = make(CKPT_F32, 0, 0, 0);
            stats[i] = make(CKPT_F32, 2, ROWS, 2);
            stats[i].desc.ndim = 3;
            memcpy(stats[i].desc.shape, (int64_t[]){SEQUENCES, LENGTH, 2}, 3 * sizeof(int64_t));
            desc_dense(&stats[i].desc);
        }
        x.desc = y.desc = all;
        shift.desc = (struct ckpt_desc){
            .dtype = CKPT_BF16, .ndim = 3, .shape = {SEQUENCES, 1, c}, .stride = {PARTS * c, c, 1}};
        scale.desc = shift.desc;
        scale.device = (uint16_t *)shift.device + c;
        struct to_fp8_attr attr = attr_of(q, ROWS, FP8_ROWS | FP8_COLUMNS);
        const struct buffer *plain[] = {&x, &shift, &scale, &y, &stats[0]};
        const struct buffer *nowhere[] = {&x, &shift, &scale, NULL, &stats[1], &most[1]};
        const struct buffer *apart[] = {&y,   &most[0],    NULL,          NULL,
                                        NULL, &q[0].scale, &q[0].by_rows, &q[0].by_columns};
        const struct buffer *one[] = {&x,        &most[1],    &shift,        &scale,
                                      &stats[1], &q[1].scale, &q[1].by_rows, &q[1].by_columns};
        must(!run(cuda_layer_norm_modulate, libs, &norm, 3, 2, plain, false) &&
                 !find_largest(&y, &most[0], FP8_OPERAND, libs) &&
                 !run(cuda_to_fp8, libs, &attr, FP8_FROM_INPUTS, 3, apart, false) &&
                 !run_extra(cuda_layer_norm_modulate, libs, &norm, 3, 3, nowhere, EXTRA_LARGEST,
                            false),
             "norm");
        attr.source = FP8_NORM_MODULATE;
        must(!run(cuda_to_fp8, libs, &attr, FP8_FROM_INPUTS, 3, one, false), "to_fp8");
        struct buffer *const pairs[][2] = {{&most[0], &most[1]},
                                           {&stats[0], &stats[1]},
                                           {&q[0].scale, &q[1].scale},
                                           {&q[0].by_rows, &q[1].by_rows},
                                           {&q[0].by_columns, &q[1].by_columns}};
        const bool ok = same_pairs(pairs, 5);
        printf("%s copies of a modulated norm of %lld made on the way\n", ok ? "ok  " : "FAIL",
               (long long)c);
        failures += !ok;
        for (int i = 0; i < 2; i++)
            drop_copies(&q[i]), drop(&most[i]), drop(&stats[i]);
        drop(&x), drop(&y), drop(&shift);
    }
}

/* Largest magnitude and copies of GELU's result, stored or computed on the fly: also for a tensor
 * of all finite bf16 values, and for one with a non-finite value. */
static void test_gelu(struct cuda_libs *libs)
{
    enum { ROWS = 300, COLS = 272 };
    for (int k = 0; k < 4; k++) {
        struct buffer x = draw(CKPT_BF16, 2, ROWS, COLS, 1, k ? 1.f : 1e-3f);
        struct buffer y = make(CKPT_BF16, 2, ROWS, COLS), most[2];
        struct copies c[2] = {make_copies(&x.desc, CKPT_F8E4M3), make_copies(&x.desc, CKPT_F8E4M3)};
        struct to_fp8_attr attr = attr_of(c, ROWS, FP8_ROWS | FP8_COLUMNS);
        for (int i = 0; k == 2 && i < 1 << 16; i++) /* values above 2^7 would leave the others 0 */
            ((uint16_t *)x.host)[i] = (uint16_t)((i & 0x7fff) > 0x4300 ? 0 : i);
        if (k == 3)
            ((uint16_t *)x.host)[777] = 0xffc1;
        send(&x);
        for (int i = 0; i < 2; i++) {
            const struct buffer *plain[] = {&x, &y};
            const struct buffer *all[] = {i ? &x : &y, &most[i], &c[i].scale, &c[i].by_rows,
                                          &c[i].by_columns};
            most[i] = make(CKPT_F32, 0, 0, 0);
            attr.source = i ? FP8_GELU : FP8_OPERAND;
            must((i || !run(cuda_gelu, libs, NULL, 1, 1, plain, false)) &&
                     !find_largest(all[0], &most[i], attr.source, libs) &&
                     !run(cuda_to_fp8, libs, &attr, 2, 3, all, false),
                 "to_fp8");
        }
        struct buffer *const pairs[][2] = {{&most[0], &most[1]},
                                           {&c[0].by_rows, &c[1].by_rows},
                                           {&c[0].by_columns, &c[1].by_columns},
                                           {&c[0].scale, &c[1].scale}};
        const bool ok = same_pairs(pairs, 4);
        printf("%s copies of gelu made on the way\n", ok ? "ok  " : "FAIL");
        failures += !ok;
        for (int i = 0; i < 2; i++)
            drop_copies(&c[i]), drop(&most[i]);
        drop(&x), drop(&y);
    }
}

/* Copies of dy: the largest magnitude is the maximum of three parts.  Sizes end within a tile or at
 * its end.  Sums are equal to the CPU's up to their order. */
static void test_sums(struct cuda_libs *libs)
{
    static const int64_t sizes[][2] = {{1, 16}, {300, 272}, {256, 128}, {4, 1152}, {2600, 3456}};
    for (int k = 0; k < 5; k++) {
        const int64_t rows = sizes[k][0], cols = sizes[k][1];
        struct buffer x = draw(CKPT_BF16, 2, rows, cols, 1, 1.f), sums = make(CKPT_F32, 1, cols, 0);
        struct buffer part[3] = {make(CKPT_F32, 0, 0, 0), make(CKPT_F32, 0, 0, 0),
                                 make(CKPT_F32, 0, 0, 0)};
        struct copies c[2];
        for (int i = 0; i < 2; i++)
            c[i] = make_copies(&x.desc, CKPT_F8E5M2);
        const struct buffer *plain[] = {&x, &sums};
        must(!run(cpu_column_sum, NULL, NULL, 1, 1, plain, false), "column_sum");
        fill_copies(&x, NULL, &c[0], libs, FP8_ROWS | FP8_COLUMNS);
        for (int i = 0; i < 3; i++)
            *(float *)part[i].host = 0.25f * (float)i, send(&part[i]);
        must(!find_largest(&x, &part[rows % 3], FP8_OPERAND, libs), "largest");
        struct to_fp8_attr attr = attr_of(&c[1], rows, FP8_ROWS | FP8_COLUMNS);
        const struct buffer *one[] = {
            &x,       &part[0], NULL,        NULL,          NULL,
            &part[1], &part[2], &c[1].scale, &c[1].by_rows, &c[1].by_columns,
            &sums};
        must(!run_extra(cuda_to_fp8, libs, &attr, FP8_FROM_INPUTS + 2, 4, one, EXTRA_SUMS, false),
             "to_fp8 with sums");
        struct buffer *const pairs[][2] = {{&c[0].by_rows, &c[1].by_rows},
                                           {&c[0].by_columns, &c[1].by_columns},
                                           {&c[0].scale, &c[1].scale}};
        const bool ok = same_pairs(pairs, 3) && error_of(&sums) < 1e-5;
        printf("%s sums of %lld x %lld with their copies\n", ok ? "ok  " : "FAIL", (long long)rows,
               (long long)cols);
        failures += !ok;
        for (int i = 0; i < 2; i++)
            drop_copies(&c[i]);
        for (int i = 0; i < 3; i++)
            drop(&part[i]);
        drop(&x), drop(&sums);
    }
}

int main(void)
{
    struct cudaDeviceProp prop;
    struct cuda_libs *libs;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices ||
        cudaGetDeviceProperties(&prop, 0) != cudaSuccess || 10 * prop.major + prop.minor < 89) {
        printf("no GPU that multiplies 8-bit values here\n");
        return 77;
    }
    must(!cuda_libs_open(&libs), "libs");
    test_gelu(libs);
    test_norm(libs);
    test_sums(libs);
    cuda_libs_close(libs);
    return test_result();
}
