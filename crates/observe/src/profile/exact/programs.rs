//! The programs in the kernel: one pair for each boundary function that this kernel has, and those of the tracepoints.

use super::layout::{self, CALIBRATION, Reading, SLOTS};
use crate::profile::error::ProfileError;
use crate::profile::layout::{parse_rows, target_bytes};
use crate::profile::symbols::KernelSymbols;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput};
use record::boundaries::Boundary;
use record::profile::PacketCounts;
use record::profile::exact::Unhooked;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Compiled from `bpf/exact.bpf.c` by the build script. An ELF file is read in place, as structures of 8 bytes' alignment.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/exact.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// The loader's words, in which it names the program that the kernel refused.
static LOADER_LOG: Mutex<String> = Mutex::new(String::new());
const LOG_BYTES: usize = 64 * 1024;
/// The last of them belong into the error.
const LOG_LINES: usize = 3;

/// Functions of the kernel that do nothing, made for trying programs out (net/bpf/test_run.c).
const EMPTY_FUNCTIONS: [&str; 4] = ["bpf_fentry_test1", "bpf_fentry_test2", "bpf_fentry_test3", "bpf_fentry_test4"];

/// Programs of tracepoints that every kernel has, by their order of attachment; ends come before begins, so that nothing
/// begins unended.
const TRACEPOINTS: [&str; 11] = [
    "process_forked",
    "switched",
    "call_ends",
    "call_begins",
    "softirq_ends",
    "softirq_begins",
    "driver_ends",
    "driver_begins",
    "irq_handler_ends",
    "irq_handler_begins",
    "packet_received",
];
/// Programs of tracepoints that depend on the processor, with the type that the kernel's BTF has for each.
const OPTIONAL: [(&str, &str); 5] = [
    ("local_timer", "btf_trace_local_timer_entry"),
    ("call_function", "btf_trace_call_function_entry"),
    ("call_function_single", "btf_trace_call_function_single_entry"),
    ("reschedule", "btf_trace_reschedule_entry"),
    ("irq_work", "btf_trace_irq_work_entry"),
];

/// Loaded programs. Links are dropped before the object they belong to.
pub struct Programs {
    functions: Vec<Link>,
    tracepoints: Vec<Link>,
    optional: Vec<&'static str>,
    object: Object,
    /// Boundaries by slot.
    slots: Vec<Boundary>,
    is_hooked: Vec<bool>,
    /// Boundaries without programs.
    pub unhooked: Vec<Unhooked>,
    empty_slots: Vec<usize>,
    empty_hooked: usize,
}

impl Programs {
    /// Loads a pair for every boundary that this kernel has, for the server's port in its network namespace.
    pub fn load(
        boundaries: &[Boundary],
        symbols: &KernelSymbols,
        port: u16,
        netns_inode: u32,
    ) -> Result<Self, ProfileError> {
        let btf = Btf::from_vmlinux().map_err(|error| ProfileError::ExactNotPossible(error.to_string()))?;
        let known: HashMap<&str, Option<&str>> =
            symbols.iter().map(|function| (function.name.as_str(), function.module.as_deref())).collect();
        let mut unhooked = Vec::new();
        let mut wanted: Vec<Boundary> = Vec::new();
        for boundary in boundaries {
            let name = boundary.function.as_str();
            let why = match known.get(name) {
                None => "this kernel has no such function, or has compiled it into its callers",
                Some(None) if btf.type_by_name::<types::Func<'_>>(name).is_none() => "the kernel's BTF lacks it",
                _ if wanted.len() + EMPTY_FUNCTIONS.len() >= SLOTS => "the table has more functions than slots",
                _ => {
                    wanted.push(boundary.clone());
                    continue;
                }
            };
            unhooked.push(Unhooked { function: name.into(), why: why.into(), is_needed: boundary.is_needed });
        }
        let optional: Vec<&str> = OPTIONAL
            .into_iter()
            .filter(|(_, kind)| btf.type_by_name::<types::Typedef<'_>>(kind).is_some())
            .map(|(name, _)| name)
            .collect();
        // The kernel may refuse a function for reasons of its own (inlined, too many arguments, not traceable): the loader
        // names the program, and the others are loaded without it.
        loop {
            match load_once(&wanted, &optional, port, netns_inode) {
                Ok(object) => {
                    let empty_slots = (wanted.len()..wanted.len() + EMPTY_FUNCTIONS.len()).collect();
                    let (functions, tracepoints) = (Vec::new(), Vec::new());
                    return Ok(Programs {
                        functions,
                        tracepoints,
                        optional,
                        object,
                        slots: wanted,
                        is_hooked: Vec::new(),
                        unhooked,
                        empty_slots,
                        empty_hooked: 0,
                    });
                }
                Err(error) => match refused_slot().filter(|slot| *slot < wanted.len()) {
                    Some(slot) => {
                        let boundary = wanted.remove(slot);
                        let why = format!("the kernel refused it: {error}");
                        unhooked.push(Unhooked { function: boundary.function, why, is_needed: boundary.is_needed });
                    }
                    None => return Err(refusal(&error)),
                },
            }
        }
    }

    /// Names of the functions that are hooked.
    pub fn hooked(&self) -> Vec<String> {
        let slots = self.slots.iter().zip(&self.is_hooked);
        slots.filter(|(_, is_hooked)| **is_hooked).map(|(boundary, _)| boundary.function.clone()).collect()
    }

    /// Attaches the tracepoints: modes, interrupts, switches, packets.
    pub fn attach_tracepoints(&mut self) -> Result<(), ProfileError> {
        let optional: Vec<String> =
            self.optional.iter().flat_map(|name| [format!("{name}_ends"), format!("{name}_begins")]).collect();
        let names = TRACEPOINTS.into_iter().chain(optional.iter().map(String::as_str)).chain(["packet_queued"]);
        for name in names {
            let link = self.link(name).map_err(|error| refusal(&error))?;
            self.tracepoints.push(link);
        }
        Ok(())
    }

    /// Hooks the boundary functions. One that the kernel refuses now is left out like those that it refused to load.
    pub fn attach_functions(&mut self) -> Result<(), ProfileError> {
        let mut refused = None;
        self.is_hooked.clear();
        for slot in 0..self.slots.len() {
            // The function that it stands in for comes earlier in the table.
            let first = self.slots[slot].instead_of.as_deref();
            let mut hooked = self.slots.iter().zip(&self.is_hooked).filter(|(_, is_hooked)| **is_hooked);
            if first.is_some_and(|first| hooked.any(|(boundary, _)| boundary.function == first)) {
                self.is_hooked.push(false);
                continue;
            }
            let outcome = self.attach_slot(slot);
            self.is_hooked.push(outcome.is_ok());
            if let Err(error) = outcome {
                let (why, boundary) = (format!("the kernel refused it: {error:#}"), &self.slots[slot]);
                self.unhooked.push(Unhooked {
                    function: boundary.function.clone(),
                    why,
                    is_needed: boundary.is_needed,
                });
                refused = Some(error);
            }
        }
        match refused {
            Some(error) if !self.is_hooked.contains(&true) => Err(refusal(&error)),
            _ => Ok(()),
        }
    }

    /// Hooks `count` more empty functions; there are four.
    pub fn attach_empty_functions(&mut self, count: usize) -> Result<(), ProfileError> {
        for slot in self.empty_slots.clone().into_iter().skip(self.empty_hooked).take(count) {
            self.empty_hooked += 1;
            self.attach_slot(slot).map_err(|error| refusal(&error))?;
        }
        Ok(())
    }

    /// Both programs or none.
    fn attach_slot(&mut self, slot: usize) -> Result<(), libbpf_rs::Error> {
        let end = self.link(&leave_name(slot))?;
        let begin = self.link(&enter_name(slot))?;
        self.functions.extend([begin, end]);
        Ok(())
    }

    fn link(&self, name: &str) -> Result<Link, libbpf_rs::Error> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        program.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?.attach_trace()
    }

    /// Has the kernel call its empty functions once.
    pub fn call_empty_functions(&self) -> Result<(), ProfileError> {
        let name = enter_name(*self.empty_slots.first().ok_or_else(odd_object)?);
        let program = self.object.progs_mut().find(|program| program.name() == name.as_str()).ok_or_else(odd_object)?;
        program.test_run(ProgramInput::default()).map(|_| ()).map_err(|error| refusal(&error))
    }

    /// Processes of the server; those that they fork are followed by themselves.
    pub fn add_members(&self, pids: impl IntoIterator<Item = u32>) -> Result<(), ProfileError> {
        let map = self.map("members")?;
        for pid in pids {
            map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY).map_err(|error| refusal(&error))?;
        }
        Ok(())
    }

    /// Time and packets count from `opens_ns` to `closes_ns` of CLOCK_MONOTONIC.
    pub fn set_gate(&self, opens_ns: u64, closes_ns: u64) -> Result<(), ProfileError> {
        self.map(".bss.gate")?
            .update(&0u32.to_ne_bytes(), &layout::gate_bytes(opens_ns, closes_ns), MapFlags::ANY)
            .map_err(|error| refusal(&error))
    }

    /// What was counted so far, completed by the time of a window that has ended.
    pub fn read(&self, opens_ns: u64, closes_ns: u64) -> Result<Reading, ProfileError> {
        let values =
            self.map("cpus")?.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| refusal(&error))?;
        let mut reading = Reading::empty();
        for value in values.unwrap_or_default() {
            reading.add_cpu(&value, opens_ns, closes_ns);
        }
        Ok(reading)
    }

    /// The port's packets so far.
    pub fn packets(&self) -> Result<PacketCounts, ProfileError> {
        let bytes =
            self.map(".bss.rows")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| refusal(&error))?;
        Ok(parse_rows(&bytes.unwrap_or_default()).0)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, ProfileError> {
        self.object.maps().find(|map| map.name() == name).ok_or_else(odd_object)
    }
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("hooked", &self.hooked()).field("unhooked", &self.unhooked).finish()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.functions.clear();
        self.tracepoints.clear();
    }
}

/// Why the exact profile cannot be had here; `None`: it can. Tries a pair of programs on a function that does nothing.
pub fn why_not_possible() -> Option<String> {
    let attempt = || -> Result<(), ProfileError> {
        let object = load_once(&[], &[], 0, 0).map_err(|error| refusal(&error))?;
        let mut programs = Programs {
            functions: Vec::new(),
            tracepoints: Vec::new(),
            optional: Vec::new(),
            object,
            slots: Vec::new(),
            is_hooked: Vec::new(),
            unhooked: Vec::new(),
            empty_slots: (0..EMPTY_FUNCTIONS.len()).collect(),
            empty_hooked: 0,
        };
        programs.attach_empty_functions(1)
    };
    attempt().err().map(|error| match error {
        ProfileError::ExactNotPossible(why) => why.replace('\n', " "),
        other => other.to_string(),
    })
}

fn load_once(wanted: &[Boundary], optional: &[&str], port: u16, netns_inode: u32) -> Result<Object, libbpf_rs::Error> {
    LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let mut log = LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() < LOG_BYTES {
            log.push_str(&text);
        }
    })));
    let loaded = open(wanted, optional, port, netns_inode).and_then(OpenObject::load);
    libbpf_rs::set_print(None);
    loaded
}

fn open(wanted: &[Boundary], optional: &[&str], port: u16, netns_inode: u32) -> Result<OpenObject, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
    let functions: Vec<&str> =
        wanted.iter().map(|boundary| boundary.function.as_str()).chain(EMPTY_FUNCTIONS).collect();
    let targets: HashMap<String, &str> = functions
        .iter()
        .enumerate()
        .flat_map(|(slot, function)| [(enter_name(slot), *function), (leave_name(slot), *function)])
        .collect();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if name.starts_with("enter_") || name.starts_with("leave_") {
            match targets.get(&name) {
                Some(function) => program.set_attach_target(0, Some((*function).to_string()))?,
                None => program.set_autoload(false),
            }
        } else if let Some(section) = name.strip_suffix("_begins").or(name.strip_suffix("_ends"))
            && OPTIONAL.iter().any(|(known, _)| *known == section)
        {
            program.set_autoload(optional.contains(&section));
        }
    }
    let layers: Vec<(u8, bool)> = wanted
        .iter()
        .map(|boundary| (layout::layer_number(boundary.layer), boundary.is_packets))
        .chain(EMPTY_FUNCTIONS.map(|_| (CALIBRATION, false)))
        .collect();
    for mut map in open.maps_mut() {
        let Some(name) = map.name().to_str().map(str::to_owned) else { continue };
        match (name.as_str(), map.initial_value_mut()) {
            (".rodata.target", Some(bytes)) => bytes[..16].copy_from_slice(&target_bytes(port, netns_inode, 0)),
            (".rodata.options", Some(bytes)) => {
                let options = layout::options_bytes(std::process::id(), &layers);
                bytes[..options.len()].copy_from_slice(&options);
            }
            _ => {}
        }
    }
    Ok(open)
}

/// The slot of the program that the loader's words name last: `prog 'enter_017': failed to load`.
fn refused_slot() -> Option<usize> {
    let log = LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let name = log.lines().filter_map(|line| line.split("prog '").nth(1)?.split('\'').next()).next_back()?;
    let digits = name.strip_prefix("enter_").or(name.strip_prefix("leave_"))?;
    usize::from_str_radix(digits, 8).ok()
}

/// As the macro of `exact.bpf.c` names them.
fn enter_name(slot: usize) -> String {
    format!("enter_0{slot:02o}")
}

fn leave_name(slot: usize) -> String {
    format!("leave_0{slot:02o}")
}

fn odd_object() -> ProfileError {
    ProfileError::Refused("the compiled object lacks a part".into())
}

fn refusal(error: &libbpf_rs::Error) -> ProfileError {
    match error.kind() {
        ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => ProfileError::NotPermitted,
        _ => {
            let log = LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner);
            // The loader guesses at a limit of memory; a kernel that forbids it says no more than that.
            let is_forbidden = error.to_string().contains("(os error 1)");
            let lines: Vec<&str> =
                log.lines().map(str::trim).filter(|line| !line.is_empty() && !is_forbidden).collect();
            let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("; ");
            let (open, close) = if tail.is_empty() { ("", "") } else { (" (", ")") };
            ProfileError::ExactNotPossible(format!(
                "the kernel refuses programs at the begin and end of its functions (fentry, fexit): {error}{open}{tail}{close}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_its_two_programs_in_the_object() {
        let open = ObjectBuilder::default().open_memory(&OBJECT.0).unwrap();
        let names: Vec<String> = open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        for slot in 0..SLOTS {
            assert!(names.contains(&enter_name(slot)) && names.contains(&leave_name(slot)), "{slot} of {names:?}");
        }
        let optional = OPTIONAL.iter().flat_map(|(name, _)| [format!("{name}_begins"), format!("{name}_ends")]);
        for name in TRACEPOINTS.into_iter().map(String::from).chain(optional) {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
    }
}
