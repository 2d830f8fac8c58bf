//! A BPF array mapped into this process: reading a counter needs no system call.

use super::Shared;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// An array map of `len` values with BPF_F_MMAPABLE. The kernel writes it concurrently: each number is consistent,
/// but two numbers may be from different moments.
#[derive(Debug)]
pub struct MappedArray<T> {
    start: NonNull<T>,
    bytes: usize,
    len: usize,
    values: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is by volatile copies.
unsafe impl<T: Shared> Send for MappedArray<T> {}

impl<T: Shared> MappedArray<T> {
    /// Maps a map of `len` values. `T` must be as large as the map's value, which array maps round up to 8 bytes.
    pub fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8) && size_of::<T>() > 0) };
        let bytes = (size_of::<T>() * len).next_multiple_of(rustix::param::page_size());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; the result is checked.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a map was mapped at address 0"))?;
        Ok(MappedArray { start, bytes, len, values: PhantomData })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A copy of one value.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: the index is within the mapping, which is aligned to a page; any bytes are a value of a `Shared`
        // type.
        unsafe { self.start.add(index).read_volatile() }
    }

    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.len);
        // SAFETY: as for `get`; the mapping is writable.
        unsafe { self.start.add(index).write_volatile(value) }
    }

    /// Sets all bytes to 0.
    pub fn clear(&self) {
        // SAFETY: exactly the mapping, which is writable; 0 is a value of a `Shared` type.
        unsafe { self.start.cast::<u8>().write_bytes(0, self.bytes) }
    }

    /// Copies of all values.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.len).map(|index| self.get(index))
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no value borrows from it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
