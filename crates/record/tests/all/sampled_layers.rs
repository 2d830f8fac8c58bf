//! Checks the layer table with stacks that were sampled from real servers (fixtures/stacks).

use record::layers::{Layer, LayerRule, Role};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Functions above this share of a run's samples must be in the table.
const LEAST_SHARE: f64 = 0.001;
/// Share of the samples that must have a layer.
const COVERED: f64 = 0.98;

struct Run {
    name: String,
    /// Stacks, innermost first, with their samples.
    stacks: Vec<(Vec<String>, u64)>,
}

impl Run {
    fn samples(&self) -> u64 {
        self.stacks.iter().map(|(_, count)| count).sum()
    }
}

fn runs() -> Vec<Run> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stacks");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut functions: Vec<&str> = Vec::new();
        let stack = |line| {
            let own = str::trim_start(line);
            let (frames, count) = own.rsplit_once(' ').unwrap();
            functions.truncate(line.len() - own.len());
            functions.extend(frames.split(';'));
            (functions.iter().rev().map(ToString::to_string).collect(), count.parse().unwrap())
        };
        let stacks = text.lines().filter(|line| !line.starts_with('#')).map(stack).collect();
        Run { name: path.file_stem().unwrap().to_string_lossy().into_owned(), stacks }
    };
    paths.into_iter().map(read).collect()
}

fn layer_of(stack: &[String]) -> Option<Layer> {
    LayerRule::built_in().row_of(stack.iter().map(|function| (function.as_str(), None))).map(|row| row.layer)
}

#[test]
fn every_function_above_a_tenth_of_a_percent_is_classified() {
    for run in runs() {
        let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &run.stacks {
            *functions.entry(&stack[0]).or_default() += count;
        }
        let least = LEAST_SHARE * run.samples() as f64;
        let is_unknown = |function: &str| LayerRule::built_in().role(function, None) == Role::Unknown;
        let unknown: Vec<&str> = functions
            .into_iter()
            .filter(|(name, count)| *count as f64 > least && is_unknown(name))
            .map(|(name, _)| name)
            .collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", run.name);
    }
}

#[test]
fn the_table_places_nearly_all_kernel_samples() {
    let runs = runs();
    assert_eq!(runs.len(), 3, "nginx, HAProxy and memcached, over loopback and veth, IPv4 and IPv6");
    for run in runs {
        let placed: u64 =
            run.stacks.iter().filter(|(stack, _)| layer_of(stack).is_some()).map(|(_, count)| count).sum();
        assert!(placed as f64 >= COVERED * run.samples() as f64, "{}: {placed} of {}", run.name, run.samples());
    }
}

#[test]
fn every_layer_of_the_stack_has_samples_in_every_run() {
    for run in runs() {
        for layer in [Layer::SystemCall, Layer::Tcp, Layer::Ip, Layer::Ethernet] {
            let samples: u64 =
                run.stacks.iter().filter(|(stack, _)| layer_of(stack) == Some(layer)).map(|(_, count)| count).sum();
            assert!(samples > 0, "{}: no sample in {}", run.name, layer.word());
        }
    }
}

/// Parses functions, each perhaps followed by its module in brackets.
fn frames(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for word in text.split_whitespace() {
        match (word.strip_prefix('[').and_then(|module| module.strip_suffix(']')), frames.last_mut()) {
            (Some(module), Some(last)) => last.1 = Some(module),
            _ => frames.push((word, None)),
        }
    }
    frames
}

#[test]
fn stacks_of_virtio_net_and_named_drivers_get_the_right_layer() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/driver-stacks.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut modules = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (wanted, stack) = line.split_once('|').unwrap();
        let frames = frames(stack);
        assert!(!frames.is_empty(), "{line}");
        modules.extend(frames.iter().filter_map(|(_, module)| *module));
        let found = LayerRule::built_in().row_of(frames).map(|row| row.layer.word());
        if found != Some(wanted.trim()) {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(modules.len() >= 18, "virtio-net and the named drivers: {modules:?}");
}
