//! A watch kept in a run directory: `run.json`, and `watch.jsonl`, to which one line per reading is appended. The
//! kernel has each written line, so kill -9 loses none; a crash of the machine may lose the last few.

use super::super::session::repeat_command;
use anyhow::{Context, Result};
use observe::watch::Watcher;
use record::run::{RunRecord, RunWriter, SCHEMA};
use record::watch::{Beginning, FILE, Headroom, Line, Rates, Reading, Watching};
use record::{Doubt, PlainText, RunKind, Scenario, Status};
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub struct RecordingWriter {
    writer: RunWriter,
    lines: File,
}

impl RecordingWriter {
    pub fn create(path: &Path, watcher: &Watcher, watching: &Watching) -> Result<Self> {
        let port = watcher.options().port;
        let mut server_facts = std::collections::BTreeMap::new();
        if let Ok(Some(server)) = observe::server_on_port(port, watcher.options().netns_pid) {
            server_facts.insert("program".to_string(), server.command.into());
            server_facts.insert("pid".to_string(), server.pid.to_string());
            let words: Vec<&str> = server.arguments.iter().map(|word| word.as_str()).collect();
            server_facts.insert("command".to_string(), PlainText::new(&words.join(" "), 1000).into());
        }
        let scenario = Scenario {
            name: format!("watch-{port}"),
            repeat_command: repeat_command(),
            kind: RunKind::Watch(watching.clone()),
        };
        let record = RunRecord { server_facts, doubts: watcher.doubts(), ..RunRecord::begin(scenario) };
        let writer = RunWriter::create(Path::new(crate::defaults::RUNS), Some(path), record)?;
        let file = writer.path().join(FILE);
        let lines = File::create_new(&file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut recording = RecordingWriter { writer, lines };
        recording.line(&Line::Watch(Beginning { schema: SCHEMA, watching: watching.clone() }))?;
        crate::signals::kept_in(recording.writer.path());
        Ok(recording)
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        self.lines.write_all(line.text().as_bytes()).context("cannot write watch.jsonl: is the disk full?")
    }

    pub fn add(&mut self, reading: &Reading, rates: &Rates, headroom: &Headroom, watcher: &Watcher) -> Result<()> {
        self.line(&super::view::line_of(reading, rates, headroom, watcher.doubts()))
    }

    pub fn save(&self) -> Result<()> {
        Ok(self.writer.save()?)
    }

    /// Returns the path of the run. `ended_by`: why it ended early.
    pub fn finish(mut self, doubts: &[Doubt], ended_by: Option<String>) -> Result<String> {
        let written = self.lines.sync_all().context("cannot write watch.jsonl");
        self.writer.record_mut().doubts = doubts.to_vec();
        let status = if ended_by.is_some() { Status::Interrupted } else { Status::Complete };
        self.writer.finish(status, ended_by)?;
        written?;
        Ok(self.writer.path().display().to_string())
    }
}
