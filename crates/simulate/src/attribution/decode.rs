//! What an x86-64 instruction is, as far as it matters here: from its bytes alone.

/// Marks that a program in the guest executes: an 8-byte NOP whose displacement is this plus the mark's number.
pub const MARK_BASE: u32 = 0x5eed_0000;

/// What an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stores a return address.
    Call,
    /// Loads a return address.
    Return,
    /// Returns from an interrupt or exception.
    InterruptReturn,
    /// A string instruction with a repeat prefix, which the emulator executes as one instruction an element.
    Repeat,
    /// Changes or drops translations of addresses: mov to cr3 or cr4, invlpg, invpcid.
    Translation,
    /// A mark with its number.
    Mark(u16),
    /// Anything else.
    Plain,
}

/// The kind of the instruction with these bytes (one instruction, as the emulator split them).
pub fn kind_of(bytes: &[u8]) -> Kind {
    if let [0x0f, 0x1f, 0x84, 0x00, a, b, c, d] = *bytes {
        let mark = u32::from_le_bytes([a, b, c, d]);
        if mark & 0xffff_0000 == MARK_BASE {
            return Kind::Mark((mark & 0xffff) as u16);
        }
    }
    // Prefixes: operand size, segments, lock, repeat, REX.
    let mut at = 0;
    let mut has_repeat = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            0xf2 | 0xf3 => has_repeat = true,
            0x66 | 0x67 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 => {}
            0x40..=0x4f => {}
            _ => break,
        }
        at += 1;
    }
    let opcode = &bytes[at..];
    let register_field = |byte: u8| byte >> 3 & 7;
    match *opcode {
        [0xe8, ..] => Kind::Call,
        [0xff, operand, ..] if register_field(operand) == 2 => Kind::Call,
        [0xc3 | 0xc2, ..] => Kind::Return,
        [0xcf, ..] => Kind::InterruptReturn,
        [0xa4..=0xa7 | 0xaa..=0xaf, ..] if has_repeat => Kind::Repeat,
        [0x0f, 0x22, operand, ..] if matches!(register_field(operand), 3 | 4) => Kind::Translation,
        [0x0f, 0x01, operand, ..] if register_field(operand) == 7 && operand < 0xc0 => Kind::Translation,
        [0x0f, 0x38, 0x82, ..] => Kind::Translation,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_bytes() {
        for (bytes, kind) in [
            (&[0xe8, 1, 2, 3, 4][..], Kind::Call),
            (&[0xff, 0xd0], Kind::Call),                   // call *%rax
            (&[0x41, 0xff, 0xd3], Kind::Call),             // call *%r11
            (&[0xff, 0x14, 0xc5, 0, 0, 0, 0], Kind::Call), // call *table(,%rax,8)
            (&[0xff, 0xe0], Kind::Plain),                  // jmp *%rax
            (&[0xff, 0x30], Kind::Plain),                  // push (%rax)
            (&[0xc3], Kind::Return),
            (&[0xf3, 0xc3], Kind::Return),
            (&[0xc2, 8, 0], Kind::Return),
            (&[0x48, 0xcf], Kind::InterruptReturn),
            (&[0xf3, 0x48, 0xa5], Kind::Repeat),                        // rep movsq
            (&[0xf3, 0xaa], Kind::Repeat),                              // rep stosb
            (&[0x48, 0xa5], Kind::Plain),                               // movsq
            (&[0xf3, 0x0f, 0x1e, 0xfa], Kind::Plain),                   // endbr64
            (&[0x0f, 0x22, 0xd8], Kind::Translation),                   // mov %rax,%cr3
            (&[0x0f, 0x22, 0xc0], Kind::Plain),                         // mov %rax,%cr0
            (&[0x0f, 0x01, 0x38], Kind::Translation),                   // invlpg (%rax)
            (&[0x0f, 0x01, 0xf8], Kind::Plain),                         // swapgs
            (&[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24], Kind::Translation), // invpcid
            (&[0x0f, 0x1f, 0x84, 0, 2, 0, 0xed, 0x5e], Kind::Mark(2)),
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Kind::Plain),
            (&[], Kind::Plain),
            (&[0xf3], Kind::Plain),
        ] {
            assert_eq!(kind_of(bytes), kind, "{bytes:02x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..16)) {
            kind_of(&bytes);
        }
    }
}
