//! Hooks that are added to a block when QEMU translates it.

use crate::attribution::{End, Kind, Role, Touch, is_of_entry, kind_of, touch_of};
use crate::block::{Block, Code, Word};
use crate::exchange::mark;
use crate::functions::UNKNOWN;
use crate::machine::STACK_BYTES;
use crate::pages::{image_offset, tlb_page};
use crate::qemu::{self, AccessInfo, BOTH_DIRECTIONS, NO_REGISTERS, PluginId};

use std::ffi::{c_uint, c_void};

extern "C" fn on_block(_: c_uint, data: *mut c_void) {
    // SAFETY: a callback of QEMU; the data is a word that `full` made.
    unsafe { crate::machine().enter(Word(data as u64)) };
}

extern "C" fn on_access(_: c_uint, info: AccessInfo, address: u64, _: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    machine.access(info, address);
}

/// An access of a block that is one repeated string instruction.
extern "C" fn on_element(_: c_uint, info: AccessInfo, address: u64, _: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    machine.element_came();
    machine.access(info, address);
}

/// The last of several pushes, or pops, of one block.
extern "C" fn on_run(_: c_uint, info: AccessInfo, address: u64, data: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    let is_store = machine.is_store(info);
    machine.access_run(info, address, data as usize as u64, is_store);
}

/// A call stores the return address; a call through memory also loads its target.
///
/// QEMU 7.2 may continue to call this, and the two below, at later instructions that reach memory through a helper
/// and have no callback, such as `cmpxchg16b` without caches, and when an interrupt comes. So a block's end comes
/// once.
extern "C" fn on_call(_: c_uint, info: AccessInfo, address: u64, _: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    let is_store = machine.is_store(info);
    if is_store && machine.end_is(End::Call) {
        machine.end_came();
        machine.call(address);
    }
    machine.access(info, address);
}

/// The data is the number of pops just before it.
extern "C" fn on_return(_: c_uint, info: AccessInfo, address: u64, data: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    let is_store = machine.is_store(info);
    if !is_store && machine.end_is(End::Return) {
        machine.end_came();
        if !data.is_null() {
            machine.access_run(info, address.wrapping_sub(STACK_BYTES), data as usize as u64, false);
        }
        machine.ret(address);
    }
    machine.access(info, address);
}

/// A return from an interrupt also reads descriptors of segments, which are no stack. From the CPU's own stack it
/// leads to the user code of the thread that ran before.
extern "C" fn on_interrupt_return(_: c_uint, info: AccessInfo, address: u64, _: *mut c_void) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    let is_store = machine.is_store(info);
    if !is_store && !is_of_entry(address) && machine.end_is(End::InterruptReturn) {
        machine.ret(address);
    }
    machine.access(info, address);
}

extern "C" fn on_translation(_: c_uint, _: *mut c_void) {
    // SAFETY: a callback of QEMU.
    unsafe { crate::machine() }.forget_translations();
}

/// The data is the mark's number.
extern "C" fn on_mark(_: c_uint, data: *mut c_void) {
    // SAFETY: a callback of QEMU.
    unsafe { crate::machine() }.mark(data as usize as u16);
}

extern "C" fn on_model(_: c_uint, _: *mut c_void) {
    // SAFETY: a callback of QEMU. Changing from light to full is safe; the other direction makes QEMU 7.2 abort
    // (plugins/core.c:473).
    unsafe { qemu::qemu_plugin_reset(crate::machine().id, begin) };
}

extern "C" fn begin(id: PluginId) {
    // SAFETY: QEMU calls this after it has dropped the light translator and all its code.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, full) };
}

/// Kernel addresses are negative.
fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// Pushes, or pops, of one block without other memory accesses between them. One callback at the last suffices for
/// all, because none of them can fault on the kernel's stack.
#[derive(Clone, Copy)]
struct Run {
    last: *mut qemu::Instruction,
    count: usize,
    touch: Touch,
}

impl Run {
    /// # Safety
    /// Call it only while QEMU translates the block.
    unsafe fn register(self) {
        let (on_memory, data): (qemu::OnAccess, _) = match self.count {
            1 => (on_access, std::ptr::null_mut()),
            count => (on_run, count as *mut c_void),
        };
        // SAFETY: an instruction of the block that is being translated.
        unsafe { qemu::qemu_plugin_register_vcpu_mem_cb(self.last, on_memory, NO_REGISTERS, BOTH_DIRECTIONS, data) };
    }
}

/// Before the mark `MODEL`: only looks for that mark.
pub extern "C" fn light(_: PluginId, block: *mut qemu::Block) {
    // SAFETY: QEMU's own block, whose instructions are valid during this callback.
    unsafe {
        if is_kernel(qemu::qemu_plugin_tb_vaddr(block)) {
            return;
        }
        for index in 0..qemu::qemu_plugin_tb_n_insns(block) {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, index);
            let (size, bytes) = qemu::instruction_bytes(instruction);
            if kind_of(&bytes[..size]) == Kind::Mark(mark::MODEL) {
                let none = std::ptr::null_mut();
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_model, NO_REGISTERS, none);
            }
        }
    }
}

/// Hooks all instructions from then on.
pub extern "C" fn full(_: PluginId, translated: *mut qemu::Block) {
    // SAFETY: a callback of QEMU.
    let machine = unsafe { crate::machine() };
    // SAFETY: QEMU's own block, whose instructions are valid during this callback.
    unsafe {
        let address = qemu::qemu_plugin_tb_vaddr(translated);
        let count = qemu::qemu_plugin_tb_n_insns(translated);
        let is_kernel = is_kernel(address);
        let (function, role, is_first, is_watched) =
            if is_kernel { machine.function_at(address) } else { (UNKNOWN, Role::Helps, false, false) };
        let has_caches = machine.caches.is_some();
        // The side of a new thread is learnt from stores while it is created.
        let is_forking = machine.makes_threads(function);
        let (mut is_repeat, mut repeats_at, mut end, mut lines) = (false, 0, End::Jump, Vec::new());
        let nothing: *mut c_void = std::ptr::null_mut();
        let mut run: Option<Run> = None;
        for index in 0..count {
            let instruction = qemu::qemu_plugin_tb_get_insn(translated, index);
            let (size, bytes) = qemu::instruction_bytes(instruction);
            let kind = kind_of(&bytes[..size]);
            let mut on_memory: qemu::OnAccess = on_access;
            end = End::Jump;
            match kind {
                Kind::Call => (end, on_memory) = (End::Call, on_call),
                Kind::Return => (end, on_memory) = (End::Return, on_return),
                Kind::InterruptReturn => (end, on_memory) = (End::InterruptReturn, on_interrupt_return),
                Kind::Repeat => (is_repeat, repeats_at) = (count == 1, qemu::qemu_plugin_insn_vaddr(instruction)),
                Kind::Translation if is_kernel => {
                    qemu::qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_translation, NO_REGISTERS, nothing);
                }
                Kind::Mark(number) if !is_kernel => {
                    let data = usize::from(number) as *mut c_void;
                    qemu::qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, NO_REGISTERS, data);
                }
                Kind::Mark(_) | Kind::Translation | Kind::Plain => {}
            }
            let is_open_or_close = is_kernel && end != End::Jump;
            if !is_kernel {
                on_memory = on_access;
            }
            if is_repeat {
                on_memory = on_element;
            }
            if has_caches || is_open_or_close || is_forking || is_repeat {
                let touch = if is_kernel { touch_of(&bytes[..size]) } else { Touch::Other };
                let mut pops = nothing;
                match (touch, run) {
                    // It has no access, but may have a helper. At its end QEMU 7.2 forgets whom to call at accesses
                    // of helpers.
                    (Touch::Nothing, _) => {
                        qemu::qemu_plugin_register_vcpu_mem_cb(
                            instruction,
                            on_access,
                            NO_REGISTERS,
                            BOTH_DIRECTIONS,
                            nothing,
                        );
                    }
                    (Touch::Push | Touch::Pop, Some(begun)) if begun.touch == touch => {
                        run = Some(Run { last: instruction, count: begun.count + 1, touch });
                    }
                    (_, begun) => {
                        run = None;
                        match begun {
                            // The return's own callback also serves them.
                            Some(begun) if end == End::Return && begun.touch == Touch::Pop => {
                                pops = begun.count as *mut c_void
                            }
                            Some(begun) => begun.register(),
                            None => {}
                        }
                        if touch == Touch::Other {
                            qemu::qemu_plugin_register_vcpu_mem_cb(
                                instruction,
                                on_memory,
                                NO_REGISTERS,
                                BOTH_DIRECTIONS,
                                pops,
                            );
                        } else {
                            run = Some(Run { last: instruction, count: 1, touch });
                        }
                    }
                }
            }
            if has_caches {
                let here = qemu::qemu_plugin_insn_vaddr(instruction);
                let host = qemu::qemu_plugin_insn_haddr(instruction) as u64;
                let physical = match (image_offset(here), machine.memory_base()) {
                    (Some(offset), known) => {
                        if host != 0 && known.is_none() {
                            machine.set_memory_base(host.wrapping_sub(offset));
                        }
                        offset
                    }
                    (None, Some(base)) if host != 0 => host.wrapping_sub(base),
                    (None, _) => here,
                };
                for line in machine.code_lines(here, physical, size as u64) {
                    if lines.last() != Some(&line) {
                        lines.push(line);
                    }
                }
            }
        }
        if let Some(run) = run {
            run.register();
        }
        let block = Block {
            function,
            role,
            // QEMU puts at most 512 instructions into a block.
            instructions: count as u16,
            end,
            is_first,
            is_watched,
            is_kernel,
            is_repeat,
            repeats_at,
            page: tlb_page(address),
            code: Code::Lines(&lines),
        };
        let data = machine.word(block).0 as *mut c_void;
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(translated, on_block, NO_REGISTERS, data);
    }
}
