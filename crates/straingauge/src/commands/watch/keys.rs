//! The key that ends a watch on a terminal: `q`.

use crate::signals::{Stop, heeded};
use std::io::Read;
use std::sync::atomic::Ordering;

/// The terminal's original settings.
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// Reads single keys from the terminal on standard input. `None` without a terminal, or when another process
    /// group reads it.
    pub fn listen(stop: &Stop) -> Option<Self> {
        // SAFETY: an all-zero termios is valid, and is overwritten before it is used.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the only pointer is to a live termios.
        let is_ours = unsafe {
            libc::tcgetattr(libc::STDIN_FILENO, &mut before) == 0
                && libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp()
        };
        if !is_ours {
            return None;
        }
        let mut single = before;
        single.c_lflag &= !(libc::ICANON | libc::ECHO);
        // SAFETY: a live termios.
        if unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &single) } != 0 {
            return None;
        }
        for signal in heeded(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) {
            // The first signal ends the watch in order, the second one at once, without running destructors. SAFETY:
            // tcsetattr(3) may be called in a signal handler (signal-safety(7)), and takes a live termios.
            let put_back = move || unsafe {
                libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &before);
            };
            // SAFETY: the action makes only that call.
            let _ = unsafe { signal_hook::low_level::register(signal, put_back) };
        }
        let keys = Keys { before };
        let stop = stop.clone();
        let read = move || {
            for key in std::io::stdin().lock().bytes() {
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

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: a live termios with the terminal's own settings.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.before) };
    }
}
