//! Compiles the BPF programs (bpf/*.bpf.c) with clang, into `OUT_DIR/<name>.bpf.o`, and generates the types that they
//! share with this crate, into `OUT_DIR/<name>.types.rs`. Also writes the numbers of the watch's counters into
//! `OUT_DIR/counters.h` for the programs.

use std::ffi::OsStr;
use std::path::Path;

#[allow(dead_code)] // the programs need only names and numbers
#[path = "../record/src/watch/counters.rs"]
mod counters;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../record/src/watch/counters.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    // bpf_tracing.h needs the kernel's name of the architecture.
    let arch = match arch.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        "powerpc64" => "powerpc",
        "s390x" => "s390",
        other => other,
    };
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    if std::process::Command::new(&clang).arg("--version").output().is_err() {
        panic!(
            "{clang} is needed to compile the BPF programs: run setup/install build (apt-get install clang), or \
             name another with CLANG="
        );
    }
    let counters =
        counters::Counter::ALL.map(|counter| format!("COUNT_{}, ", counter.declaration().name.to_uppercase()));
    let header = format!("enum counter {{ {}COUNTERS }};\n", counters.concat());
    std::fs::write(Path::new(&out).join("counters.h"), header).expect("OUT_DIR can be written");
    let include_out = format!("-I{}", Path::new(&out).display());
    // Line information has file names relative to the repository, wherever it was built.
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the folder");
    let map_out = format!("-ffile-prefix-map={}=generated", Path::new(&out).display());
    let map_folder = format!("-ffile-prefix-map={folder}=crates/observe");
    for entry in std::fs::read_dir("bpf").expect("bpf/ is part of the crate").flatten() {
        let source = entry.path();
        let Some(name) = source.file_name().and_then(OsStr::to_str).filter(|name| name.ends_with(".bpf.c")) else {
            continue;
        };
        let object = Path::new(&out).join(name.replace(".bpf.c", ".bpf.o"));
        let skeleton = object.with_extension("").with_extension("skel.rs");
        let built = libbpf_cargo::SkeletonBuilder::new()
            .source(&source)
            .obj(&object)
            .reference_obj(true)
            .clang(&clang)
            // Version 3 of the instruction set: atomic operations and 32-bit jumps (Linux 5.12).
            .clang_args([
                format!("-D__TARGET_ARCH_{arch}").as_str(),
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Ibpf",
                &include_out,
                &map_out,
                &map_folder,
            ])
            .build_and_generate(&skeleton);
        if let Err(error) = built {
            panic!("{}: {error:#}", source.display());
        }
        let text = std::fs::read_to_string(&skeleton).expect("it was just written");
        std::fs::write(skeleton.with_extension("").with_extension("types.rs"), types_of(&text))
            .expect("OUT_DIR can be written");
    }
}

/// The module `types` of a skeleton. The rest is unused, and takes half a minute to compile for an object with 200
/// programs.
fn types_of(skeleton: &str) -> &str {
    let from = skeleton.find("pub mod types {").expect("a skeleton has its types");
    let mut depth = 0;
    for (at, byte) in skeleton[from..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return &skeleton[from..=from + at],
            b'}' => depth -= 1,
            _ => {}
        }
    }
    panic!("the skeleton's types do not end")
}
