//! The key that ends a watch on a terminal: `q`.

use crate::signals::{Stop, heeded};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{Read, stdin};
use std::sync::atomic::Ordering;

pub struct KeyListener {
    before: Termios,
}

impl KeyListener {
    /// Reads single keys from the terminal on standard input. `None` without a terminal, or when another process
    /// group reads it.
    pub fn listen(stop: &Stop) -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| tcgetpgrp(stdin()) == Ok(getpgrp()))?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(stdin(), OptionalActions::Now, &single).ok()?;
        for signal in heeded(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) {
            // The first signal ends the watch in order. The second one ends it at once, without destructors, so a
            // handler restores the terminal.
            let before = before.clone();
            // SAFETY: the action makes one system call, which may be made in a signal handler (signal-safety(7)).
            let _ = unsafe { signal_hook::low_level::register(signal, move || put_back(&before)) };
        }
        let keys = KeyListener { before };
        let stop = stop.clone();
        let read = move || {
            for key in stdin().lock().bytes() {
                match key {
                    Ok(b'q' | b'Q') | Err(_) => break,
                    Ok(_) => {}
                }
            }
            stop.flag().store(true, Ordering::Relaxed);
        };
        std::thread::Builder::new().name("keys".into()).spawn(read).ok()?;
        Some(keys)
    }
}

impl Drop for KeyListener {
    fn drop(&mut self) {
        put_back(&self.before);
    }
}

fn put_back(before: &Termios) {
    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
}
