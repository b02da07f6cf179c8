/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvidia-smi shows of this process and of the ways to other devices, through NVML, which comes
 * with the driver and has no header in the toolkit.
 */
#ifndef CKPT_CUDA_NVML_H
#define CKPT_CUDA_NVML_H

#include "memory/device/device.h"

struct cuda_nvml;

/* bus_id: "0000:01:00.0".  NULL where there is no NVML or it does not know the device. */
struct cuda_nvml *cuda_nvml_open(const char *bus_id);
void cuda_nvml_close(struct cuda_nvml *n);

/* Bytes of the device that this process takes, or -1 if NVML does not say. */
int64_t cuda_nvml_process_bytes(struct cuda_nvml *n);

/* The way to another device, as device_ops.route tells it. */
void cuda_nvml_route(struct cuda_nvml *n, const char *bus_id, char text[DEVICE_ROUTE]);

#endif
