// SPDX-License-Identifier: Apache-2.0
// The program of libckpt's README in Rust: cargo run --example mlp -- --vram 4M
use ckpt_sys::*;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

const BATCH: usize = 64;
const STEPS: usize = 100;

struct Mlp {
    w1: ckpt_tensor,
    b1: ckpt_tensor,
    w2: ckpt_tensor,
    b2: ckpt_tensor,
}

fn name(text: &'static [u8]) -> *const c_char {
    CStr::from_bytes_with_nul(text).unwrap().as_ptr()
}

unsafe extern "C" fn record(t: *mut ckpt_tape, batch: i64, user: *mut c_void) -> ckpt_tensor {
    let m = &*(user as *const Mlp);
    let x = ckpt_input(t, name(b"x\0"), CKPT_F32, 2, [batch, 784].as_ptr());
    let label = ckpt_input(t, name(b"label\0"), CKPT_I32, 1, [batch].as_ptr());
    let h = ckpt_gelu_tanh(t, ckpt_linear(t, x, m.w1, m.b1));
    ckpt_cross_entropy(t, ckpt_linear(t, h, m.w2, m.b2), label, null())
}

unsafe fn check(code: c_int, c: *const ckpt) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(CStr::from_ptr(ckpt_error(c)).to_string_lossy().into_owned())
}

unsafe fn parameter(c: *mut ckpt, n: &'static [u8], kind: ckpt_init_kind, s: &[i64]) -> ckpt_tensor {
    ckpt_param(c, name(n), CKPT_F32, s.len() as c_int, s.as_ptr(), ckpt_init { kind, a: 0.0 }, true)
}

unsafe fn feed<T>(c: *mut ckpt, p: *mut ckpt_program, n: &'static [u8], v: &[T]) -> Result<(), String> {
    let bytes = std::mem::size_of_val(v) as i64;
    check(ckpt_feed(p, name(n), v.as_ptr() as *const c_void, bytes), c)
}

unsafe fn train(c: *mut ckpt) -> Result<f32, String> {
    let mut m = Mlp {
        w1: parameter(c, b"w1\0", CKPT_INIT_XAVIER_UNIFORM, &[256, 784]),
        b1: parameter(c, b"b1\0", CKPT_INIT_ZEROS, &[256]),
        w2: parameter(c, b"w2\0", CKPT_INIT_XAVIER_UNIFORM, &[10, 256]),
        b2: parameter(c, b"b2\0", CKPT_INIT_ZEROS, &[10]),
    };
    let mut adamw = ckpt_adamw::init();
    adamw.lr = 1e-3;
    let mut step: *mut ckpt_program = null_mut();
    let user = &mut m as *mut Mlp as *mut c_void;
    check(ckpt_compile(c, Some(record), user, ckpt_adamw(c, &adamw), BATCH as i64, &mut step), c)?;
    let (mut x, mut label, mut loss) = (vec![0f32; BATCH * 784], vec![0i32; BATCH], 0f32);
    for i in 0..STEPS {
        ckpt_fill_normal(1, i as u64, 0, x.as_mut_ptr(), x.len() as i64);
        for b in 0..BATCH {
            label[b] = ((i + b) % 10) as i32;
            x[b * 784 + label[b] as usize] += 4.0;
        }
        feed(c, step, b"x\0", &x)?;
        feed(c, step, b"label\0", &label)?;
        check(ckpt_step(step, &mut loss), c)?;
    }
    Ok(loss)
}

unsafe fn run() -> Result<f32, String> {
    let words: Vec<CString> = std::env::args().map(|a| CString::new(a).unwrap()).collect();
    let mut argv: Vec<*mut c_char> = words.iter().map(|w| w.as_ptr() as *mut c_char).collect();
    argv.push(null_mut());
    let mut argc = words.len() as c_int;
    let mut opt = ckpt_options::init();
    let mut c: *mut ckpt = null_mut();
    check(ckpt_options_parse(&mut opt, &mut argc, argv.as_mut_ptr()), null())?;
    check(ckpt_open(&mut c, &opt), null())?;
    let result = train(c);
    ckpt_close(c);
    result
}

fn main() {
    match unsafe { run() } {
        Ok(loss) => println!("loss {:.4}", loss),
        Err(sentence) => {
            eprintln!("{}", sentence);
            std::process::exit(1);
        }
    }
}
