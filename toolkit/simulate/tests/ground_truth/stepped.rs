//! The truth: each instruction of the counted window, stepped by the debugger, and the function that it works for
//! according to its stack.

use crate::frames::{Frame, Frames};
use crate::gdb::{Gdb, Registers, Step};
use simulate::SimulateError;
use simulate::attribution::{MARK_BASE, Role};
use simulate::exchange::{Symbol, mark};
use simulate::kernel_types::{Btf, Variables};
use simulate::machine::Saved;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::net::UnixStream;

/// The server reads its interface's counters before the window begins.
const BEFORE_WINDOW: &str = "dev_seq_show";
/// After this many steps the clock jumps to its next timer, so that interrupts hit arbitrary code. The number is odd,
/// and no multiple of a loop.
const INTERRUPT_AFTER: u64 = 7919;
const PAGE: u64 = 4096;
const STACK_SHIFT: u32 = 14;
/// Where the kernel maps the stacks of threads and of interrupts.
const STACKS: std::ops::Range<u64> = 0xffff_c900_0000_0000..0xffff_e900_0000_0000;
const MOST_TASKS: usize = 10_000;
/// Maximum length of an instruction.
const LONGEST: u64 = 15;
const DEEPEST: usize = 200;
const HALT: u8 = 0xf4;

/// Counts according to the stack. Each element of a repeated string instruction counts.
#[derive(Debug, Default)]
pub struct Truth {
    /// Instructions of the server's end by function (index plus 1; 0 is user code) and row.
    pub instructions: BTreeMap<(u32, u8), u64>,
    /// Instructions of the client's end; a repeated string instruction counts once, whatever its elements.
    pub client: u64,
    /// Interrupts that came between two instructions of the kernel.
    pub interrupts: u64,
    /// Functions to which another function jumped.
    pub tail_calls: u64,
}

/// Rows that are not layers.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    pub unattributed: u8,
    pub user: u8,
}

/// Where the kernel keeps the data that distinguishes the ends.
struct Tasks {
    current: u64,
    first: u64,
    all: u64,
    signal: u64,
    threads: u64,
    thread: u64,
    stack: u64,
    name: u64,
    namespaces: u64,
    network: u64,
    init_network: u64,
}

struct Stepping<'s> {
    gdb: Gdb,
    frames: Frames,
    symbols: &'s [Symbol],
    interrupt_entries: Vec<u64>,
    rows: Rows,
    tasks: Tasks,
    server_network: u64,
    is_client_by_stack: HashMap<u64, bool>,
    is_client: bool,
    was_user: bool,
    /// For each address, whether the instruction there waits for an interrupt, and its mark.
    code: HashMap<u64, (bool, Option<u16>)>,
    /// Functions that jumped on, in order, by the start of their frame.
    jumped: HashMap<u64, Vec<u32>>,
    truth: Truth,
}

fn missing(what: &str) -> SimulateError {
    SimulateError::Guest(format!("the guest's kernel does not show its {what}"))
}

/// Data that is known before the machine runs.
pub struct Facts {
    variables: Variables,
    types: Btf,
    symbols: Vec<Symbol>,
    before_window: u64,
    interrupt_entries: Vec<u64>,
    rows: Rows,
}

impl Facts {
    /// The data of a booted machine; `None` if its kernel lacks a function.
    pub fn of(saved: &Saved, types: Btf, symbols: Vec<Symbol>, rows: Rows) -> Option<Facts> {
        let functions = &saved.functions.functions;
        let before_window = functions.iter().find(|function| function.name == BEFORE_WINDOW)?.address;
        let is_entry = |name: &str| name.starts_with("asm_sysvec_") || name == "irq_entries_start";
        let entries = functions.iter().filter(|function| is_entry(&function.name));
        let interrupt_entries = entries.map(|function| function.address).collect();
        let variables = saved.variables.clone();
        Some(Facts { variables, types, symbols, before_window, interrupt_entries, rows })
    }
}

/// Steps through the window of a machine that is stopped before its job.
pub fn step(socket: UnixStream, facts: &Facts) -> Result<Truth, SimulateError> {
    let mut gdb = Gdb::new(socket)?;
    let frames = Frames::read(&mut gdb, &facts.variables, &facts.types)?;
    let field = |structure: &str, name: &str| facts.types.offset(structure, name).ok_or_else(|| missing(name));
    let variable = |name: &str| facts.variables.address(name).ok_or_else(|| missing(name));
    let of_first_cpu = gdb.word(variable("pcpu_base_addr")?)?.ok_or_else(|| missing("CPU"))?;
    let current = facts.variables.per_cpu("current_task").ok_or_else(|| missing("current_task"))?;
    let tasks = Tasks {
        current: of_first_cpu.wrapping_add(current),
        first: variable("init_task")?,
        all: field("task_struct", "tasks")?,
        signal: field("task_struct", "signal")?,
        threads: field("signal_struct", "thread_head")?,
        thread: field("task_struct", "thread_node")?,
        stack: field("task_struct", "stack")?,
        name: field("task_struct", "comm")?,
        namespaces: field("task_struct", "nsproxy")?,
        network: field("nsproxy", "net_ns")?,
        init_network: variable("init_net")?,
    };
    gdb.stop_at(facts.before_window)?;
    gdb.go_on()?;
    gdb.pass(facts.before_window)?;
    let current = gdb.word(tasks.current)?.unwrap_or(0);
    let memory = gdb.word(current + field("task_struct", "mm")?)?.unwrap_or(0);
    let code =
        gdb.word(memory + field("mm_struct", "start_code")?)?.zip(gdb.word(memory + field("mm_struct", "end_code")?)?);
    let (start, end) = code.ok_or_else(|| missing("program"))?;
    let begins = places_of(&mut gdb, start..end, mark::BEGIN)?;
    for place in &begins {
        gdb.stop_at(*place)?;
    }
    gdb.go_on()?;
    for place in &begins {
        gdb.pass(*place)?;
    }
    let mut stepping = Stepping {
        gdb,
        frames,
        symbols: &facts.symbols,
        interrupt_entries: facts.interrupt_entries.clone(),
        rows: facts.rows,
        tasks,
        server_network: 0,
        is_client_by_stack: HashMap::new(),
        is_client: false,
        was_user: false,
        code: HashMap::new(),
        jumped: HashMap::new(),
        truth: Truth::default(),
    };
    stepping.window()?;
    stepping.gdb.let_go()?;
    Ok(stepping.truth)
}

/// Address of a mark's instruction in a program. Parts that the program has not touched yet are not mapped.
fn places_of(gdb: &mut Gdb, code: std::ops::Range<u64>, number: u16) -> Result<Vec<u64>, SimulateError> {
    let mark = [&[0x0f, 0x1f, 0x84, 0][..], &(MARK_BASE + u32::from(number)).to_le_bytes()].concat();
    let mut places = Vec::new();
    let mut start = code.start & !(PAGE - 1);
    while start < code.end {
        let page = gdb.read(start, PAGE)?.unwrap_or_default();
        let found = page.windows(mark.len()).enumerate().filter(|(_, bytes)| *bytes == mark);
        places.extend(found.map(|(at, _)| start + at as u64));
        start += PAGE;
    }
    if places.is_empty() { Err(missing("window's begin")) } else { Ok(places) }
}

impl Stepping<'_> {
    /// Steps from the window's first mark to its last.
    fn window(&mut self) -> Result<(), SimulateError> {
        let mut here = self.gdb.registers()?;
        let (mut is_counting, mut steps, mut stayed_at) = (false, 0_u64, 0);
        loop {
            let (is_halt, mark) = self.code_at(&here)?;
            if mark == Some(mark::BEGIN) {
                // The thread that begins the window belongs to the server.
                let current = self.current()?;
                self.server_network = self.network(current)?;
                self.learn_stacks()?;
            }
            let judged = if is_counting { Some(self.judge(&here)?) } else { None };
            steps += 1;
            self.gdb.step(match mark {
                Some(_) => Step::WithoutInterrupt,
                None if is_halt || steps % INTERRUPT_AFTER == 0 => Step::ToNextTimer,
                None => Step::Plain,
            })?;
            let next = self.gdb.registers()?;
            // An interrupt came first. The instruction here has not run, unless it waited for that interrupt.
            let has_run = is_halt || !self.interrupt_entries.contains(&next.ip());
            // Up to QEMU 9 a repeated string instruction ends with an additional step without an element.
            let is_further = here.ip() == stayed_at;
            let is_after_last = is_further && here.get(Registers::CX) == 0;
            stayed_at = if has_run && next.ip() == here.ip() { here.ip() } else { 0 };
            match judged {
                _ if is_after_last => {}
                Some(Some(place)) if has_run => {
                    *self.truth.instructions.entry(place).or_default() += 1;
                }
                Some(None) if has_run => self.truth.client += u64::from(!is_further),
                Some(_) if !has_run && here.is_kernel() => self.truth.interrupts += 1,
                _ => {}
            }
            if has_run {
                self.follow(&here, &next)?;
            }
            is_counting |= mark == Some(mark::BEGIN);
            if mark == Some(mark::END) {
                return Ok(());
            }
            here = next;
        }
    }

    /// Whether the instruction waits for an interrupt, and which mark it is. Code does not change during this time.
    fn code_at(&mut self, here: &Registers) -> Result<(bool, Option<u16>), SimulateError> {
        if let Some(known) = self.code.get(&here.ip()) {
            return Ok(*known);
        }
        let word = self.gdb.word(here.ip())?.unwrap_or(0);
        let displacement = (word >> 32) as u32;
        let is_mark = word as u32 == 0x0084_1f0f && displacement & 0xffff_0000 == MARK_BASE;
        let is_halt = here.is_kernel() && word as u8 == HALT;
        let found = (is_halt, (is_mark && !here.is_kernel()).then_some(displacement as u16));
        self.code.insert(here.ip(), found);
        Ok(found)
    }

    fn function_at(&self, address: u64) -> u32 {
        self.symbols.partition_point(|symbol| symbol.address <= address) as u32
    }

    fn named(&self, function: u32) -> Option<u8> {
        match self.symbols.get((function as usize).checked_sub(1)?)?.role {
            Role::Names(row) => Some(row),
            Role::Helps => None,
        }
    }

    /// Function and row of the server's instruction that is about to run; `None` if it belongs to the client.
    fn judge(&mut self, here: &Registers) -> Result<Option<(u32, u8)>, SimulateError> {
        if here.is_kernel() {
            self.is_client = self.is_on_a_clients_stack(here.sp())?;
        } else if !self.was_user {
            let task = self.current()?;
            self.is_client = self.is_clients(task)?;
        }
        self.was_user = !here.is_kernel();
        if self.is_client {
            return Ok(None);
        }
        if !here.is_kernel() {
            return Ok(Some((0, self.rows.user)));
        }
        Ok(Some((self.function_at(here.ip()), self.row(here)?)))
    }

    /// The innermost function that names a row, among those whose frames are on the stack and those that jumped on
    /// from there.
    fn row(&mut self, here: &Registers) -> Result<u8, SimulateError> {
        let mut frame = Frame::innermost(*here);
        for _ in 0..DEEPEST {
            if let Some(row) = self.named(self.function_at(frame.within())) {
                return Ok(row);
            }
            let Some(caller) = self.frames.caller(&frame, &mut self.gdb)? else { break };
            let jumped = self.jumped.get(&caller.canonical).into_iter().flatten().rev();
            if let Some(row) = jumped.filter_map(|function| self.named(*function)).next() {
                return Ok(row);
            }
            frame = caller;
            if frame.ip >> 63 == 0 {
                break;
            }
        }
        Ok(self.rows.unattributed)
    }

    /// The effect of the step from one instruction to the next on the frames.
    fn follow(&mut self, from: &Registers, to: &Registers) -> Result<(), SimulateError> {
        if !from.is_kernel() || !to.is_kernel() {
            return Ok(());
        }
        let (left, entered) = (self.function_at(from.ip()), self.function_at(to.ip()));
        if to.sp() == from.sp().wrapping_sub(8) && self.symbols[entered as usize - 1].address == to.ip() {
            let returns_to = self.gdb.word(to.sp())?.unwrap_or(0);
            if (1..=LONGEST).contains(&returns_to.wrapping_sub(from.ip())) {
                self.jumped.remove(&to.sp().wrapping_add(8));
                return Ok(());
            }
        }
        let goes_on = (1..=LONGEST).contains(&to.ip().wrapping_sub(from.ip()));
        if left != entered && (to.sp() == from.sp() || goes_on) {
            // It is neither a call nor a return, which move the stack pointer, so it is a jump.
            if let Some(caller) = self.frames.caller(&Frame::innermost(*to), &mut self.gdb)? {
                let jumped = self.jumped.entry(caller.canonical).or_default();
                if jumped.last() != Some(&left) {
                    jumped.push(left);
                }
                self.truth.tail_calls += 1;
            }
        }
        Ok(())
    }

    fn word(&mut self, address: u64) -> Result<u64, SimulateError> {
        self.gdb.word(address)?.ok_or_else(|| missing("tasks"))
    }

    fn current(&mut self) -> Result<u64, SimulateError> {
        self.word(self.tasks.current)
    }

    fn network(&mut self, task: u64) -> Result<u64, SimulateError> {
        match self.word(task + self.tasks.namespaces)? {
            0 => Ok(self.tasks.init_network),
            namespaces => self.word(namespaces + self.tasks.network),
        }
    }

    /// Learns the stacks of all threads.
    fn learn_stacks(&mut self) -> Result<(), SimulateError> {
        let head = self.tasks.first + self.tasks.all;
        let mut process = head;
        for _ in 0..MOST_TASKS {
            let first = self.word(process - self.tasks.all + self.tasks.signal)? + self.tasks.threads;
            let mut thread = self.word(first)?;
            while thread != first {
                let task = thread - self.tasks.thread;
                let stack = self.word(task + self.tasks.stack)? >> STACK_SHIFT;
                let is_client = self.is_clients(task)?;
                self.is_client_by_stack.insert(stack, is_client);
                thread = self.word(thread)?;
            }
            process = self.word(process)?;
            if process == head {
                return Ok(());
            }
        }
        Err(missing("threads"))
    }

    /// Threads of the client are in its network, or receive from its link.
    fn is_clients(&mut self, task: u64) -> Result<bool, SimulateError> {
        let network = self.network(task)?;
        let receives = self.word(task + self.tasks.name)?.to_le_bytes().starts_with(b"napi/c0");
        Ok(receives || network != self.server_network && network != self.tasks.init_network)
    }

    /// Work is distinguished by the stack on which it runs. On the way into and out of the kernel, the stack is the
    /// processor's or still the user's; then the thread decides. Stacks of interrupts belong to no thread, so their
    /// work counts for the server.
    fn is_on_a_clients_stack(&mut self, sp: u64) -> Result<bool, SimulateError> {
        if let Some(is_client) = self.is_client_by_stack.get(&(sp >> STACK_SHIFT)) {
            return Ok(*is_client);
        }
        if STACKS.contains(&sp) {
            return Ok(false);
        }
        let task = self.current()?;
        self.is_clients(task)
    }
}
