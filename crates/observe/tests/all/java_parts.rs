//! The threads of a Java machine, from the print of their stacks.

use observe::java::{JavaMachine, JavaThread, waiting};
use observe::parked::{ParkedCounts, Place, Program, Stack};
use observe::proc_text::{is_caught, status_field};
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;

/// As OpenJDK 17 prints them, shortened.
const PRINT: &str = "2026-11-30 19:00:00
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode, sharing):

\"worker-1\" #15 prio=5 os_prio=0 cpu=36.25ms elapsed=1.28s tid=0x7f nid=0x3f2a waiting for monitor entry  [0x7f]
   java.lang.Thread.State: BLOCKED (on object monitor)
\tat com.shop.Store.get(Store.java:12)
\t- waiting to lock <0x000000069dc08678> (a com.shop.Store)
\tat com.shop.Api.lambda$main$0(Api.java:30)
\tat com.shop.Api$$Lambda$26/0x00007fb76d000c18.handle(Unknown Source)
\tat java.lang.Thread.run(java.base@17.0.15/Thread.java:840)

\"worker-2\" #16 prio=5 os_prio=0 cpu=19.03ms elapsed=1.28s tid=0x7f nid=0x3f2b waiting on condition  [0x7f]
   java.lang.Thread.State: WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
\t- parking to wait for  <0x000000069dc08678> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)
\tat java.util.concurrent.locks.LockSupport.park(java.base@17.0.15/LockSupport.java:341)
\tat app//com.shop.Pool.take(Pool.java:7)

\"idle\" #17 prio=5 os_prio=0 cpu=19.03ms elapsed=1.28s tid=0x7f nid=0x3f2c waiting on condition  [0x7f]
   java.lang.Thread.State: WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
\tat java.util.concurrent.ThreadPoolExecutor.getTask(java.base@17.0.15/ThreadPoolExecutor.java:1062)

\"asleep \"quoted\"\" #18 prio=5 os_prio=0 tid=0x7f nid=0x3f2d sleeping
   java.lang.Thread.State: TIMED_WAITING (sleeping)
\tat java.lang.Thread.sleep(java.base@17.0.15/Native Method)
\tat Main.main(Main.java:3)

\"runs\" #19 prio=5 os_prio=0 tid=0x7f nid=0x3f2e runnable
   java.lang.Thread.State: RUNNABLE
\tat sun.nio.ch.EPoll.wait(java.base@17.0.15/Native Method)

\"VM Thread\" os_prio=0 cpu=11.43ms elapsed=1.30s tid=0x7f nid=0x3f1f runnable

JNI global refs: 15, weak refs: 0
";

#[test]
fn waiting_threads_have_a_reason_and_their_functions_and_those_asleep_or_without_work_are_left_out() {
    let thread = |reason: &str, functions: &[&str]| JavaThread {
        reason: reason.into(),
        functions: functions.iter().map(|name| (*name).into()).collect(),
    };
    let expected = [
        thread("synchronized", &["com/shop/Store.get", "com/shop/Api.lambda$main$0", "java/lang/Thread.run"]),
        thread(
            "ReentrantLock",
            &["jdk/internal/misc/Unsafe.park", "java/util/concurrent/locks/LockSupport.park", "com/shop/Pool.take"],
        ),
    ];
    assert_eq!(waiting(PRINT), expected);
}

#[test]
fn a_machine_is_asked_only_if_it_catches_the_signal() {
    let status = b"Name:\tjava\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t4711\t7\nSigCgt:\t0000000000000004\n";
    assert!(is_caught(status, 3) && !is_caught(status, 2) && !is_caught(status, 0) && !is_caught(status, 65));
    assert!(!is_caught(b"SigCgt:\tx\n", 3) && !is_caught(b"", 3));
    let words = |name| status_field(status, name).map(|words| words.collect::<Vec<_>>());
    assert_eq!(words("NSpid"), Some(vec!["4711", "7"]));
    assert_eq!(words("Gid"), None);
}

extern "C" fn caught(_: libc::c_int) {}

/// This process plays the machine: it maps a file of that name and answers at the socket.
#[test]
fn a_machine_that_catches_the_signal_is_asked_at_its_socket() {
    let pid = std::process::id();
    let socket = format!("/tmp/.java_pid{pid}");
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libjvm.so");
    fs::write(&library, [0; 4096]).unwrap();
    let file = File::open(&library).unwrap();
    let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping of a whole page of a file that stays as it is; nothing else refers to it.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, read, private, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    let listener = UnixListener::bind(&socket).unwrap();
    let machine = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut question = [0; 16];
        client.read_exact(&mut question).unwrap();
        client.write_all(format!("0\n{PRINT}").as_bytes()).unwrap();
        question
    });
    assert!(JavaMachine::open(pid).is_none(), "the signal would end it");
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGQUIT, caught as *const () as libc::sighandler_t) };
    let opened = JavaMachine::open(pid).expect("it is there");
    let mut seen = ParkedCounts::default();
    opened.read(9, &mut seen).expect("it answers");
    fs::remove_file(&socket).unwrap();
    assert_eq!(&machine.join().unwrap(), b"1\0threaddump\0\0\0\0");
    assert_eq!(seen.places.len(), 2);
    let reason = |place: &Place| (place.pid, place.reason.clone(), matches!(place.stack, Stack::Names(_)));
    assert!(seen.places.keys().any(|place| reason(place) == (9, "synchronized".into(), true)), "{seen:?}");
    assert!(opened.read(9, &mut seen).is_none(), "it is gone");
}

proptest! {
    #[test]
    fn any_print_is_read_without_harm(text in ".{0,200}", at in 0usize..2000, cut in 0usize..2000) {
        let at = PRINT.char_indices().map(|(at, _)| at).take_while(|start| *start <= at).last().unwrap_or(0);
        let damaged = format!("{}{text}{}", &PRINT[..at], PRINT.get(cut..).unwrap_or_default());
        // A class name may end anywhere.
        let unnamed = PRINT.replace("ReentrantLock$", &format!("{text}.$"));
        for thread in waiting(&damaged).into_iter().chain(waiting(&text)).chain(waiting(&unnamed)) {
            prop_assert!(!thread.reason.is_empty() && thread.functions.len() <= 32);
        }
    }
}
