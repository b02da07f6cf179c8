/* SPDX-License-Identifier: Apache-2.0 */
/* One function, several instruction sets. */
#ifndef CKPT_CLONES_H
#define CKPT_CLONES_H

/*
 * Functions with hot loops are built for several instruction sets and chosen at load time.
 * Sanitizers cannot run the resolvers, so configure leaves CKPT_CLONES empty there.
 */
#ifndef CKPT_CLONES
#if defined(CKPT_HAVE_TARGET_CLONES)
#define CKPT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CKPT_CLONES
#endif
#endif

#endif
