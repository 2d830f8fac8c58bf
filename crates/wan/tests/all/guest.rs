//! netem on a kernel that has it: a stock Debian kernel in a QEMU guest, whose only process is this test program.
//!
//! The kernel package need not be installed: STRAINGAUGE_GUEST_KERNEL may name the folder that
//! `dpkg -x linux-image-*-amd64_*.deb FOLDER` made.

use super::path::{bandwidth_is_exact, limited, loss_is_binomial, round_trip_is_exact};
use record::{PathMechanism, PathPlan};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const INSIDE: &str = "STRAINGAUGE_TEST_IN_GUEST";
/// In the order in which they are loaded.
const MODULES: [&str; 3] = ["drivers/net/veth.ko", "drivers/net/tun.ko", "net/sched/sch_netem.ko"];
const DONE: &str = "guest: all as asked";
/// A boot takes seconds; the limit only keeps a broken guest from hanging the tests.
const LIMIT: Duration = Duration::from_secs(240);

struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

/// A kernel with the modules, unpacked or installed.
fn kernel() -> Option<Kernel> {
    let named = std::env::var_os("STRAINGAUGE_GUEST_KERNEL").map(PathBuf::from);
    let roots = named.into_iter().chain([PathBuf::from("/")]);
    for root in roots {
        let Ok(entries) = fs::read_dir(root.join("boot")) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(version) = name.strip_prefix("vmlinuz-") else { continue };
            let modules = root.join("lib/modules").join(version).join("kernel");
            if MODULES.iter().all(|module| modules.join(module).exists()) {
                return Some(Kernel { image: entry.path(), modules });
            }
        }
    }
    None
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The libraries that a program needs, as the loader finds them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found: Vec<PathBuf> =
        text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    found.dedup();
    found
}

fn put(root: &Path, from: &Path, to: &str) {
    let to = root.join(to.trim_start_matches('/'));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, &to).unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), to.display()));
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes the guest's file system: busybox, the modules, this program and its libraries.
fn make_initramfs(folder: &Path, kernel: &Kernel, busybox: &Path) -> PathBuf {
    let root = folder.join("root");
    for name in ["proc", "sys", "dev", "run", "tmp"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    put(&root, busybox, "bin/busybox");
    for module in MODULES {
        put(&root, &kernel.modules.join(module), &format!("modules/{}", module.rsplit('/').next().unwrap()));
    }
    let program = std::env::current_exe().unwrap();
    for library in libraries(&program).into_iter().chain(libraries(busybox)) {
        put(&root, &library, &library.to_string_lossy());
    }
    put(&root, &program, "test");
    let loads: String = MODULES
        .iter()
        .map(|module| format!("busybox insmod /modules/{}\n", module.rsplit('/').next().unwrap()))
        .collect();
    let script = format!(
        "#!/bin/busybox sh\nexport PATH=/bin\nbusybox mount -t proc proc /proc\nbusybox mount -t sysfs sys /sys\n\
         busybox mount -t devtmpfs dev /dev\n{loads}\
         export {INSIDE}=1\n/test --exact guest::the_path_by_netem_inside_the_guest --nocapture\nbusybox poweroff -f\n"
    );
    fs::write(root.join("init"), script).unwrap();
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    let image = folder.join("initramfs");
    let packed = Command::new("sh")
        .args(["-c", "cd \"$1\" && find . -print0 | \"$2\" cpio -0 -o -H newc > \"$3\" 2>/dev/null", "sh"])
        .arg(&root)
        .arg(busybox)
        .arg(&image)
        .status()
        .unwrap();
    assert!(packed.success(), "the initramfs could not be packed");
    image
}

#[test]
fn netem_keeps_the_same_promises_in_a_guest() {
    let skip = |why: &str| eprintln!("SKIPPED netem_keeps_the_same_promises_in_a_guest: {why}");
    if !cfg!(target_arch = "x86_64") {
        return skip("the guest is an x86-64 machine");
    }
    let Some(qemu) = tool("qemu-system-x86_64") else {
        return skip("qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)");
    };
    let Some(busybox) = tool("busybox") else {
        return skip("busybox is not installed (apt-get install busybox-static)");
    };
    let Some(kernel) = kernel() else {
        return skip(
            "no kernel with veth, tun and sch_netem modules under /boot, nor in the folder STRAINGAUGE_GUEST_KERNEL (dpkg -x linux-image-cloud-amd64's package)",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let image = make_initramfs(folder.path(), &kernel, &busybox);
    let console = folder.path().join("console");
    // The guest's clock counts instructions and jumps over idle time, so that delays are exact however busy this machine
    // is, and take no time.
    let mut guest = Command::new(qemu)
        .args(["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off", "-cpu", "max", "-m", "512"])
        .args(["-display", "none"])
        .args(["-no-reboot", "-nodefaults", "-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
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
        .unwrap();
    let end = Instant::now() + LIMIT;
    let finished = loop {
        if let Some(status) = guest.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() >= end {
            guest.kill().unwrap();
            guest.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let text = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
    for line in text.lines().filter(|line| line.starts_with("guest: ")) {
        eprintln!("{line}");
    }
    assert!(finished.is_some(), "the guest did not end within {LIMIT:?}; its console:\n{text}");
    assert!(text.contains(DONE), "the guest's console:\n{text}");
}

/// Not a test of its own: what the guest of [`netem_keeps_the_same_promises_in_a_guest`] runs.
#[test]
fn the_path_by_netem_inside_the_guest() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    println!();
    assert!(wan::has_netem(), "the guest's kernel has netem");
    let netem = |delay_ms: u64| PathPlan {
        delay_ns: delay_ms * 1_000_000,
        mechanism: PathMechanism::Netem,
        ..PathPlan::default()
    };
    let mut failed = 0;
    let mut say = |what: &str, result: Result<String, String>| match result {
        Ok(said) => println!("guest: {what}: {said}"),
        Err(said) => {
            failed += 1;
            println!("guest: {what}: NOT AS ASKED: {said}");
        }
    };
    for delay_ms in [1, 10, 40, 100] {
        say("netem round trip", round_trip_is_exact(&netem(delay_ms)));
    }
    say("netem bandwidth", bandwidth_is_exact(&limited(netem(10), 100_000_000)));
    say("netem loss", loss_is_binomial(&PathPlan { loss_ratio: 0.02, ..netem(1) }, 20_000));
    let chosen = super::path::pair_with(PathPlan { mechanism: PathMechanism::Other, ..netem(1) });
    let mechanism = chosen.path().mechanism;
    chosen.remove().unwrap();
    assert_eq!(mechanism, PathMechanism::Netem, "left to us, it is netem");
    assert_eq!(failed, 0);
    println!("{DONE}");
}
