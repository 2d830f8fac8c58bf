use super::arrivals;
use super::attribute::{AttributedStack, attribute, coverage, of_server};
use super::error::ProfileError;
use super::events::{EventKind, HARDWARE_EVENTS};
use super::groups::FunctionGroup;
use super::names::SymbolNames;
use super::result::{self, Denominators};
use super::sampler::StackSampler;
use super::samples::{BLOCKS, Interrupts};
use super::symbols;
use crate::account::Accountant;
use crate::group::ServerGroup;
use crate::listening::{ServerProcess, server_on_port};
use crate::machine::{CpuUse, MachineReader, MachineReading};
use crate::namespace::namespace_number;
use crate::processes::ProcessTable;
use record::layers::{Layer, LayerRule};
use record::profile::{CpuCheck, EventRow, Losses, PacketCounts, Profile, Stacks};
use record::{Doubt, DoubtKind};
use std::time::{Duration, Instant};

/// Minimum share of kernel samples that the layer rule must assign.
const COVERAGE_WANTED: f64 = 0.98;
/// With fewer samples, the period is a better estimate of a sample's length.
const LEAST_FOR_SCALE: u64 = 200;

/// The settings of a profile.
#[derive(Debug, Clone)]
pub struct ProfileOptions {
    /// The server's port.
    pub port: u16,
    /// A process in whose network namespace the server listens; `None` = the caller's.
    pub netns_pid: Option<u32>,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Length of the window, which is divided into tenths for the intervals.
    pub duration: Duration,
    /// Groups of functions to add up.
    pub groups: Vec<FunctionGroup>,
    /// Events other than the CPU clock, if the machine has them.
    pub events: Vec<EventKind>,
}

impl ProfileOptions {
    /// Default options for a port: 10 s at 997 Hz with all hardware events.
    pub fn new(port: u16) -> Self {
        ProfileOptions {
            port,
            netns_pid: None,
            frequency_hz: 997,
            duration: Duration::from_secs(10),
            groups: Vec::new(),
            events: HARDWARE_EVENTS.to_vec(),
        }
    }
}

/// An attached profiler, which opens and closes successive windows. Only attaching takes long.
#[derive(Debug)]
pub struct Profiler {
    options: ProfileOptions,
    server: ServerProcess,
    sampler: StackSampler,
    group: ServerGroup,
    table: ProcessTable,
    machine: MachineReader,
    window: Option<OpenWindow>,
}

#[derive(Debug)]
struct OpenWindow {
    opened: Instant,
    started_unix_ms: u64,
    block: u32,
    cpu_before_ns: u64,
    machine_before: MachineReading,
    losses_before: Losses,
    interrupts_before: Interrupts,
    edges: Vec<PacketCounts>,
}

impl Profiler {
    /// Finds the server and attaches. Counting begins with [`begin`](Self::begin).
    pub fn attach(options: ProfileOptions) -> Result<Self, ProfileError> {
        let server =
            server_on_port(options.port, options.netns_pid)?.ok_or(ProfileError::NoServer { port: options.port })?;
        check_patterns(&options.groups)?;
        let netns = namespace_number(Some(server.pid));
        let sampler = StackSampler::attach(options.port, netns, options.frequency_hz, &options.events)?;
        let mut profiler = Profiler {
            group: ServerGroup::new(server.sharing.iter().copied(), None),
            options,
            server,
            sampler,
            table: ProcessTable::default(),
            machine: MachineReader::open()?,
            window: None,
        };
        profiler.admit()?;
        Ok(profiler)
    }

    /// Opens a window at once, because slow preparations were made at the end of the last one. Drops an open window.
    pub fn begin(&mut self) -> Result<(), ProfileError> {
        if self.window.take().is_some() {
            self.sampler.set_gate(false, 0)?;
            self.sampler.forget()?;
        }
        let machine_before = self.machine.read()?;
        self.group.read();
        let (packets, losses_before, interrupts_before) = self.sampler.rows()?;
        let cpu_before_ns = self.group.counters().cpu_ns;
        self.sampler.set_gate(true, 0)?;
        let opened = Instant::now();
        let edges = vec![packets];
        self.window = Some(OpenWindow {
            opened,
            started_unix_ms: record::time::unix_ms(),
            block: 0,
            cpu_before_ns,
            machine_before,
            losses_before,
            interrupts_before,
            edges,
        });
        Ok(())
    }

    /// Finds new processes, and begins the next tenth when it is due. If intervals are needed, call it ten times per
    /// window. Children of known processes are followed in any case.
    pub fn tick(&mut self) -> Result<(), ProfileError> {
        let tenth = self.options.duration / BLOCKS;
        let Some(mut window) = self.window.take() else { return Ok(()) };
        while window.block + 1 < BLOCKS && window.opened.elapsed() >= tenth * (window.block + 1) {
            window.block += 1;
            self.sampler.set_gate(true, window.block)?;
            window.edges.push(self.sampler.rows()?.0);
            self.admit()?;
            self.group.read();
        }
        self.window = Some(window);
        Ok(())
    }

    /// Whether the window should end.
    pub fn is_due(&self) -> bool {
        self.window.as_ref().is_none_or(|window| window.opened.elapsed() >= self.options.duration)
    }

    fn admit(&mut self) -> Result<(), ProfileError> {
        self.table.scan();
        self.group.admit(&self.table);
        self.sampler.set_members(&self.group.processes())
    }

    /// Ends the window and returns its result. `requests`: number completed by the server in it, if known.
    pub fn end(&mut self, requests: Option<u64>) -> Result<Profile, ProfileError> {
        let Some(mut window) = self.window.take() else { return Err(ProfileError::NoSamples { seconds: 0.0 }) };
        self.sampler.set_gate(false, window.block)?;
        let duration = window.opened.elapsed();
        let (duration_ns, cpus) = (duration.as_nanos() as u64, record::machine::online_cpus());
        self.group.read();
        let scheduler_ns = self.group.counters().cpu_ns.saturating_sub(window.cpu_before_ns) as f64;
        let machine = self.machine.read()?;
        let used = CpuUse::between(&window.machine_before, &machine, |_| true);
        let (packets_now, _, interrupts) = self.sampler.rows()?;
        window.edges.push(packets_now);
        let counters: Vec<(u64, f64)> = self.sampler.events.iter().map(|event| event.read()).collect();
        let mut raw = self.sampler.read()?;
        raw.losses = raw.losses.since(&window.losses_before);
        self.sampler.forget()?;
        self.admit()?;
        let rule = LayerRule::built_in();
        let mut names = SymbolNames::new(Some(&self.sampler.object));
        let stacks = attribute(&raw, &mut names, rule);
        let samples = result::sums(&stacks);
        if samples.in_server() + samples.server() == 0 {
            return Err(ProfileError::NoSamples { seconds: duration.as_secs_f64() });
        }
        let period_ns = self.sampler.events[0].kind.period;
        let events = self.event_rows(&stacks, &counters);
        let (by, packets) = denominators(&window.edges, requests);
        let command_of = |pid: u32| {
            let living = self.table.get(pid).filter(|_| raw.living.contains(&pid));
            living.map_or_else(|| self.server.command.clone(), |origin| origin.command.clone())
        };
        let recorded = super::stacks::recorded(&stacks, &command_of, &events);
        let sampled_ns = samples.in_server() as f64 * period_ns as f64;
        let is_scaled = samples.in_server() >= LEAST_FOR_SCALE && scheduler_ns > 0.0;
        let sample_ns = if is_scaled { scheduler_ns / samples.in_server() as f64 } else { period_ns as f64 };
        let mut profile = Profile {
            method: "sampled",
            clock: self.sampler.events[0].kind.name,
            period_ns,
            sample_ns,
            duration_ns,
            port: self.options.port,
            pid: self.server.pid,
            command: self.server.command.clone(),
            cpus,
            layers: result::layer_rows(&stacks, sample_ns, &by, &events),
            functions: result::function_rows(&stacks, &samples),
            groups: result::group_rows(&stacks, &self.options.groups, sample_ns, &by),
            unattributed_top: result::unattributed_top(&stacks),
            requests: requests.unwrap_or(packets.data_packets[0]),
            requests_are_counted: requests.is_some(),
            packets,
            cpu_check: CpuCheck {
                sampled_ns,
                scheduler_ns,
                difference_ratio: (scheduler_ns > 0.0).then(|| sampled_ns / scheduler_ns - 1.0),
                steal_ratio: used.share(used.times.steal),
                arrivals: arrivals::arrivals(
                    &interrupts.since(&window.interrupts_before),
                    duration_ns,
                    cpus,
                    period_ns,
                ),
            },
            coverage: coverage(stacks.iter().filter(|stack| stack.event == 0), rule),
            events,
            losses: raw.losses,
            account: None,
            doubts: Vec::new(),
            samples,
            stacks: Stacks {
                started_unix_ms: window.started_unix_ms,
                duration_ns,
                clock: self.sampler.events[0].kind.name.into(),
                period_ns,
                ..recorded
            },
        };
        profile.doubts = doubts(&profile, &stacks, &self.options.groups);
        if self.group.size().processes == 0 {
            let what = "the server ended while it was profiled: the profile covers only the time before, and its rates \
                        are too low";
            profile
                .doubts
                .insert(0, DoubtKind::NotWatched.warning(what, "restart the server, and profile it while it runs"));
        }
        Ok(profile)
    }

    fn event_rows(&self, stacks: &[AttributedStack], counters: &[(u64, f64)]) -> Vec<EventRow> {
        let states = self.sampler.events.iter().enumerate().skip(1);
        states
            .map(|(number, state)| EventRow {
                event: state.kind.name.to_string(),
                period: state.kind.period,
                samples: of_server(stacks, number as u8).map(AttributedStack::count).sum(),
                counter_ran_ratio: counters.get(number).map_or(1.0, |(_, ran)| *ran),
                not_measured: state.missing.clone(),
            })
            .collect()
    }
}

/// Packets and requests by tenth. Requests counted by the caller are spread like packets with payload.
fn denominators(edges: &[PacketCounts], requests: Option<u64>) -> (Denominators, PacketCounts) {
    let mut by = Denominators { packets: [0.0; BLOCKS as usize], requests: [0.0; BLOCKS as usize] };
    for (index, edges) in edges.windows(2).enumerate().take(BLOCKS as usize) {
        let packets = edges[1].since(&edges[0]);
        by.packets[index] = packets.total() as f64;
        by.requests[index] = packets.data_packets[0] as f64;
    }
    let whole = match edges {
        [first, .., last] => last.since(first),
        _ => PacketCounts::default(),
    };
    if let Some(requests) = requests {
        let seen: f64 = by.requests.iter().sum();
        let even = requests as f64 / f64::from(BLOCKS);
        by.requests = by.requests.map(|part| if seen > 0.0 { part * requests as f64 / seen } else { even });
    }
    (by, whole)
}

/// Profiles for the whole window, or until `is_stopped`. Also keeps the account of the server's threads.
pub fn run(options: ProfileOptions, is_stopped: &dyn Fn() -> bool) -> Result<Profile, ProfileError> {
    let mut accountant = Accountant::start(options.port).ok();
    let mut profiler = Profiler::attach(options)?;
    profiler.begin()?;
    let begins = |accountant: &mut Accountant| {
        accountant.expect(profiler.options.duration);
        accountant.begin(&profiler.group.processes())
    };
    if accountant.as_mut().is_some_and(|accountant| begins(accountant).is_err()) {
        accountant = None;
    }
    let step = (profiler.options.duration / BLOCKS).min(Duration::from_millis(20));
    while !profiler.is_due() && !is_stopped() {
        std::thread::sleep(step);
        profiler.tick()?;
    }
    let processes = profiler.group.processes();
    let account = accountant.and_then(|mut accountant| accountant.end(&processes, &profiler.table).ok());
    Ok(Profile { account, ..profiler.end(None)? })
}

/// Reports at once a kernel pattern that matches no function.
fn check_patterns(groups: &[FunctionGroup]) -> Result<(), ProfileError> {
    let all = groups.iter().flat_map(|group| group.patterns.iter().map(move |pattern| (group, pattern)));
    let patterns: Vec<_> = all.filter(|(_, pattern)| !pattern.is_user()).collect();
    if patterns.is_empty() {
        return Ok(());
    }
    let functions = symbols::functions().map_err(ProfileError::Symbols)?;
    match patterns.iter().find(|(_, pattern)| !functions.iter().any(|one| pattern.matches(&one.name, false))) {
        Some((group, pattern)) => {
            Err(ProfileError::UnknownPattern { group: group.name.clone(), pattern: pattern.to_string() })
        }
        None => Ok(()),
    }
}

fn doubts(profile: &Profile, stacks: &[AttributedStack], groups: &[FunctionGroup]) -> Vec<Doubt> {
    let mut doubts =
        Vec::from_iter(arrivals::doubt(&profile.cpu_check, profile.samples.in_server(), profile.period_ns));
    if profile.packets.total() == 0 {
        let what = format!("no packet of port {} was seen, so there are no costs per packet", profile.port);
        doubts.push(DoubtKind::NotWatched.warning(
            what,
            "put load on the server while it is profiled; name a server in another network namespace with --netns-of",
        ));
    }
    let coverage = &profile.coverage;
    let covered = coverage.attributed as f64 / coverage.kernel_samples.max(1) as f64;
    if coverage.kernel_samples > 0 && covered < COVERAGE_WANTED {
        let tops: Vec<&str> = profile.unattributed_top.iter().take(3).map(|(name, _)| name.as_str()).collect();
        let what = format!(
            "{:.1} % of the kernel's samples have no layer (mostly {})",
            (1.0 - covered) * 100.0,
            tops.join(", ")
        );
        doubts.push(DoubtKind::NotWatched.warning(what, "report the functions, so that the layer table can name them"));
    }
    if profile.samples.server() < 1000 {
        let what = format!("only {} samples fell on the server", profile.samples.server());
        doubts.push(DoubtKind::TooFewSamples.warning(what, "profile for longer, or under more load"));
    }
    if profile.losses.processes > 0 {
        let what = format!(
            "{} of the server's processes had no place in the table: their samples count as those of others",
            profile.losses.processes
        );
        doubts.push(DoubtKind::LostEvents.warning(what, "profile the server with fewer processes at once"));
    }
    if profile.losses.stacks + profile.losses.samples > 0 {
        let what = format!(
            "{} samples lost their stack and {} were lost, because the tables were full",
            profile.losses.stacks, profile.losses.samples
        );
        doubts.push(DoubtKind::LostEvents.warning(what, "profile for less time at once"));
    }
    if profile.clock == "cpu-clock" {
        let what = "the CPU clock cannot interrupt code that runs with interrupts off: its time is charged to the \
                    place where interrupts are enabled again, so Driver and lock holders appear too small";
        doubts.push(DoubtKind::NotWatched.note(what, "use a machine whose hardware counters are visible"));
    }
    for group in groups {
        let is_seen = |pattern: &super::groups::FunctionPattern| {
            stacks
                .iter()
                .flat_map(|stack| &stack.frames)
                .any(|frame| pattern.matches(&frame.function, !frame.is_kernel))
        };
        for pattern in group.patterns.iter().filter(|pattern| pattern.is_user() && !is_seen(pattern)) {
            let what = format!("group '{}': no sampled function of the server matches '{pattern}'", group.name);
            doubts.push(
                DoubtKind::NotWatched
                    .warning(what, "check the spelling; a stripped program shows only its exported functions"),
            );
        }
    }
    if profile.layer(Some(Layer::User)).is_none_or(|row| row.samples == 0)
        && profile.samples.server_in_own_process > 100
    {
        doubts.push(DoubtKind::NotWatched.note(
            "no sample fell into user mode",
            "no action needed if the server computes \
                little",
        ));
    }
    doubts
}
