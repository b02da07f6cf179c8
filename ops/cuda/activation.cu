/* GELU and SiLU (see ops/activation.c). */
#include "cuda/cuda.cuh"
#include "cuda/kernels.h"
