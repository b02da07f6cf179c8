/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory use of this process and connections to other devices, as nvidia-smi shows them, through
 * NVML, which is part of the driver and has no header in the toolkit.
 */
#ifndef CKPT_CUDA_NVML_H
#define CKPT_CUDA_NVML_H

#include "memory/device/device.h"

struct cuda_nvml;

/* bus_id: "0000:01:00.0".  NULL without NVML, or if NVML does not know the device. */
struct cuda_nvml *cuda_nvml_open(const char *bus_id);
void cuda_nvml_close(struct cuda_nvml *n);

/* Bytes of the device that this process uses, or -1 if NVML does not report them. */
int64_t cuda_nvml_process_bytes(struct cuda_nvml *n);

/* The connection to another device, in the words of device_ops.route. */
void cuda_nvml_route(struct cuda_nvml *n, const char *bus_id, char text[DEVICE_ROUTE]);

#endif
