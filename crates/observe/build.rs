//! Compiles the BPF programs (bpf/*.bpf.c) with clang, into `OUT_DIR/<name>.bpf.o.gz`, and generates the types that
//! they share with this crate, into `OUT_DIR/<name>.types.rs`. Also writes the numbers of the watch's counters into
//! `OUT_DIR/counters.h` for the programs.

use libbpf_rs::Linker;
use libbpf_rs::btf::types::{Array, Int, IntEncoding, MemberAttr, Struct, StructMember};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::Command;

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
        other => other,
    };
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    if Command::new(&clang).arg("--version").output().is_err() {
        panic!(
            "{clang} is needed to compile the BPF programs: run setup/install build (apt-get install clang), or name \
             another compiler with CLANG="
        );
    }
    let out = Path::new(&out);
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("OUT_DIR can be written");
    let counters =
        counters::Counter::ALL.map(|counter| format!("COUNT_{}, ", counter.declaration().name.to_uppercase()));
    write(&out.join("counters.h"), &format!("enum counter {{ {}COUNTERS }};\n", counters.concat()));
    let headers = out.join("include/bpf");
    std::fs::create_dir_all(&headers).expect("OUT_DIR can be written");
    for (name, text) in libbpf_rs::libbpf_sys::API_HEADERS {
        write(&headers.join(name), text);
    }
    // Line information has file names relative to the repository, wherever it was built.
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the folder");
    let arguments = [
        // Version 3 of the instruction set: atomic operations and 32-bit jumps (Linux 5.12).
        "-target bpf -mcpu=v3 -g -O2 -fno-stack-protector -Wall -Werror -Ibpf".to_string(),
        format!("-D__TARGET_ARCH_{arch}"),
    ];
    let arguments: Vec<&str> = arguments.iter().flat_map(|words| words.split(' ')).collect();
    for entry in std::fs::read_dir("bpf").expect("bpf/ is part of the crate").flatten() {
        let source = entry.path();
        let Some(name) = source.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".bpf.c")) else {
            continue;
        };
        let compiled = out.join(format!("{name}.unlinked.o"));
        let done = Command::new(&clang)
            .args(&arguments)
            .arg(format!("-I{}", out.display()))
            .arg(format!("-I{}", out.join("include").display()))
            .arg(format!("-ffile-prefix-map={}=generated", out.display()))
            .arg(format!("-ffile-prefix-map={folder}=crates/observe"))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&compiled)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "{clang} does not compile {}", source.display());
        let object = out.join(format!("{name}.bpf.o"));
        link(&compiled, &object).unwrap_or_else(|error| panic!("{}: {error:#}", source.display()));
        // A program that carries them uncompressed is 350 KB larger. The command costs no compilation.
        let compressed = File::create(out.join(format!("{name}.bpf.o.gz"))).expect("OUT_DIR can be written");
        let done = Command::new("gzip").arg("-9nc").arg(&object).stdout(compressed).status();
        assert!(done.is_ok_and(|status| status.success()), "gzip is needed to compress the BPF programs");
        let btf = Btf::from_path(&object).expect("clang writes type information");
        write(&out.join(format!("{name}.types.rs")), &structures(&btf));
    }
}

/// Removes the information for debuggers.
fn link(compiled: &Path, object: &Path) -> Result<(), libbpf_rs::Error> {
    let mut linker = Linker::new(object)?;
    linker.add_file(compiled)?;
    linker.link()
}

/// The structures of an object that consist of integers only, in Rust. Those of counts of 64 bits can be added and
/// subtracted.
fn structures(btf: &Btf<'_>) -> String {
    let mut text = String::new();
    for structure in btf.type_by_kind::<Struct<'_>>() {
        let (Some(name), Some(fields)) = (structure.name().and_then(OsStr::to_str), fields(btf, &structure)) else {
            continue;
        };
        let size = structure.size();
        let of_all = |form: fn(&Field) -> String| fields.iter().map(form).collect::<Vec<_>>();
        let members = of_all(|(name, kind, _)| format!("pub r#{name}: {kind}")).join(", ");
        let sizes = of_all(|(_, kind, _)| format!("size_of::<{kind}>()")).join(" + ");
        writeln!(
            text,
            "#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(C)]\n\
             pub struct {name} {{ {members} }}\n\
             const _: () = assert!(size_of::<{name}>() == {size} && {sizes} == {size});\n\
             // SAFETY: repr(C) with integers only, and without padding, as was just checked.\n\
             unsafe impl crate::bpf::types::Shared for {name} {{}}\n\
             impl Default for {name} {{\n\
             fn default() -> Self {{\n\
             // SAFETY: 0 is a value of all integers.\n\
             unsafe {{ std::mem::zeroed() }}\n}}\n}}"
        )
        .expect("a string grows");
        if fields.iter().all(|(.., is_count)| *is_count) {
            let names = of_all(|(name, ..)| format!("r#{name}")).join(", ");
            writeln!(text, "record::grows!({name} {{ {names} }});").expect("a string grows");
        }
    }
    text
}

/// Name, type in Rust, and whether it consists of integers of 64 bits.
type Field = (String, String, bool);

/// The fields of a structure; `None` if one is neither an integer nor made of integers.
fn fields(btf: &Btf<'_>, structure: &Struct<'_>) -> Option<Vec<Field>> {
    let members = (0..structure.len()).filter_map(|index| structure.get(index));
    let field = |member: StructMember<'_>| {
        let is_whole = matches!(member.attr, MemberAttr::Normal { .. });
        let name = member.name.filter(|_| is_whole)?.to_str()?;
        let (kind, is_count) = rust_type(btf, btf.type_by_id(member.ty)?)?;
        Some((name.to_string(), kind, is_count))
    };
    members.map(field).collect()
}

fn rust_type(btf: &Btf<'_>, of: BtfType<'_>) -> Option<(String, bool)> {
    let of = of.skip_mods_and_typedefs();
    if let Ok(int) = Int::try_from(of) {
        let sign = match int.encoding {
            IntEncoding::None => "u",
            IntEncoding::Signed | IntEncoding::Char => "i",
            IntEncoding::Bool => return None,
        };
        return Some((format!("{sign}{}", int.bits), int.bits == 64));
    }
    if let Ok(array) = Array::try_from(of) {
        let (kind, is_count) = rust_type(btf, array.contained_type())?;
        return Some((format!("[{kind}; {}]", array.capacity()), is_count));
    }
    let structure = Struct::try_from(of).ok()?;
    let is_count = fields(btf, &structure)?.iter().all(|(.., is_count)| *is_count);
    Some((structure.name()?.to_str()?.to_string(), is_count))
}
