//! Boots a stock kernel in a QEMU guest, whose only program is the calling test binary, to test features that this
//! machine's kernel lacks. The tests of several crates include this file.
//!
//! The kernel package need not be installed: STRAINGAUGE_GUEST_KERNEL may name the directory that `dpkg -x
//! linux-image-*-amd64_*.deb DIRECTORY` made. The guest's clock counts instructions and skips idle time, so the
//! results do not depend on how busy this machine is.
//!
//! STRAINGAUGE_GUEST_PROGRAM names the same tests as a static program for arm64: they run in an emulated machine with
//! that processor. The kernel's directory then also holds its busybox (testbed/kernels).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the guest. Elsewhere the test that runs there does nothing.
pub const INSIDE: &str = "STRAINGAUGE_TEST_IN_GUEST";
/// The last line of that test when it passes.
pub const DONE: &str = "guest: all tests passed";

/// Set to run long tests at their full length (`make test-long`); passed on to the guest.
pub const LONG: &str = "STRAINGAUGE_LONG";

/// The kernel to boot and the test to run in it.
pub struct Guest {
    /// Name of the calling test, for its skip message.
    pub caller: &'static str,
    /// Name of the test in this binary that the guest runs.
    pub inside: &'static str,
    /// Kernel modules in the order of loading.
    pub modules: &'static [&'static str],
    /// An instruction takes two to this power nanoseconds.
    pub instruction_shift: u32,
    /// Added to the kernel's command line.
    pub parameters: &'static str,
    /// Shell lines that run before the test.
    pub prepare: &'static str,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Time limit, which only keeps a broken guest from hanging the tests.
    pub limit: Duration,
}

/// The emulated machine and its program.
struct Machine {
    qemu: &'static str,
    package: &'static str,
    options: &'static [&'static str],
    console: &'static str,
    busybox: Option<PathBuf>,
    program: PathBuf,
}

fn machine() -> Machine {
    match std::env::var_os("STRAINGAUGE_GUEST_PROGRAM") {
        None => Machine {
            qemu: "qemu-system-x86_64",
            package: "qemu-system-x86",
            options: &["-cpu", "max"],
            console: "ttyS0",
            busybox: tool("busybox"),
            program: std::env::current_exe().expect("it runs"),
        },
        Some(program) => Machine {
            qemu: "qemu-system-aarch64",
            package: "qemu-system-arm",
            options: &["-machine", "virt", "-cpu", "cortex-a72"],
            console: "ttyAMA0",
            // Debian 13 and later have only /usr/bin.
            busybox: ["bin/busybox", "usr/bin/busybox"]
                .map(|file| kernels().join(file))
                .into_iter()
                .find(|file| file.is_file()),
            program: program.into(),
        },
    }
}

struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

/// The directory of an unpacked kernel, or that of the installed kernels if none is named.
fn kernels() -> PathBuf {
    std::env::var_os("STRAINGAUGE_GUEST_KERNEL").map_or("/".into(), PathBuf::from)
}

/// Finds a kernel with these modules.
fn kernel(needed: &[&str]) -> Option<Kernel> {
    let root = kernels();
    for entry in fs::read_dir(root.join("boot")).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(version) = name.strip_prefix("vmlinuz-") else { continue };
        // Debian 13 and later have only /usr/lib.
        let modules = ["lib", "usr/lib"].map(|lib| root.join(lib).join("modules").join(version).join("kernel"));
        if let Some(modules) =
            modules.into_iter().find(|place| needed.iter().all(|module| file_of(place, module).is_some()))
        {
            return Some(Kernel { image: entry.path(), modules });
        }
    }
    None
}

/// A module's file, which may be compressed.
fn file_of(modules: &Path, module: &str) -> Option<PathBuf> {
    ["", ".xz"].map(|end| modules.join(format!("{module}{end}"))).into_iter().find(|file| file.exists())
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn put(root: &Path, from: &Path, to: &str) {
    let to = root.join(to.trim_start_matches('/'));
    fs::create_dir_all(to.parent().expect("below the root")).expect("our own folder");
    fs::copy(from, &to).unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), to.display()));
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("our own file");
}

/// Packs busybox, the modules, the machine's program, and the libraries that the loader finds for both.
fn make_initramfs(folder: &Path, kernel: &Kernel, busybox: &Path, program: &Path, guest: &Guest) -> PathBuf {
    let root = folder.join("root");
    for name in ["proc", "sys", "dev", "run", "tmp"] {
        fs::create_dir_all(root.join(name)).expect("our own folder");
    }
    put(&root, busybox, "bin/busybox");
    put(&root, program, "test");
    for program in [program, busybox] {
        let output = Command::new("ldd").arg(program).output().expect("ldd runs");
        for library in String::from_utf8_lossy(&output.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
            put(&root, Path::new(library), library);
        }
    }
    let mut loads = String::new();
    for module in guest.modules {
        let name = module.rsplit('/').next().expect("a path");
        let file = file_of(&kernel.modules, module).expect("looked for before");
        put(&root, &file, &format!("modules/{}", file.file_name().expect("a file").to_string_lossy()));
        if file.extension().is_some_and(|end| end == "xz") {
            let unpacked = Command::new("xz").arg("-d").arg(root.join(format!("modules/{name}.xz"))).status();
            assert!(unpacked.is_ok_and(|status| status.success()), "xz unpacks {}", file.display());
        }
        loads += &format!("busybox insmod /modules/{name}\n");
    }
    let Guest { prepare, inside, .. } = guest;
    let long = if std::env::var(LONG).is_ok_and(|value| value == "1") { format!(" {LONG}=1") } else { String::new() };
    let script = format!(
        "#!/bin/busybox sh\nexport PATH=/bin\nbusybox mount -t proc proc /proc\nbusybox mount -t sysfs sys /sys\n\
         busybox mount -t devtmpfs dev /dev\n{prepare}\n{loads}export {INSIDE}=1{long}\n\
         /test --exact {inside} --nocapture\nbusybox poweroff -f\n"
    );
    put(&root, busybox, "init");
    fs::write(root.join("init"), script).expect("our own file");
    let image = folder.join("initramfs");
    let packed = Command::new("sh")
        .args(["-c", "cd \"$1\" && find . -print0 | busybox cpio -0 -o -H newc > \"$2\" 2>/dev/null", "sh"])
        .args([root.as_path(), image.as_path()])
        .status()
        .expect("sh runs");
    assert!(packed.success(), "the initramfs could not be packed");
    image
}

/// Boots the guest and fails unless its test printed [`DONE`]; returns the lines for the test to read. Where no guest
/// can run, prints the reason and returns no lines.
pub fn run(asked: &Guest) -> Vec<String> {
    let skip = |why: &str| {
        eprintln!("SKIPPED {}: {why}", asked.caller);
        Vec::new()
    };
    if !cfg!(target_arch = "x86_64") {
        return skip("the guest is an x86-64 machine");
    }
    let machine = machine();
    let Some(qemu) = tool(machine.qemu) else {
        return skip(&format!("{} is not installed (apt-get install {})", machine.qemu, machine.package));
    };
    let (Some(_), Some(busybox)) = (tool("busybox"), machine.busybox) else {
        return skip("busybox is not installed (apt-get install busybox-static)");
    };
    let Some(kernel) = kernel(asked.modules) else {
        return skip(&format!(
            "no kernel with the modules {} under /boot, nor in the folder STRAINGAUGE_GUEST_KERNEL (dpkg -x \
             linux-image-cloud-amd64's package)",
            asked.modules.join(" ")
        ));
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make_initramfs(folder.path(), &kernel, &busybox, &machine.program, asked);
    let console = folder.path().join("console");
    let mut guest = Command::new(qemu)
        .args(machine.options)
        .args(["-accel", "tcg,thread=single", "-m", &asked.memory_mib.to_string()])
        .args(["-icount", &format!("shift={},sleep=off", asked.instruction_shift)])
        .args(["-display", "none", "-no-reboot", "-nodefaults", "-append"])
        .arg(format!(
            "console={} quiet panic=-1 mitigations=off cryptomgr.notests {}",
            machine.console, asked.parameters
        ))
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&image)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("QEMU starts");
    let end = Instant::now() + asked.limit;
    let has_ended = loop {
        if guest.try_wait().expect("our own child").is_some() {
            break true;
        }
        if Instant::now() >= end {
            let _ = guest.kill();
            let _ = guest.wait();
            break false;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let text = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
    let lines: Vec<String> = text.lines().filter(|line| line.starts_with("guest: ")).map(str::to_string).collect();
    for line in &lines {
        eprintln!("{line}");
    }
    assert!(has_ended, "the guest did not end within {:?}; its console:\n{text}", asked.limit);
    assert!(text.contains(DONE), "the guest's console:\n{text}");
    lines
}
