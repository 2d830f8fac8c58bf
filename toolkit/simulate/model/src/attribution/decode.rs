//! Decodes x86-64 instructions from their bytes, as far as charging needs it.

/// Marks that a program in the guest executes: an 8-byte NOP whose displacement is this value plus the mark's number.
pub const MARK_BASE: u32 = 0x5eed_0000;

/// The kind of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stores a return address.
    Call,
    /// Loads a return address.
    Return,
    /// Returns from an interrupt or exception.
    InterruptReturn,
    /// A string instruction with a repeat prefix, which the emulator executes as one instruction per element.
    Repeat,
    /// Changes or drops address translations: mov to cr3 or cr4, invlpg, invpcid.
    Translation,
    /// A mark with its number.
    Mark(u16),
    /// Any other instruction.
    Plain,
}

/// The kind of the instruction with these bytes (one instruction as split by the emulator).
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

/// The effect of an instruction on memory, as far as its bytes show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// No access, and the stack pointer stays.
    Nothing,
    /// Stores 8 bytes below the stack pointer, which points to them afterwards.
    Push,
    /// Loads the 8 bytes at the stack pointer, which points past them afterwards.
    Pop,
    /// Any access, or unknown.
    Other,
}

/// The effect of the instruction with these bytes on memory. It is certain unless it is [`Touch::Other`].
pub fn touch_of(bytes: &[u8]) -> Touch {
    let (rex, opcode) = match *bytes {
        [rex @ 0x40..=0x4f, ref rest @ ..] => (rex, rest),
        _ => (0, bytes),
    };
    const STACK_POINTER: u8 = 4;
    // A register in a ModRM byte. A prefix distinguishes it from r12; ah, which has the same number, is treated like
    // it.
    let is_stack = |field: u8, extended: u8| field & 7 == STACK_POINTER && rex & extended == 0;
    let of_registers = |operand: u8| {
        let has_only_registers = operand >> 6 == 3 && !is_stack(operand, 1) && !is_stack(operand >> 3, 4);
        if has_only_registers { Touch::Nothing } else { Touch::Other }
    };
    match *opcode {
        // push and pop of any register but the stack pointer; push of a number.
        [0x50..=0x57] => Touch::Push,
        [0x58..=0x5f] if !is_stack(opcode[0], 1) => Touch::Pop,
        [0x6a, _] | [0x68, _, _, _, _] => Touch::Push,
        // Arithmetic with eax and a number; mov of a number; cwde, cdq; nop.
        [0x00..=0x3f, ..] if matches!(opcode[0] & 7, 4 | 5) => Touch::Nothing,
        [0xa8 | 0xa9 | 0x90 | 0x98 | 0x99, ..] => Touch::Nothing,
        [0xb0..=0xbf, ..] if !is_stack(opcode[0], 1) => Touch::Nothing,
        // Arithmetic, mov, test, movsxd, shifts.
        [0x00..=0x3f, operand, ..] if opcode[0] & 7 < 4 => of_registers(operand),
        [0x63 | 0x80 | 0x81 | 0x83..=0x85 | 0x88..=0x8b | 0xc0 | 0xc1 | 0xd0..=0xd3 | 0xf6 | 0xf7, operand, ..] => {
            of_registers(operand)
        }
        [0xc7, operand @ 0xc0..=0xc7, ..] => of_registers(operand),
        // lea
        [0x8d, operand, ..] if !is_stack(operand >> 3, 4) => Touch::Nothing,
        // endbr64 has a prefix, and is one of the long NOPs.
        [0xf3, 0x0f, 0x1e, 0xfa] | [0x0f, 0x1f, ..] => Touch::Nothing,
        // cmov, set, imul, movzx, movsx.
        [0x0f, 0x40..=0x4f | 0x90..=0x9f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf, operand, ..] => of_registers(operand),
        _ => Touch::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_decoded_from_their_bytes() {
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

    #[test]
    fn only_instructions_without_memory_access_are_recognised_as_such() {
        for (bytes, touch) in [
            (&[0x53][..], Touch::Push),                                  // push %rbx
            (&[0x41, 0x57], Touch::Push),                                // push %r15
            (&[0x6a, 0xff], Touch::Push),                                // push $-1
            (&[0x68, 1, 2, 3, 4], Touch::Push),                          // push $0x4030201
            (&[0x66, 0x53], Touch::Other),                               // push %bx
            (&[0x5b], Touch::Pop),                                       // pop %rbx
            (&[0x5c], Touch::Other),                                     // pop %rsp
            (&[0x41, 0x5c], Touch::Pop),                                 // pop %r12
            (&[0x9c], Touch::Other),                                     // pushf
            (&[0xff, 0x30], Touch::Other),                               // push (%rax)
            (&[0x48, 0x89, 0xfb], Touch::Nothing),                       // mov %rdi,%rbx
            (&[0x48, 0x89, 0x1f], Touch::Other),                         // mov %rbx,(%rdi)
            (&[0x48, 0x89, 0xdc], Touch::Other),                         // mov %rbx,%rsp
            (&[0x49, 0x89, 0xdc], Touch::Nothing),                       // mov %rbx,%r12
            (&[0x48, 0x89, 0xe5], Touch::Other), // mov %rsp,%rbp, which is not decoded in detail
            (&[0x48, 0x83, 0xec, 0x10], Touch::Other), // sub $16,%rsp
            (&[0x48, 0x83, 0xc3, 0x10], Touch::Nothing), // add $16,%rbx
            (&[0x48, 0x83, 0x43, 0x10, 1], Touch::Other), // addq $1,16(%rbx)
            (&[0x31, 0xc0], Touch::Nothing),     // xor %eax,%eax
            (&[0x33, 0x00], Touch::Other),       // xor (%rax),%eax
            (&[0x3d, 1, 2, 3, 4], Touch::Nothing), // cmp $0x4030201,%eax
            (&[0xb8, 1, 2, 3, 4], Touch::Nothing), // mov $0x4030201,%eax
            (&[0xbc, 1, 2, 3, 4], Touch::Other), // mov $0x4030201,%esp
            (&[0x41, 0xbc, 1, 2, 3, 4], Touch::Nothing), // mov $0x4030201,%r12d
            (&[0x48, 0x8d, 0x47, 8], Touch::Nothing), // lea 8(%rdi),%rax
            (&[0x48, 0x8d, 0x64, 0x24, 8], Touch::Other), // lea 8(%rsp),%rsp
            (&[0x0f, 0xb6, 0xc0], Touch::Nothing), // movzbl %al,%eax
            (&[0x0f, 0xb6, 0x07], Touch::Other), // movzbl (%rdi),%eax
            (&[0xf3, 0x0f, 0x1e, 0xfa], Touch::Nothing), // endbr64
            (&[0x0f, 0x1f, 0x44, 0, 0], Touch::Nothing), // nopl 0(%rax,%rax,1)
            (&[0x65, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0], Touch::Other), // mov %gs:0x28,%rax
            (&[0x48, 0xc7, 0xc0, 1, 2, 3, 4], Touch::Nothing), // mov $0x4030201,%rax
            (&[0xc7, 0xf8, 1, 2, 3, 4], Touch::Other), // xbegin
            (&[0xf7, 0xd8], Touch::Nothing),     // neg %eax
            (&[0x0f, 0x22, 0xd8], Touch::Other), // mov %rax,%cr3
            (&[0xa4], Touch::Other),             // movsb
            (&[0xe8, 1, 2, 3, 4], Touch::Other), // call
            (&[0xc3], Touch::Other),             // ret
            (&[0x0f, 0x05], Touch::Other),       // syscall
            (&[0x06], Touch::Other),
            (&[], Touch::Other),
        ] {
            assert_eq!(touch_of(bytes), touch, "{bytes:02x?}");
        }
    }
}
