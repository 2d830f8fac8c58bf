//! Timing one call.

use super::idle::IdleSet;
use record::profile::scaling::{Call, Cost};
use std::io;
use std::os::fd::AsRawFd;

/// Batches of a point; their median and quartiles are kept.
const BATCHES: usize = 21;
/// A batch is at least this long, so that reading the clock does not count.
const BATCH_NS: u64 = 200_000;
/// Connections that wait to be accepted in a batch.
const ACCEPTS: usize = 48;

/// Measures a call over the idle set.
pub fn measure(call: Call, idle: &mut IdleSet) -> io::Result<Cost> {
    let descriptors = idle.sockets.len();
    let batches = match call {
        Call::Select => timed(select(idle))?,
        Call::Poll => timed(poll(idle))?,
        Call::EpollWait => timed(epoll_wait(idle))?,
        Call::DescriptorAllocation => timed(|| idle.search_descriptor())?,
        Call::Accept => accept(idle)?,
    };
    Ok(cost(descriptors, batches))
}

fn cost(descriptors: usize, mut batches: Vec<f64>) -> Cost {
    batches.sort_by(f64::total_cmp);
    let at = |share: f64| batches[((batches.len() - 1) as f64 * share).round() as usize];
    Cost { descriptors, median_ns: at(0.5), lower_ns: at(0.25), upper_ns: at(0.75), batches: batches.len() }
}

/// CPU nanoseconds a call, of each batch. The batch's length is found first by doubling.
fn timed(mut call: impl FnMut() -> io::Result<()>) -> io::Result<Vec<f64>> {
    let mut run = |calls: u64| -> io::Result<u64> {
        let before = crate::cpu_clock::of_this_thread();
        for _ in 0..calls {
            call()?;
        }
        Ok(crate::cpu_clock::of_this_thread() - before)
    };
    let mut calls = 1u64;
    while run(calls)? < BATCH_NS && calls < 1 << 20 {
        calls *= 2;
    }
    (0..BATCHES).map(|_| Ok(run(calls)? as f64 / calls as f64)).collect()
}

/// select() knows no more than FD_SETSIZE descriptors in the C library, but the kernel takes bitmaps of any length.
fn select(idle: &IdleSet) -> impl FnMut() -> io::Result<()> + use<> {
    const BITS: usize = u64::BITS as usize;
    let all: Vec<usize> = descriptors(idle).into_iter().map(|descriptor| descriptor as usize).collect();
    let highest = all.iter().copied().max().unwrap_or(0);
    let mut wanted = vec![0u64; highest / BITS + 1];
    for descriptor in all {
        wanted[descriptor / BITS] |= 1 << (descriptor % BITS);
    }
    let mut set = wanted.clone();
    move || {
        // The call overwrites its argument; servers copy it too.
        set.copy_from_slice(&wanted);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: `set` has a bit for every descriptor below `highest + 1`; the other sets and the mask are absent.
        let ready = unsafe { libc::syscall(libc::SYS_pselect6, highest + 1, set.as_mut_ptr(), none, none, &now, none) };
        one_ready(ready)
    }
}

fn poll(idle: &IdleSet) -> impl FnMut() -> io::Result<()> + use<> {
    let mut entries: Vec<libc::pollfd> =
        descriptors(idle).into_iter().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    move || {
        // SAFETY: the array is as long as stated.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, 0) };
        one_ready(ready.into())
    }
}

fn epoll_wait(idle: &IdleSet) -> impl FnMut() -> io::Result<()> + use<> {
    let epoll = idle.epoll.as_raw_fd();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    move || {
        // SAFETY: the array is as long as stated; the descriptor is open as long as the idle set that is measured.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as libc::c_int, 0) };
        one_ready(ready.into())
    }
}

/// A scan that finds nothing ready, or everything, measured something else.
fn one_ready(ready: libc::c_long) -> io::Result<()> {
    match ready {
        1 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        other => Err(io::Error::other(format!("{other} descriptors were ready instead of 1"))),
    }
}

fn descriptors(idle: &IdleSet) -> Vec<libc::c_int> {
    idle.sockets.iter().map(AsRawFd::as_raw_fd).chain([idle.ready.as_raw_fd()]).collect()
}

fn accept(idle: &mut IdleSet) -> io::Result<Vec<f64>> {
    let mut accepted = Vec::with_capacity(ACCEPTS);
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        idle.queue_connections(ACCEPTS)?;
        let before = crate::cpu_clock::of_this_thread();
        for _ in 0..ACCEPTS {
            accepted.push(idle.listener().accept()?.0);
        }
        batches.push((crate::cpu_clock::of_this_thread() - before) as f64 / ACCEPTS as f64);
        for socket in accepted.drain(..) {
            rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
        }
    }
    Ok(batches)
}
