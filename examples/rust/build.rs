// SPDX-License-Identifier: Apache-2.0
// Writes the declarations from the installed headers (examples/python/bindings.py) and finds the library by
// pkg-config.  CKPT_BINDINGS names that script elsewhere.
use std::{env, fs, path::Path, process::Command};

fn output(command: &mut Command) -> String {
    let run = command.output().unwrap_or_else(|e| panic!("{:?}: {}", command, e));
    if !run.status.success() {
        panic!("{:?}: {}", command, String::from_utf8_lossy(&run.stderr));
    }
    String::from_utf8(run.stdout).unwrap()
}

fn main() {
    let bindings = env::var("CKPT_BINDINGS").unwrap_or_else(|_| "../python/bindings.py".into());
    let ckpt = output(Command::new("python3").args([&bindings, "rust"]));
    fs::write(Path::new(&env::var("OUT_DIR").unwrap()).join("ckpt.rs"), ckpt).unwrap();
    for word in output(Command::new("pkg-config").args(["--libs", "libckpt"])).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", folder);
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={}", library);
        } else if let Some(option) = word.strip_prefix("-Wl,") {
            println!("cargo:rustc-link-arg=-Wl,{}", option);
        }
    }
    println!("cargo:rerun-if-changed={}", bindings);
    println!("cargo:rerun-if-env-changed=CKPT_BINDINGS");
}
