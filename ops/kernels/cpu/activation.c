/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: GELU (tanh), SiLU and their derivatives (functions.c). */
#include "functions.h"
#include "kernels.h"
#include "map.h"

CPU_ELEMENTS(gelu, 1, map_gelu, NULL)
CPU_ELEMENTS(gelu_dx, 2, map_gelu_dx, NULL)
CPU_ELEMENTS(silu, 1, map_silu, NULL)
CPU_ELEMENTS(silu_dx, 2, map_silu_dx, NULL)
