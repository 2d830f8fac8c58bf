//! The threads of a Java machine, from the print of their stacks.

use observe::java::{JavaThread, waiting};
use observe::proc_text::{is_caught, status_field};
use proptest::prelude::*;

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

proptest! {
    #[test]
    fn any_print_is_read_without_harm(text in ".{0,200}", at in 0usize..2000, cut in 0usize..2000) {
        let at = PRINT.char_indices().map(|(at, _)| at).take_while(|start| *start <= at).last().unwrap_or(0);
        let damaged = format!("{}{text}{}", &PRINT[..at], PRINT.get(cut..).unwrap_or_default());
        for thread in waiting(&damaged).into_iter().chain(waiting(&text)) {
            prop_assert!(!thread.reason.is_empty() && thread.functions.len() <= 32);
        }
    }
}
