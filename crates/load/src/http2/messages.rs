//! Splits the messages of a gRPC stream. Before each are one byte of flags and four bytes of length.

const PREFIX_BYTES: u8 = 5;

/// A stream's position in its messages.
#[derive(Debug, Default, Clone, Copy)]
pub struct Messages {
    prefix: u8,
    left: u32,
}

impl Messages {
    pub(super) fn is_within(&self) -> bool {
        self.prefix > 0
    }

    /// Number of messages that end in these bytes.
    pub fn take(&mut self, mut bytes: &[u8]) -> u32 {
        let mut messages = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.prefix < PREFIX_BYTES {
                // The flags are shifted out.
                self.left = self.left << 8 | u32::from(*first);
                self.prefix += 1;
                bytes = rest;
            } else {
                let part = bytes.len().min(self.left as usize);
                self.left -= part as u32;
                bytes = &bytes[part..];
            }
            if self.prefix == PREFIX_BYTES && self.left == 0 {
                messages += 1;
                self.prefix = 0;
            }
        }
        messages
    }
}
