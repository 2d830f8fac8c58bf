//! System calls that the standard library lacks, from the C library that it links.

use crate::{Outcome, because};
use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

unsafe extern "C" {
    #[link_name = "mount"]
    fn c_mount(
        from: *const c_char,
        at: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn iopl(level: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    fn reboot(what: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn sync();
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut Event) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut Event, most: c_int, timeout_ms: c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const [i64; 2], left: *mut [i64; 2]) -> c_int;
}

const SYS_FINIT_MODULE: c_long = 313;
const MODULE_COMPRESSED: c_int = 4;
const CLONE_NEWNET: c_int = 0x4000_0000;
const RLIMIT_NOFILE: c_int = 7;
const SIGINT: c_int = 2;
const RB_POWER_OFF: c_int = 0x4321_fedc_u32 as c_int;
const SIOCETHTOOL: c_ulong = 0x8946;
const CLOCK_MONOTONIC: c_int = 1;
const TIMER_ABSTIME: c_int = 1;

fn text(words: &str) -> Outcome<CString> {
    CString::new(words).map_err(because("a name contains a zero byte"))
}

fn check(what: &str, code: c_int) -> Outcome<c_int> {
    if code < 0 { Err(because::<Error>(what)(Error::last_os_error())) } else { Ok(code) }
}

pub fn mount(from: &str, at: &str, kind: &str) -> Outcome<()> {
    std::fs::create_dir_all(at).map_err(because(at))?;
    let (from, place, kind) = (text(from)?, text(at)?, text(kind)?);
    // SAFETY: three strings that end in a zero and live until the call returns; there is no data.
    let code = unsafe { c_mount(from.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    check(&format!("cannot mount {at}"), code).map(drop)
}

/// Lets this process access devices by port.
pub fn allow_ports() -> Outcome<()> {
    // SAFETY: takes no pointer.
    check("cannot access the ports of devices", unsafe { iopl(3) }).map(drop)
}

pub fn allow_descriptors(count: u64) -> Outcome<()> {
    // SAFETY: the limit lives until the call returns.
    check("cannot raise the limit of descriptors", unsafe { setrlimit(RLIMIT_NOFILE, &[count, count]) }).map(drop)
}

pub fn load_module(path: &str) -> Outcome<()> {
    let (file, flags) = match File::open(path) {
        Ok(file) => (file, 0),
        Err(_) => {
            let found = ["xz", "zst", "gz"].iter().find_map(|end| File::open(format!("{path}.{end}")).ok());
            // The module is missing: it is built into the kernel, or its user will report it.
            let Some(file) = found else { return Ok(()) };
            (file, MODULE_COMPRESSED)
        }
    };
    // SAFETY: an open file, a string that ends in a zero, flags.
    let code = unsafe { syscall(SYS_FINIT_MODULE, file.as_raw_fd(), c"".as_ptr(), flags) };
    check(&format!("cannot load {path}"), code as c_int).map(drop)
}

/// Moves this thread into a network namespace.
pub fn enter_namespace(name: &str) -> Outcome<()> {
    let path = format!("/run/netns/{name}");
    let file = File::open(&path).map_err(because(&path))?;
    // SAFETY: an open file, a flag.
    check("cannot enter a network namespace", unsafe { setns(file.as_raw_fd(), CLONE_NEWNET) }).map(drop)
}

/// Switches a feature of an interface like `ethtool -K`; `command` is its number.
pub fn switch(interface: &str, command: u32, is_on: bool) -> Outcome<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        data: *mut c_void,
        rest: [u8; 16],
    }
    let mut value = Value { command, data: is_on.into() };
    let mut request = Request { name: [0; 16], data: (&raw mut value).cast(), rest: [0; 16] };
    for (to, from) in request.name.iter_mut().take(15).zip(interface.bytes()) {
        *to = from;
    }
    // SAFETY: takes no pointer.
    let fd = check("cannot open a socket", unsafe { socket(2, 2, 0) })?;
    // SAFETY: the descriptor was just opened, so no other value owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request is an ifreq whose data points to an ethtool_value; both live until the call returns.
    let code = unsafe { ioctl(socket.as_raw_fd(), SIOCETHTOOL, (&raw mut request).cast()) };
    check(&format!("cannot set feature {command:#x} of {interface}"), code).map(drop)
}

/// Sends Ctrl-C to a process.
pub fn interrupt(process: u32) {
    // SAFETY: takes no pointer.
    unsafe { kill(process as c_int, SIGINT) };
}

pub fn power_off() -> ! {
    loop {
        // SAFETY: take no pointers.
        unsafe {
            sync();
            reboot(RB_POWER_OFF);
        }
    }
}

/// An epoll event, packed as the kernel requires.
#[repr(C, packed)]
#[derive(Clone, Copy, Default)]
pub struct Event {
    events: u32,
    data: u64,
}

/// Reports which descriptors are readable.
pub struct Poller(OwnedFd);

impl Poller {
    pub fn new() -> Outcome<Poller> {
        // SAFETY: takes no pointer.
        let fd = check("cannot make an epoll", unsafe { epoll_create1(0) })?;
        // SAFETY: the descriptor was just opened, so no other value owns it.
        Ok(Poller(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn watch(&self, fd: RawFd, data: u64) -> Outcome<()> {
        let mut event = Event { events: 1, data };
        // SAFETY: the event lives until the call returns.
        check("cannot watch a socket", unsafe { epoll_ctl(self.0.as_raw_fd(), 1, fd, &mut event) }).map(drop)
    }

    /// Waits until a descriptor is readable, and calls with the data of each one.
    pub fn wait(&self, mut each: impl FnMut(u64)) -> Outcome<()> {
        let mut events = [Event::default(); 64];
        // SAFETY: room for 64 events.
        let count = unsafe { epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, -1) };
        let count = check("cannot wait", count)?;
        events[..count as usize].iter().for_each(|event| each(event.data));
        Ok(())
    }
}

/// Nanoseconds of the guest's clock.
pub fn now_ns() -> u64 {
    let mut time = [0; 2];
    // SAFETY: room for the time.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

pub fn sleep_until(ns: u64) {
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the time lives until the call returns; the remaining time is not requested.
    unsafe { clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, std::ptr::null_mut()) };
}

/// Executes the mark number `K` of the list in [`crate::exchange`].
#[inline(always)]
pub fn mark<const K: u32>() {
    // SAFETY: a NOP with a displacement that no instruction reads.
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x84, 0x00", ".long 0x5eed0000 + {k}", k = const K, options(nomem, nostack))
    };
}
