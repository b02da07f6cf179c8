/* SPDX-License-Identifier: Apache-2.0 */
/* Builds one function for several instruction sets. */
#ifndef CKPT_CLONES_H
#define CKPT_CLONES_H

/*
 * Functions with hot loops are built for several instruction sets and selected at load time.
 * Sanitizers cannot run the resolvers, so configure leaves CKPT_CLONES empty there.
 *
 * clang makes the resolver of a static function a symbol of the whole library, so such functions
 * are static and their names are unique in the library (build-aux/lint).  clang would take
 * x86-64-v3 for the name of a processor, and takes one feature at a time: avx512bw implies AVX2 and
 * FMA, avx2 does not imply FMA.
 */
#ifndef CKPT_CLONES
#if defined(CKPT_HAVE_TARGET_CLONES) && defined(__clang__)
#define CKPT_CLONES __attribute__((target_clones("avx512bw", "avx2", "default")))
#elif defined(CKPT_HAVE_TARGET_CLONES)
#define CKPT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CKPT_CLONES
#endif
#endif

#endif
