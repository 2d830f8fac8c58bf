//! Goroutines that wait inside a Go server: a part of the requests in its queues, with the place.

use crate::account::{AccountLevel, PlaceKind};
use record::account::{Account, Parked};
use record::profile::Frame;
use record::text::plain;
use serde::Serialize;
use std::collections::BTreeMap;

/// Goroutines that wait at one place.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ParkedLevel {
    /// Go's name of the reason; empty if they could run and had no thread.
    pub reason: String,
    /// Function that waits, with the one of the program that called it; empty if not known.
    pub function: String,
    /// Functions, innermost first.
    pub stack: String,
    /// Mean number of goroutines.
    pub goroutines: f64,
    /// Whether a function on the stack serves requests, or is of the package `main`.
    pub serves: bool,
}

impl ParkedLevel {
    /// Name of the place of those that could run.
    pub const READY: &str = "ready, without a thread";

    /// `sync.Mutex.Lock in main.work`.
    pub fn name(&self) -> String {
        match (self.reason.as_str(), self.function.as_str()) {
            ("", _) => ParkedLevel::READY.into(),
            (reason, "") => reason.into(),
            (reason, function) => format!("{reason} in {function}"),
        }
    }

    /// Requests are at this place rather than at one of a higher rank: where a function of the program waits, not one
    /// of a library for each connection; at a lock before a channel, at a choice of channels last.
    fn rank(&self) -> (bool, usize) {
        let by_reason = match self.reason.as_str() {
            "chan send" | "chan receive" => 1,
            "select" => 2,
            _ => 0,
        };
        (!self.serves && !self.reason.is_empty(), by_reason)
    }
}

/// The goroutines of accounts; the most first.
pub fn merged(accounts: &[&Account]) -> Vec<ParkedLevel> {
    const MOST_FRAMES: usize = 12;
    let readings: u64 = accounts.iter().map(|account| account.parked_readings).sum();
    let mut places: BTreeMap<(&str, String), Vec<&Parked>> = BTreeMap::new();
    for parked in accounts.iter().flat_map(|account| &account.parked) {
        places.entry((&parked.reason, function(&parked.frames))).or_default().push(parked);
    }
    let serves = |frame: &Frame| {
        let name = frame.function.as_str();
        package(name) == "main" || SERVING.iter().any(|function| name.ends_with(function))
    };
    let mut levels: Vec<ParkedLevel> = places
        .into_iter()
        .map(|((reason, function), of)| {
            let most = of.iter().max_by_key(|parked| parked.goroutines);
            let frames = most.iter().flat_map(|parked| &parked.frames).take(MOST_FRAMES);
            ParkedLevel {
                reason: plain(reason, 40),
                function,
                serves: of.iter().flat_map(|parked| &parked.frames).any(serves),
                stack: frames.map(|frame| plain(&frame.function, 60)).collect::<Vec<_>>().join(" < "),
                goroutines: of.iter().map(|parked| parked.goroutines).sum::<u64>() as f64 / readings.max(1) as f64,
            }
        })
        .collect();
    levels.sort_by(|a, b| b.goroutines.total_cmp(&a.goroutines));
    levels
}

/// Functions of libraries that call the program's handlers.
const SERVING: [&str; 4] = [".ServeHTTP", "(*Server).handleStream", "(*workerPool).workerFunc", "(*conn).serve"];

/// The first function outside of Go's runtime, for the first of the program or its modules in another package.
fn function(frames: &[Frame]) -> String {
    let names = || frames.iter().map(|frame| frame.function.as_str()).filter(|name| !name.starts_with('['));
    let of_runtime = |name: &str| ["runtime", "sync", "internal", "time"].contains(&root(name));
    let Some(first) = names().find(|name| !of_runtime(name)) else { return String::new() };
    let other = |name: &&str| package(name) != package(first) && package(first) != "main";
    let of_main = names().filter(other).find(|name| package(name) == "main");
    let caller = of_main.or_else(|| names().filter(other).find(|name| root(name).contains('.')));
    let words = caller.map_or(short(first).to_string(), |caller| format!("{} for {}", short(first), short(caller)));
    plain(&words, 120)
}

/// `semaphore.(*Weighted).Acquire` of `golang.org/x/sync/semaphore.(*Weighted).Acquire`.
fn short(function: &str) -> &str {
    let package = package(function);
    let is_version = |folder: &str| folder.strip_prefix('v').is_some_and(|digits| digits.parse::<u32>().is_ok());
    let mut slashes = package.rmatch_indices('/').map(|(at, _)| at + 1);
    let last = slashes.next().unwrap_or(0);
    &function[if is_version(&package[last..]) { slashes.next().unwrap_or(0) } else { last }..]
}

/// `golang.org/x/sync/semaphore` of `golang.org/x/sync/semaphore.(*Weighted).Acquire`.
fn package(function: &str) -> &str {
    let folder = function.rfind('/').map_or(0, |slash| slash + 1);
    let end = function[folder..].find('.').map_or(function.len(), |dot| folder + dot);
    &function[..end]
}

/// The first part of a function's package: a domain, or a name of Go's library.
fn root(function: &str) -> &str {
    package(function).split('/').next().unwrap_or_default()
}

/// Goroutines that wait at a place without a request, by the lowest load.
#[derive(Debug, Clone, Copy, Default)]
pub struct Background {
    /// Mean number at that load.
    count: f64,
    /// Those of them beyond its requests.
    beyond: f64,
}

impl Background {
    /// Greatest growth of goroutines that serve no request.
    const MOST_GROWN: f64 = 1.05;

    /// Those of `goroutines` at the place that have a request.
    fn with_request(self, goroutines: f64) -> f64 {
        let is_all = self.beyond > 0.0 && goroutines <= Background::MOST_GROWN * self.count;
        if is_all { 0.0 } else { (goroutines - self.beyond).max(0.0) }
    }
}

/// The goroutines without a request, by the name of their place.
pub fn background(levels: &[AccountLevel]) -> BTreeMap<String, Background> {
    let lowest = levels.iter().find(|level| level.requests.is_some() && !level.parked.is_empty());
    let places = lowest.iter().flat_map(|level| level.parked.iter().map(|one| (level.in_flight(), one)));
    let of = |in_flight: f64, count: f64| Background { count, beyond: (count - in_flight).max(0.0) };
    places.map(|(in_flight, one)| (one.name(), of(in_flight, one.goroutines))).collect()
}

/// The places of up to `queued` requests that are inside the program and at none of its threads.
pub fn places(
    level: &AccountLevel,
    background: &BTreeMap<String, Background>,
    queued: f64,
) -> Vec<(PlaceKind, String, f64)> {
    let mut parked: Vec<&ParkedLevel> = level.parked.iter().collect();
    parked.sort_by_key(|one| one.rank());
    let mut left = queued;
    let at = parked.into_iter().map(|one| {
        let name = one.name();
        let background = background.get(&name).copied().unwrap_or_default();
        let requests = background.with_request(one.goroutines).min(left);
        left -= requests;
        match one.reason.as_str() {
            "sleep" => (PlaceKind::Sleep, one.function.clone(), requests),
            _ => (PlaceKind::Parked, name, requests),
        }
    });
    at.filter(|(.., requests)| *requests > 0.0).collect()
}
