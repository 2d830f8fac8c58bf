//! The QEMU plugin: every instruction and memory access of one virtual CPU goes through the cache model and is
//! charged to a layer.
//!
//! Until the guest executes the mark `MODEL`, the plugin only looks for marks, and the guest runs at nearly the
//! emulator's full speed.

mod access_info;
mod block;
mod functions;
mod machine;
mod pages;
mod qemu;
#[cfg(test)]
mod tests;
mod translate;
mod translations;
use machine::Machine;
use model::{attribution, cache, exchange, objects};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The interface version for which QEMU accepts this plugin, 1 to 3 by QEMU's version. The program that starts QEMU
/// writes it into the file (`machine/plugin_file.rs`).
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the plugin's state.
///
/// # Safety
/// Only the emulator's one thread for virtual CPUs (`thread=single`) may call this, from a callback that QEMU made,
/// and no two references may live at once.
#[inline(always)]
unsafe fn machine() -> &'static mut Machine {
    // SAFETY: set once in `qemu_plugin_install`, before any callback was registered, and never freed; there is one
    // thread, as above.
    unsafe { &mut *MACHINE.load(Ordering::Relaxed) }
}

/// QEMU calls it once. The arguments are `order=FILE` and `answer=FILE`.
///
/// # Safety
/// QEMU calls it with its description and `count` valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: qemu::PluginId,
    info: *const qemu::Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a pointer to its description, which begins in the same way in all versions.
    qemu::set_interface(unsafe { (*info).version.current });
    let mut files = [None, None];
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: QEMU passes `count` pointers to strings that end in a zero.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy().into_owned();
        match argument.split_once('=') {
            Some(("order", file)) => files[0] = Some(file.to_string()),
            Some(("answer", file)) => files[1] = Some(file.to_string()),
            _ => eprintln!("straingauge plugin: '{argument}' is neither order= nor answer="),
        }
    }
    let [Some(order), Some(answer)] = files else {
        eprintln!("straingauge plugin: order= and answer= are needed");
        return 1;
    };
    let text = std::fs::read_to_string(&order).map_err(|why| why.to_string());
    let order = match text.and_then(|text| exchange::Order::from_text(&text)) {
        Ok(order) => order,
        Err(why) => {
            eprintln!("straingauge plugin: the order cannot be read: {why}");
            return 1;
        }
    };
    let machine = Box::new(Machine::new(id, order, answer));
    MACHINE.store(Box::into_raw(machine), Ordering::Relaxed);
    // SAFETY: QEMU gave this id, and the callback has the right type.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::light) };
    0
}
