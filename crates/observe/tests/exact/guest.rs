//! A stock Debian kernel in a QEMU guest, whose only program is this test itself. The kernel package need not be installed:
//! STRAINGAUGE_GUEST_KERNEL may name the folder that `dpkg -x linux-image-*-amd64_*.deb FOLDER` made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For listing the listening sockets; in the order in which they are loaded.
const MODULES: [&str; 2] = ["net/ipv4/inet_diag.ko", "net/ipv4/tcp_diag.ko"];
pub const INSIDE: &str = "STRAINGAUGE_TEST_IN_GUEST";
pub const DONE: &str = "guest: all as asked";
/// A guest takes a minute; the limit only keeps a broken one from hanging the tests.
const LIMIT: Duration = Duration::from_secs(420);

struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

/// A kernel with the modules, unpacked or installed.
fn kernel() -> Option<Kernel> {
    let named = std::env::var_os("STRAINGAUGE_GUEST_KERNEL").map(PathBuf::from);
    for root in named.into_iter().chain([PathBuf::from("/")]) {
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
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
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
    let program = std::env::current_exe().unwrap();
    put(&root, busybox, "bin/busybox");
    put(&root, &program, "test");
    for library in libraries(&program).into_iter().chain(libraries(busybox)) {
        put(&root, &library, &library.to_string_lossy());
    }
    let mut loads = String::new();
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap();
        put(&root, &kernel.modules.join(module), &format!("modules/{name}"));
        loads += &format!("busybox insmod /modules/{name}\n");
    }
    let script = format!(
        "#!/bin/busybox sh\nexport PATH=/bin\nbusybox mount -t proc proc /proc\nbusybox mount -t sysfs sys /sys\n\
         busybox mount -t devtmpfs dev /dev\nbusybox ip link set lo up\necho 0 > /proc/sys/kernel/kptr_restrict\n\
         {loads}export {INSIDE}=1\n/test --exact inside::the_guest --nocapture\nbusybox poweroff -f\n"
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
fn exact_and_sampled_layers_agree_in_a_guest() {
    let skip = |why: &str| eprintln!("SKIPPED exact_and_sampled_layers_agree_in_a_guest: {why}");
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
            "no kernel with the modules inet_diag and tcp_diag under /boot, nor in the folder STRAINGAUGE_GUEST_KERNEL (dpkg -x linux-image-cloud-amd64's package)",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let image = make_initramfs(folder.path(), &kernel, &busybox);
    let console = folder.path().join("console");
    // The guest's clock counts instructions, eight nanoseconds each, and jumps over idle time: shares of time are shares of
    // instructions, however busy this machine is.
    let mut guest = Command::new(qemu)
        .args(["-accel", "tcg,thread=single", "-icount", "shift=3,sleep=off", "-cpu", "max", "-m", "768"])
        .args(["-display", "none", "-no-reboot", "-nodefaults", "-append"])
        .arg("console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc no_timer_check")
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
