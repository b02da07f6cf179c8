// SPDX-License-Identifier: Apache-2.0
//! libckpt's C API.  The contract of each call is in the headers and in `man ckpt_open`.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
include!(concat!(env!("OUT_DIR"), "/ckpt.rs"));
