/* SPDX-License-Identifier: Apache-2.0 */
/* Forms in which files store a parameter: whole, in several tensors, or in codes of 4 bits. */
#ifndef CKPT_STATE_FILE_FORMS_H
#define CKPT_STATE_FILE_FORMS_H

#include "context/context.h"
#include "state/safetensors.h"

enum file_form { FORM_WHOLE, FORM_PARTS, FORM_MXFP4 };

/* MXFP4 (file_mxfp4.c): checks dtypes and shapes, scales -1: there are none; reads the values, in
 * the order of the parameter.  A checksum of the codes is not compared.  Return 0 or an error. */
int file_check_mxfp4(const ckpt_file *f, int blocks, int scales, const struct param *p);
int file_read_mxfp4(ckpt_file *f, int blocks, int scales, float *values);

#endif
