use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a thread that held it has panicked: no holder leaves its data half changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
