//! Disk reads are charged to the request that caused them.

use crate::client::Connection;
use crate::rig::{Server, settle, watch};
use observe::watch::{SizeClasses, WatchOptions};
use record::watch::Mode;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const BYTES: usize = 1 << 20;

/// Writes a file and makes the kernel drop its pages; returns whether that worked.
fn write_and_forget(path: &Path) -> bool {
    let mut file = File::create(path).expect("a file in our own folder");
    file.write_all(&vec![b'x'; BYTES]).expect("it is written");
    file.sync_all().expect("it is on the disk");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("our own file");
    let file = File::open(path).expect("it is there");
    let mut byte = [0_u8; 1];
    let piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: the descriptor is open; the single piece is live and one byte long. RWF_NOWAIT answers from memory, or
    // begins to read ahead.
    let read = unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        libc::preadv2(file.as_raw_fd(), &piece, 1, 0, libc::RWF_NOWAIT)
    };
    read < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock
}

#[test]
fn disk_reads_are_charged_to_the_request_that_made_them() {
    let test = "disk_reads_are_charged_to_the_request_that_made_them";
    let Some(server) = Server::start(test, "nginx") else { return };
    if !write_and_forget(&server.documents().join("cold.bin")) {
        eprintln!("SKIPPED {test}: the temporary folder's file system keeps files in memory");
        return;
    }
    let options = WatchOptions {
        mode: Mode::Exact,
        classes: SizeClasses::parse("100KiB").expect("a boundary"),
        ..WatchOptions::of_port(server.port)
    };
    let Some(mut watcher) = watch(test, options) else { return };
    let mut connection = Connection::open(server.port);
    // Once from the disk, then twice from memory, with small requests between.
    for path in ["/cold.bin", "/1k.bin", "/cold.bin", "/1k.bin", "/cold.bin", "/1k.bin"] {
        connection.get(path, false);
    }
    drop(connection);
    settle(&mut watcher);
    let phases = watcher.read().phases;
    println!("{test}: {:?}", phases[1]);
    let sum = |class: usize| {
        let estimate = |figure: Option<record::watch::Mean>| figure.expect("requests were seen").mean;
        let requests = phases[class].requests as f64;
        (estimate(phases[class].disk_reads) * requests, estimate(phases[class].disk_bytes) * requests)
    };
    let (reads, bytes) = sum(1);
    assert_eq!(phases[1].requests, 3);
    assert!((1.0..=256.0).contains(&reads.round()), "{reads} reads of a MiB");
    assert!(bytes >= 0.9 * BYTES as f64, "{bytes} bytes from the disk");
    assert_eq!(sum(0), (0.0, 0.0), "small ones come from memory");
}
