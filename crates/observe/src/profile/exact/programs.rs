use super::reading::{CALIBRATION, ExactReading};
use crate::bpf::members::Members;
use crate::bpf::types::exact::{Cpu, Gate, Options};
use crate::bpf::types::profile::Target;
use crate::bpf::types::value_of;
use crate::bpf::{self, Refusal};
use crate::namespace::needs_hosts_process_ids;
use crate::processes::Process;
use crate::profile::error::ProfileError;
use crate::profile::sampler;
use crate::profile::symbols::KernelFunction;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, OpenObject, ProgramInput};
use record::boundaries::Boundary;
use record::profile::PacketCounts;
use record::profile::exact::Unhooked;
use std::collections::HashMap;

pub const SLOTS: usize = 96;
/// Lines of libbpf's and the verifier's last messages in an error.
const LOG_LINES: usize = 3;

/// Kernel functions that do nothing, made for testing programs (net/bpf/test_run.c).
const EMPTY_FUNCTIONS: [&str; 4] = ["bpf_fentry_test1", "bpf_fentry_test2", "bpf_fentry_test3", "bpf_fentry_test4"];

/// Programs for tracepoints of every kernel, in order of attachment: exits before entries, so that every entry has an
/// exit.
pub const TRACEPOINTS: [&str; 13] = [
    "process_forked",
    "process_executed",
    "process_ended",
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
/// Programs for tracepoints that depend on the processor, with the BTF type of each.
pub const OPTIONAL: [(&str, &str); 5] = [
    ("local_timer", "btf_trace_local_timer_entry"),
    ("call_function", "btf_trace_call_function_entry"),
    ("call_function_single", "btf_trace_call_function_single_entry"),
    ("reschedule", "btf_trace_reschedule_entry"),
    ("irq_work", "btf_trace_irq_work_entry"),
];

/// Links are dropped before their object.
#[derive(Debug)]
pub struct ExactPrograms {
    functions: Vec<Link>,
    tracepoints: Vec<Link>,
    optional: Vec<&'static str>,
    object: Object,
    slots: Vec<Boundary>,
    is_hooked: Vec<bool>,
    /// Boundaries without programs.
    pub unhooked: Vec<Unhooked>,
    empty_slots: Vec<usize>,
    empty_hooked: usize,
    members: Members,
}

impl ExactPrograms {
    fn new(object: Object, slots: Vec<Boundary>) -> Self {
        ExactPrograms {
            functions: Vec::new(),
            tracepoints: Vec::new(),
            optional: Vec::new(),
            object,
            empty_slots: (slots.len()..slots.len() + EMPTY_FUNCTIONS.len()).collect(),
            slots,
            is_hooked: Vec::new(),
            unhooked: Vec::new(),
            empty_hooked: 0,
            members: Members::default(),
        }
    }

    /// Loads a pair for every boundary function of this kernel, for the server's port in its network namespace.
    pub fn load(
        boundaries: &[Boundary],
        functions: &[KernelFunction],
        port: u16,
        netns_inode: u32,
    ) -> Result<Self, ProfileError> {
        needs_hosts_process_ids()?;
        let btf = Btf::from_vmlinux().map_err(|error| ProfileError::ExactNotPossible(error.to_string()))?;
        let known: HashMap<&str, Option<&str>> =
            functions.iter().map(|function| (function.name.as_str(), function.module.as_deref())).collect();
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
        // The kernel may refuse a function (inlined, too many arguments, not traceable). The loader names the
        // program, and the others are loaded without it.
        loop {
            match load_once(&wanted, Some(&optional), port, netns_inode) {
                Ok(object) => {
                    return Ok(ExactPrograms { optional, unhooked, ..ExactPrograms::new(object, wanted) });
                }
                Err(why) => match why.program().and_then(slot_of).filter(|slot| *slot < wanted.len()) {
                    Some(slot) => {
                        let boundary = wanted.remove(slot);
                        let why = format!("the kernel refused it: {why}");
                        unhooked.push(Unhooked { function: boundary.function, why, is_needed: boundary.is_needed });
                    }
                    None => return Err(refusal(why)),
                },
            }
        }
    }

    pub fn hooked(&self) -> Vec<String> {
        let slots = self.slots.iter().zip(&self.is_hooked);
        slots.filter(|(_, is_hooked)| **is_hooked).map(|(boundary, _)| boundary.function.clone()).collect()
    }

    pub fn attach_tracepoints(&mut self) -> Result<(), ProfileError> {
        let optional: Vec<String> =
            self.optional.iter().flat_map(|name| [format!("{name}_ends"), format!("{name}_begins")]).collect();
        let names = TRACEPOINTS.into_iter().chain(optional.iter().map(String::as_str)).chain(["packet_queued"]);
        for name in names {
            self.tracepoints.push(bpf::attach(&self.object, name).map_err(refusal)?);
        }
        Ok(())
    }

    /// Hooks the boundary functions. A function that the kernel refuses now is left out, like those that it refused
    /// to load.
    pub fn attach_functions(&mut self) -> Result<(), ProfileError> {
        let mut refused = None;
        self.is_hooked.clear();
        for slot in 0..self.slots.len() {
            // The function that it replaces comes earlier in the table.
            let first = self.slots[slot].instead_of.as_deref();
            let mut hooked = self.slots.iter().zip(&self.is_hooked).filter(|(_, is_hooked)| **is_hooked);
            if first.is_some_and(|first| hooked.any(|(boundary, _)| boundary.function == first)) {
                self.is_hooked.push(false);
                continue;
            }
            let outcome = self.attach_slot(slot);
            self.is_hooked.push(outcome.is_ok());
            if let Err(error) = outcome {
                let (why, boundary) = (format!("the kernel refused it: {:#}", error.error), &self.slots[slot]);
                self.unhooked.push(Unhooked {
                    function: boundary.function.clone(),
                    why,
                    is_needed: boundary.is_needed,
                });
                refused = Some(error);
            }
        }
        match refused {
            Some(error) if !self.is_hooked.contains(&true) => Err(refusal(error)),
            _ => Ok(()),
        }
    }

    pub fn attach_empty_functions(&mut self, count: usize) -> Result<(), ProfileError> {
        for slot in self.empty_slots.clone().into_iter().skip(self.empty_hooked).take(count) {
            self.empty_hooked += 1;
            self.attach_slot(slot).map_err(refusal)?;
        }
        Ok(())
    }

    fn attach_slot(&mut self, slot: usize) -> Result<(), Refusal> {
        let end = bpf::attach(&self.object, &leave_name(slot))?;
        let begin = bpf::attach(&self.object, &enter_name(slot))?;
        self.functions.extend([begin, end]);
        Ok(())
    }

    pub fn call_empty_functions(&self) -> Result<(), ProfileError> {
        let slot = self.empty_slots.first().copied().unwrap_or(SLOTS);
        let program = bpf::program(&self.object, &enter_name(slot))?;
        program.test_run(ProgramInput::default()).map(|_| ()).map_err(|error| refusal(error.into()))
    }

    /// Sets the server's processes; the programs follow their forks.
    pub fn set_members(&mut self, processes: &[Process]) -> Result<(), ProfileError> {
        self.members.update(&self.object, processes).map_err(refusal)
    }

    pub fn set_gate(&self, opens_ns: u64, closes_ns: u64) -> Result<(), ProfileError> {
        bpf::set_variable(&self.object, ".bss.gate", &Gate { opens_ns, closes_ns }).map_err(refusal)
    }

    /// The counts so far, including the uncharged time of a window that has ended.
    pub fn read(&self, opens_ns: u64, closes_ns: u64) -> Result<ExactReading, ProfileError> {
        let map = bpf::map(&self.object, "cpus")?;
        let cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| refusal(error.into()))?;
        let mut reading = ExactReading::empty();
        // The map has a value for each possible CPU, and an offline one would count as sleeping.
        let (cpus, online) = (cpus.unwrap_or_default(), record::machine::online_cpu_numbers());
        for cpu in online.iter().filter_map(|at| value_of::<Cpu>(cpus.get(*at)?)) {
            reading.add_cpu(&cpu, opens_ns, closes_ns);
        }
        Ok(reading)
    }

    pub fn packets(&self) -> Result<PacketCounts, ProfileError> {
        Ok(sampler::rows(&self.object).map_err(refusal)?.0)
    }
}

/// Tries a pair of programs on an empty kernel function.
pub fn try_out() -> Result<(), ProfileError> {
    needs_hosts_process_ids()?;
    let object = load_once(&[], None, 0, 0).map_err(refusal)?;
    ExactPrograms::new(object, Vec::new()).attach_empty_functions(1)
}

/// Why an exact profile is not possible on this machine, if so.
pub fn why_not_possible() -> Option<String> {
    try_out().err().map(|error| match error {
        ProfileError::ExactNotPossible(why) => why.replace('\n', " "),
        other => other.to_string(),
    })
}

/// `optional`: the programs of [`OPTIONAL`] to load; `None`: no programs of tracepoints at all.
fn load_once(wanted: &[Boundary], optional: Option<&[&str]>, port: u16, netns: u32) -> Result<Object, Refusal> {
    bpf::load(bpf::EXACT, |open| prepare(open, wanted, optional, port, netns))
}

fn prepare(
    open: &mut OpenObject,
    wanted: &[Boundary],
    optional: Option<&[&str]>,
    port: u16,
    netns: u32,
) -> Result<(), libbpf_rs::Error> {
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
            continue;
        }
        let section = name.strip_suffix("_begins").or(name.strip_suffix("_ends")).unwrap_or_default();
        let is_optional = OPTIONAL.iter().any(|(known, _)| *known == section);
        program.set_autoload(optional.is_some_and(|present| !is_optional || present.contains(&section)));
    }
    let mut options = Options { tool_tgid: std::process::id(), ..Options::default() };
    let slots: [_; SLOTS] = std::array::from_fn(|slot| match wanted.get(slot) {
        Some(boundary) => (boundary.layer as u8, u8::from(boundary.is_packets)),
        None if slot < functions.len() => (CALIBRATION, 0),
        None => (0, 0),
    });
    (options.layer, options.is_network) = (slots.map(|slot| slot.0), slots.map(|slot| slot.1));
    bpf::set_constants(open, ".rodata.options", &options)?;
    bpf::set_constants(open, ".rodata.target", &Target { port: port.into(), netns, period_ns: 0 })
}

fn slot_of(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("enter_").or(name.strip_prefix("leave_"))?;
    usize::from_str_radix(digits, 8).ok()
}

pub fn enter_name(slot: usize) -> String {
    format!("enter_0{slot:02o}")
}

pub fn leave_name(slot: usize) -> String {
    format!("leave_0{slot:02o}")
}

fn refusal(why: Refusal) -> ProfileError {
    if why.error.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() {
        return ProfileError::NotPermitted;
    }
    // libbpf suspects a memory limit; only the error number shows a forbidden operation.
    let is_forbidden = why.to_string().contains("(os error 1)");
    let tail = if is_forbidden { String::new() } else { why.last_words(LOG_LINES) };
    let (open, close) = if tail.is_empty() { ("", "") } else { (" (", ")") };
    ProfileError::ExactNotPossible(format!(
        "the kernel refuses programs at the entry and exit of its functions (fentry, fexit): {why}{open}{tail}{close}"
    ))
}
