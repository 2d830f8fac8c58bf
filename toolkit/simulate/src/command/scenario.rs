//! A scenario file. The machine's details are read here; the load is passed on as written to `straingauge load` in
//! the guest, which reads and checks it.

use super::failure::wrong_usage;
use super::options::MachineToml;
use anyhow::{Context, Result};
use record::units::{UnitError, parse_count, parse_duration, parse_rate};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};

/// Maximum size of a scenario file. A larger one was named by mistake.
const MOST_BYTES: u64 = 1 << 20;
/// Keys by which the load engine reads files: section, key, and the text before the path.
const FILES: [(&str, &str, &str); 6] = [
    ("load", "urls", ""),
    ("load", "body", "@"),
    ("workload", "dynamic-urls", ""),
    ("workload", "trace", ""),
    ("workload", "rate-series", ""),
    ("clients", "tls", "ca="),
];

/// A scenario file.
#[derive(Debug, Default)]
pub struct ScenarioFile {
    sections: Table,
    /// Section `[simulate]`.
    pub machine: MachineToml,
}

impl ScenarioFile {
    /// Reads the file, if one is named.
    pub fn read(path: Option<&Path>) -> Result<ScenarioFile> {
        let Some(path) = path else { return Ok(ScenarioFile::default()) };
        let named = || path.display().to_string();
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", named()))?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", named()))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong_usage(format!("{} is not text, but a scenario is a TOML file", named())))?;
        let mut sections: Table = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            wrong_usage(format!("{}:{line}: {}", named(), error.message().replace('\n', " ")))
        })?;
        let machine = sections.remove("simulate").unwrap_or(Value::Table(Table::new()));
        let machine = machine.try_into::<MachineToml>();
        let machine = machine.map_err(|why| wrong_usage(format!("{}: [simulate]: {}", named(), why.message())))?;
        Ok(ScenarioFile { sections, machine })
    }

    /// The URL.
    pub fn url(&self) -> Option<&str> {
        self.sections.get("url")?.as_str()
    }

    /// Takes a section out of the file.
    pub fn take(&mut self, name: &str) -> Result<Section> {
        match self.sections.remove(name) {
            None => Ok(Section { name: name.into(), keys: Table::new() }),
            Some(Value::Table(keys)) => Ok(Section { name: name.into(), keys }),
            Some(_) => Err(wrong_usage(format!("{name} of the scenario is not a section: write [{name}]"))),
        }
    }
}

/// A section of a scenario.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its keys and values.
    pub keys: Table,
}

impl Section {
    /// Overrides the file's options with typed ones.
    pub fn lay_over(&mut self, typed: &impl serde::Serialize) -> Result<()> {
        self.keys.extend(Table::try_from(typed).context("the options cannot be written")?);
        Ok(())
    }

    /// Takes a number, or text as it would be typed, out of the section.
    fn take<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, UnitError>) -> Result<Option<T>> {
        let text = match self.keys.remove(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
        };
        let name = &self.name;
        parse(&text).map(Some).map_err(|why| wrong_usage(format!("{key} of section [{name}]: {why}")))
    }

    /// Takes a count.
    pub fn take_count(&mut self, key: &str) -> Result<Option<u64>> {
        self.take(key, parse_count)
    }

    /// Takes a rate.
    pub fn take_rate(&mut self, key: &str) -> Result<Option<f64>> {
        self.take(key, parse_rate)
    }

    /// Takes a time; a plain number means seconds.
    pub fn take_time(&mut self, key: &str) -> Result<Option<Duration>> {
        self.take(key, |text| match text.parse::<f64>() {
            Ok(_) => parse_duration(&format!("{text}s")),
            Err(_) => parse_duration(text),
        })
    }

    /// Takes a list of words.
    pub fn take_words(&mut self, key: &str) -> Vec<String> {
        let words = self.keys.remove(key).and_then(|value| value.try_into().ok());
        words.unwrap_or_default()
    }

    /// The files that it names. Makes their paths absolute.
    pub fn files(&mut self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for (_, key, before) in FILES.iter().filter(|(section, ..)| *section == self.name) {
            let values = match self.keys.get_mut(*key) {
                None => continue,
                Some(Value::Array(values)) => values.as_mut_slice(),
                Some(value) => std::slice::from_mut(value),
            };
            for value in values {
                if let Value::String(text) = value
                    && let Some(file) = text.strip_prefix(before)
                {
                    let path = std::path::absolute(file).with_context(|| format!("cannot find {file}"))?;
                    *text = format!("{before}{}", path.display());
                    files.push(path);
                }
            }
        }
        Ok(files)
    }
}
