//! The part of QEMU's plugin interface that is used here: `include/qemu/qemu-plugin.h`, version 1 (QEMU 6.0 to 8.2),
//! 2 (9.0), 3 and 4 (9.1 to 10.0). The symbols belong to QEMU and are resolved when it loads the plugin. The versions
//! differ in one used function, [`qemu_plugin_insn_data`].

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

#[repr(C)]
pub struct Block([u8; 0]);
#[repr(C)]
pub struct Instruction([u8; 0]);
#[repr(C)]
pub struct Place([u8; 0]);

pub type PluginId = u64;
/// Size, sign, byte order and direction of an access, packed.
pub type AccessInfo = u32;
pub type OnBlock = extern "C" fn(cpu: c_uint, data: *mut c_void);
pub type OnAccess = extern "C" fn(cpu: c_uint, info: AccessInfo, address: u64, data: *mut c_void);

#[repr(C)]
pub struct Version {
    pub min: c_int,
    pub current: c_int,
}

/// `qemu_info_t` up to the fields that are read here.
#[repr(C)]
pub struct Info {
    pub target: *const c_char,
    pub version: Version,
    pub is_system: bool,
    pub cpus: c_int,
    pub most_cpus: c_int,
}

/// `QEMU_PLUGIN_MEM_RW`. Registering for one direction does not work in QEMU 7.2: `plugin-gen.c` tests the wrong bit,
/// so loads are never reported, and a read-only callback gets stores.
pub const BOTH_DIRECTIONS: c_int = 3;
/// `QEMU_PLUGIN_CB_NO_REGS`.
pub const NO_REGISTERS: c_int = 0;

unsafe extern "C" {
    pub fn qemu_plugin_reset(id: PluginId, then: extern "C" fn(PluginId));
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: extern "C" fn(PluginId, *mut Block));
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut Block, callback: OnBlock, flags: c_int, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: OnBlock,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: OnAccess,
        flags: c_int,
        directions: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data();
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;
    pub fn qemu_plugin_mem_is_store(info: AccessInfo) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: AccessInfo) -> c_uint;
    pub fn qemu_plugin_get_hwaddr(info: AccessInfo, address: u64) -> *mut Place;
    pub fn qemu_plugin_hwaddr_is_io(place: *const Place) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(place: *const Place) -> u64;
}

/// Up to version 2 of the interface.
type PointsToBytes = unsafe extern "C" fn(instruction: *const Instruction) -> *const c_void;
/// Since version 3.
type CopiesBytes = unsafe extern "C" fn(instruction: *const Instruction, to: *mut c_void, room: usize) -> usize;
const FIRST_THAT_COPIES: c_int = 3;
static DOES_COPY: AtomicBool = AtomicBool::new(false);

/// Sets the version of the interface that QEMU uses.
pub fn set_interface(version: c_int) {
    DOES_COPY.store(version >= FIRST_THAT_COPIES, Ordering::Relaxed);
}

/// One more than the maximum length of an instruction.
pub const LONGEST: usize = 16;

/// An instruction's bytes and their number.
///
/// # Safety
/// The instruction is one of the block that QEMU is translating, and [`set_interface`] was called with QEMU's own
/// number.
pub unsafe fn instruction_bytes(instruction: *const Instruction) -> (usize, [u8; LONGEST]) {
    let mut bytes = [0; LONGEST];
    let symbol: unsafe extern "C" fn() = qemu_plugin_insn_data;
    // SAFETY: the function has the type that the version of the interface says, and reads or writes no more than `size`
    // bytes.
    unsafe {
        let size = qemu_plugin_insn_size(instruction).min(LONGEST);
        if DOES_COPY.load(Ordering::Relaxed) {
            let copy: CopiesBytes = std::mem::transmute(symbol);
            (copy(instruction, bytes.as_mut_ptr().cast(), size).min(size), bytes)
        } else {
            let point: PointsToBytes = std::mem::transmute(symbol);
            let from: *const u8 = point(instruction).cast();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size);
            (size, bytes)
        }
    }
}
