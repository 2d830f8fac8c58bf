//! Splits the messages of a gRPC stream. Before each are one byte of flags and four bytes of length.

const PREFIX_BYTES: u8 = 5;

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Messages {
    prefix: u8,
    left: u32,
}

impl Messages {
    pub(super) fn is_within(&self) -> bool {
        self.prefix > 0
    }

    pub(super) fn take(&mut self, mut bytes: &[u8]) -> u32 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_make_no_difference(lengths in prop::collection::vec(0..300usize, 0..8), size in 1..40usize) {
            let message = |length: &usize| [&[0u8][..], &(*length as u32).to_be_bytes(), &vec![3; *length]].concat();
            let bytes: Vec<u8> = lengths.iter().flat_map(message).collect();
            let mut messages = Messages::default();
            let counted: u32 = bytes.chunks(size).map(|piece| messages.take(piece)).sum();
            prop_assert_eq!(counted as usize, lengths.len());
        }
    }
}
