//! One boot, from which every point begins.

use super::free_memory;
use super::memory_file::MemoryFile;
use super::qemu::{Limits, Qemu, Running, Start};
use crate::SimulateError;
use crate::exchange::{Answer, Order};
use crate::guest::job::Job;
use crate::guest::{Functions, Image, Kernel, PLUGIN};
use serde_json::json;
use std::os::fd::AsFd;

/// Every job file has this size: the size is part of the saved machine.
const JOB_BYTES: usize = 16 << 10;
/// The kernel's list of functions is never longer.
const LONGEST_LIST: u64 = 64 << 20;

/// A guest that booted and stands at the instruction before it reads its job.
pub struct Saved {
    kernel: Kernel,
    image: MemoryFile,
    state: MemoryFile,
    plugin: MemoryFile,
    seed: u64,
    limits: Limits,
    qemu: Qemu,
    /// Its kernel's functions.
    pub functions: Functions,
}

/// What a point said.
pub struct Resumed {
    /// Lines of the guest's first process: word and value.
    pub words: Vec<(String, String)>,
    /// What the plugin counted.
    pub answer: Answer,
}

impl Saved {
    /// Boots the image and saves the machine. `seed` is a word of the kernel's command line: it changes where things lie in
    /// memory and nothing else.
    pub fn boot(
        qemu: &Qemu,
        kernel: &Kernel,
        image: &Image,
        seed: u64,
        limits: Limits,
        stop: &dyn Fn() -> bool,
    ) -> Result<Saved, SimulateError> {
        let bytes = image.to_bytes();
        free_memory::check(limits.memory_mib, 2 * bytes.len() as u64)?;
        let image = MemoryFile::with("guest-image", &bytes)?;
        let job = MemoryFile::with("guest-job", &[b'\n'; JOB_BYTES])?;
        let start = Start { kernel: &kernel.image, image: &image, seed, limits, job: &job, state: None, plugin: None };
        let mut running = qemu.start(&start)?;
        let mut control = running.control.take().ok_or(no_control())?;
        control.event("GUEST_PANICKED", &mut || running.is_alive(stop))?;
        let words = words_of(&running);
        if !words.iter().any(|(word, _)| word == "ready") {
            // A panic of the kernel's own stops the machine too.
            return Err(said_error(&words).unwrap_or_else(|| SimulateError::Qemu { words: running.last_words() }));
        }
        let alive = &mut || running.is_alive(stop);
        let list = MemoryFile::new("guest-functions")?;
        let place = words.iter().find(|(word, _)| word == "symbols").and_then(|(_, value)| {
            let (address, size) = value.split_once(' ')?;
            Some((address.parse::<u64>().ok()?, size.parse::<u64>().ok()?))
        });
        let (address, size) = place
            .filter(|(_, size)| *size <= LONGEST_LIST)
            .ok_or_else(|| SimulateError::Guest("the guest does not say where its functions are".into()))?;
        // The machine stands in the first process, whose memory is therefore what an address means; QEMU opens the file of
        // this process by its number.
        let path = format!("/proc/{}/fd/{}", std::process::id(), list.number());
        let read = json!({ "val": address, "size": size, "filename": path, "cpu-index": 0 });
        control.command("memsave", read, alive)?;
        let functions = Functions::parse(&list.text());
        if functions.functions.len() < 1000 {
            return Err(SimulateError::Guest("the guest's kernel does not list its functions".into()));
        }

        let mut state = MemoryFile::new("guest-state")?;
        control.command("migrate-set-parameters", json!({ "max-bandwidth": 10_000_000_000_u64 }), alive)?;
        control.give_file("state", state.rewound()?.as_fd(), alive)?;
        control.command("migrate", json!({ "uri": "fd:state" }), alive)?;
        loop {
            let progress = control.command("query-migrate", json!({}), alive)?;
            match progress["status"].as_str() {
                Some("completed") => break,
                Some("failed" | "cancelled") => {
                    return Err(SimulateError::Qemu { words: format!("the machine cannot be saved: {progress}") });
                }
                _ => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        free_memory::check(limits.memory_mib, 0)?;
        let plugin = MemoryFile::with("straingauge-plugin", PLUGIN)?;
        Ok(Saved { kernel: kernel.clone(), image, state, plugin, seed, limits, qemu: qemu.clone(), functions })
    }

    /// The seed of its boot.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes of the saved machine.
    pub fn state_bytes(&self) -> u64 {
        self.state.size()
    }

    /// Resumes the machine, does the job under the plugin's eyes, and reads what came of it.
    pub fn resume(&mut self, job: &Job, order: &Order, stop: &dyn Fn() -> bool) -> Result<Resumed, SimulateError> {
        let mut text = job.to_text().into_bytes();
        if text.len() > JOB_BYTES {
            return Err(SimulateError::Impossible(format!(
                "the server's and the load's command lines are longer than the {JOB_BYTES} bytes that the guest reads"
            )));
        }
        text.resize(JOB_BYTES, b'\n');
        let job = MemoryFile::with("guest-job", &text)?;
        let order = MemoryFile::with("plugin-order", order.to_text().as_bytes())?;
        let answer = MemoryFile::new("plugin-answer")?;
        let start = Start {
            kernel: &self.kernel.image,
            image: &self.image,
            seed: self.seed,
            limits: self.limits,
            job: &job,
            state: Some(&self.state),
            plugin: Some([&self.plugin, &order, &answer]),
        };
        let mut running = self.qemu.start(&start)?;
        let mut control = running.control.take().ok_or(no_control())?;
        let alive = &mut || running.is_alive(stop);
        control.give_file("state", self.state.rewound()?.as_fd(), alive)?;
        control.command("migrate-incoming", json!({ "uri": "fd:state" }), alive)?;
        while control.command("query-status", json!({}), alive)?["status"] == "inmigrate" {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        control.command("cont", json!({}), alive)?;
        running.wait(stop)?;
        let words = words_of(&running);
        if let Some(error) = said_error(&words) {
            return Err(error);
        }
        match (words.iter().any(|(word, _)| word == "done"), Answer::from_text(&answer.text())) {
            (true, Some(answer)) => Ok(Resumed { words, answer }),
            _ => Err(SimulateError::Qemu { words: running.last_words() }),
        }
    }
}

fn no_control() -> SimulateError {
    SimulateError::Qemu { words: "its control socket is gone".into() }
}

fn words_of(running: &Running) -> Vec<(String, String)> {
    let text = running.words.text();
    let split = |line: &str| match line.split_once(' ') {
        Some((word, value)) => (word.to_string(), value.to_string()),
        None => (line.to_string(), String::new()),
    };
    text.lines().map(split).collect()
}

fn said_error(words: &[(String, String)]) -> Option<SimulateError> {
    let clean = |value: &str| value.chars().filter(|letter| !letter.is_control()).take(500).collect();
    words.iter().find(|(word, _)| word == "error").map(|(_, value)| SimulateError::Guest(clean(value)))
}
