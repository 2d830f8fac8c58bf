//! Reads the memory of another process.

/// The memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pid: u32,
}

impl Memory {
    pub fn of(pid: u32) -> Memory {
        Memory { pid }
    }

    /// Reads pieces, each an address and a length. What cannot be read is empty.
    pub fn read(self, pieces: &[(u64, usize)]) -> Vec<Vec<u8>> {
        /// Most pieces of one call (UIO_MAXIOV).
        const AT_ONCE: usize = 1024;
        let mut read = Vec::with_capacity(pieces.len());
        for some in pieces.chunks(AT_ONCE) {
            let mut buffers: Vec<Vec<u8>> = some.iter().map(|(_, length)| vec![0; *length]).collect();
            let into =
                |buffer: &mut Vec<u8>| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let into: Vec<libc::iovec> = buffers.iter_mut().map(into).collect();
            let from =
                |(at, length): &(u64, usize)| libc::iovec { iov_base: *at as *mut libc::c_void, iov_len: *length };
            let from: Vec<libc::iovec> = some.iter().map(from).collect();
            let (count, pid) = (some.len() as libc::c_ulong, self.pid.cast_signed());
            // SAFETY: `into` names the buffers, which live until after the call, with their lengths, and `from` is
            // only memory of the other process; the kernel reads `count` entries of each, as many as both have.
            let bytes = unsafe { libc::process_vm_readv(pid, into.as_ptr(), count, from.as_ptr(), count, 0) };
            // The call stops at the first piece that cannot be read.
            let mut left = usize::try_from(bytes).unwrap_or(0);
            for buffer in &mut buffers {
                match left.checked_sub(buffer.len()) {
                    Some(less) => left = less,
                    None => (left, *buffer) = (0, Vec::new()),
                }
            }
            read.extend(buffers);
        }
        read
    }

    pub fn words(self, at: u64, count: usize) -> Option<Vec<u64>> {
        let bytes = self.read(&[(at, count * 8)]).pop().filter(|bytes| bytes.len() == count * 8)?;
        Some(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

/// The word at an offset.
pub fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
