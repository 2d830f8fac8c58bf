//! Builds the two programs that straingauge carries inside: the plugin that QEMU loads and the guest's first process. Both
//! use the standard library alone, so the compiler is called without cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=plugin");
    println!("cargo::rerun-if-changed=guest");
    println!("cargo::rerun-if-changed=src/attribution");
    println!("cargo::rerun-if-changed=src/cache");
    println!("cargo::rerun-if-changed=src/exchange");
    println!("cargo::rerun-if-changed=src/objects");
    println!("cargo::rerun-if-changed=../../crates/record/src/simulation/geometry.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (plugin, first_process) = (out.join("plugin.so"), out.join("guest"));
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        compile("plugin/lib.rs", &plugin, &["--crate-type=cdylib", "-Cpanic=abort"]);
        compile("guest/main.rs", &first_process, &["--crate-type=bin", "-Ctarget-feature=+crt-static"]);
    } else {
        // `machine::Qemu::find` refuses other processors before either is used.
        for program in [plugin, first_process] {
            std::fs::write(program, []).expect("OUT_DIR can be written");
        }
    }
}

fn compile(source: &str, to: &Path, options: &[&str]) {
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "-Copt-level=3", "-Ccodegen-units=1", "-Cstrip=symbols", "--cap-lints=allow"]);
    command.args(options).arg("--target").arg(target).arg("-o").arg(to).arg(source);
    let status = command.status().expect("the compiler starts");
    assert!(status.success(), "{source} does not compile: {command:?}");
}
