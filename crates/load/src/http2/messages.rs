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

    /// Takes the next bytes of the body; returns how many messages end in them.
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

    #[test]
    fn a_message_ends_with_its_last_byte() {
        let mut messages = Messages::default();
        assert_eq!(messages.take(&[1, 0, 0, 1, 0]), 0);
        assert_eq!(messages.take(&[7; 255]), 0);
        assert!(messages.is_within());
        assert_eq!(messages.take(&[7]), 1);
        assert!(!messages.is_within());
        assert_eq!(messages.take(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 9, 9, 0]), 2);
    }

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
