//! Communication with the host through ports of devices that QEMU emulates: a debug console for text, the firmware's
//! configuration for the job, and the panic device to stop the machine at an exact instruction.

use crate::Outcome;
use std::arch::asm;

const DEBUG_CONSOLE: u16 = 0xe9;
const PANIC: u16 = 0x505;
const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
const DIRECTORY: u16 = 0x19;
const JOB: &[u8] = b"opt/straingauge/job";
/// Maximum size of a job.
const LARGEST_JOB: usize = 1 << 20;

fn out_byte(port: u16, byte: u8) {
    // SAFETY: `allow_ports` was called; the devices at these ports touch no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack)) };
}

fn select(item: u16) {
    // SAFETY: as in `out_byte`.
    unsafe { asm!("out dx, ax", in("dx") SELECTOR, in("ax") item, options(nomem, nostack)) };
}

fn read(into: &mut [u8]) {
    for byte in into {
        // SAFETY: as in `out_byte`.
        unsafe { asm!("in al, dx", in("dx") DATA, out("al") *byte, options(nomem, nostack)) };
    }
}

/// Text for the host.
pub fn say(words: &str) {
    words.bytes().for_each(|byte| out_byte(DEBUG_CONSOLE, byte));
}

/// Gives the host an address in this process's memory, which the host reads while the machine is stopped.
pub fn show(name: &str, what: &[u8]) {
    say(&format!("{name} {} {}\n", what.as_ptr() as u64, what.len()));
}

/// Longer than the interval of the kernel's tick, in nanoseconds of the guest.
const WAIT_TICKS: u64 = 8_000_000;

/// Stops the machine at this instruction, so that every resumption begins with the next one.
///
/// While a machine that counts instructions stops, QEMU 7.2 may or may not advance its clock to the next timer (a
/// race of `icount_start_warp_timer` with the stop). So interrupts are off until an exact time after that timer: in
/// both cases the guest continues at the same time with the same pending interrupts.
pub fn save_here() {
    say("ready\n");
    // SAFETY: `allow_ports` lets this process disable interrupts. No instruction between `cli` and `sti` touches
    // memory, and the jump lands among the 128 one-byte NOPs, because rcx is kept between 0 and 128.
    unsafe {
        asm!(
            "cli",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "lea {end}, [rax + {wait}]",
            "mov edx, {port}",
            "mov eax, 1",
            "out dx, al",
            "2:",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov rcx, {end}",
            "sub rcx, rax",
            "cmp rcx, 128",
            "jg 2b",
            // An instruction takes a nanosecond and a tick of the time stamp, so this executes the missing number of
            // NOPs.
            "xor eax, eax",
            "test rcx, rcx",
            "cmovs rcx, rax",
            "lea rdx, [rip + 3f]",
            "sub rdx, rcx",
            "jmp rdx",
            ".fill 128, 1, 0x90",
            "3:",
            "sti",
            end = out(reg) _,
            wait = const WAIT_TICKS,
            port = const PANIC,
            out("rax") _,
            out("rcx") _,
            out("rdx") _,
            options(nomem, nostack)
        );
    }
}

/// A file in the firmware's configuration: its selector and its size.
fn item(name: &[u8]) -> Option<(u16, usize)> {
    select(DIRECTORY);
    let mut count = [0; 4];
    read(&mut count);
    for _ in 0..u32::from_be_bytes(count).min(1000) {
        let mut entry = [0; 64];
        read(&mut entry);
        if entry[8..].split(|byte| *byte == 0).next() == Some(name) {
            let size = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]) as usize;
            return Some((u16::from_be_bytes([entry[4], entry[5]]), size));
        }
    }
    None
}

/// The job for this resumption.
pub fn read_job() -> Outcome<String> {
    let (selector, size) = item(JOB).ok_or("the host passed no job")?;
    let mut text = vec![0; size.min(LARGEST_JOB)];
    select(selector);
    read(&mut text);
    String::from_utf8(text).map_err(|_| "the job is not text".into())
}

/// Text for the host as one line.
pub fn show_text(name: &str, text: &str) {
    say(&format!("{name} {}\n", text.replace('\n', " ")));
}
