//! Goroutines of a Go server, or threads of a Java server, that wait inside it: a part of the requests in its queues,
//! with the place.

use crate::account::{AccountLevel, PlaceKind};
use record::account::{Account, JAVA, Parked};
use record::profile::Frame;
use record::text::plain;
use serde::Serialize;
use std::collections::BTreeMap;

/// What waits at one place.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ParkedLevel {
    /// Go's name of the reason, or the Java class; empty if they could run and had no thread.
    pub reason: String,
    /// Function that waits, with the one of the program that called it; empty if not known.
    pub function: String,
    /// Functions, innermost first.
    pub stack: String,
    /// Mean number of goroutines or threads.
    pub count: f64,
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
            "chan send" | "chan receive" | "wait" | "AbstractQueuedSynchronizer" => 1,
            "select" => 2,
            _ => 0,
        };
        (!self.serves && !self.reason.is_empty(), by_reason)
    }
}

/// What waited in accounts; the most first.
pub fn merged(accounts: &[&Account]) -> Vec<ParkedLevel> {
    const MOST_FRAMES: usize = 12;
    let readings: u64 = accounts.iter().map(|account| account.parked_readings).sum();
    let mut places: BTreeMap<(&str, String), Vec<&Parked>> = BTreeMap::new();
    for parked in accounts.iter().flat_map(|account| &account.parked) {
        places.entry((&parked.reason, function(&parked.frames))).or_default().push(parked);
    }
    let serves = |frame: &Frame| {
        let name = frame.function.as_str();
        let is_of_go = package(name) == "main" || SERVING.iter().any(|function| name.ends_with(function));
        is_of_go || (is_java(frame) && !is_library(name))
    };
    let mut levels: Vec<ParkedLevel> = places
        .into_iter()
        .map(|((reason, function), of)| {
            let most = of.iter().max_by_key(|parked| parked.count);
            let frames = most.iter().flat_map(|parked| &parked.frames).take(MOST_FRAMES);
            ParkedLevel {
                reason: plain(reason, 40),
                function,
                serves: of.iter().flat_map(|parked| &parked.frames).any(serves),
                stack: frames.map(|frame| plain(&frame.function, 60)).collect::<Vec<_>>().join(" < "),
                count: of.iter().map(|parked| parked.count).sum::<u64>() as f64 / readings.max(1) as f64,
            }
        })
        .collect();
    levels.sort_by(|a, b| b.count.total_cmp(&a.count));
    levels
}

/// Functions of libraries that call the program's handlers.
const SERVING: [&str; 4] = [".ServeHTTP", "(*Server).handleStream", "(*workerPool).workerFunc", "(*conn).serve"];

/// Packages of Java's own library, and of servers and frameworks around the program.
const JAVA_LIBRARIES: [&str; 3] = ["java/", "jdk/", "sun/"];
const FRAMEWORKS: [&str; 8] = [
    "com/sun/",
    "io/netty/",
    "io/undertow/",
    "jakarta/",
    "javax/",
    "org/apache/",
    "org/eclipse/",
    "org/springframework/",
];

fn is_java(frame: &Frame) -> bool {
    frame.module.as_deref() == Some(JAVA)
}

fn is_library(name: &str) -> bool {
    JAVA_LIBRARIES.iter().chain(&FRAMEWORKS).any(|library| name.starts_with(library))
}

/// `com/zaxxer` of `com/zaxxer/hikari/pool/HikariPool.getConnection`.
fn group(name: &str) -> Vec<&str> {
    let folder = package(name).rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.split('/').take(2).collect()
}

/// The first function outside of the runtime, for the first of the program itself in another package.
fn function(frames: &[Frame]) -> String {
    let is_java = frames.iter().any(is_java);
    let names = || frames.iter().map(|frame| frame.function.as_str()).filter(|name| !name.starts_with('['));
    let of_runtime = |name: &str| match is_java {
        true => JAVA_LIBRARIES.iter().any(|library| name.starts_with(library)),
        false => ["runtime", "sync", "internal", "time"].contains(&root(name)),
    };
    let Some(first) = names().find(|name| !of_runtime(name)) else { return String::new() };
    let caller = if is_java {
        names().find(|name| !is_library(name) && group(name) != group(first))
    } else {
        let other = |name: &&str| package(name) != package(first) && package(first) != "main";
        let of_main = names().filter(other).find(|name| package(name) == "main");
        of_main.or_else(|| names().filter(other).find(|name| root(name).contains('.')))
    };
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

/// What waits at a place without a request, by the lowest load.
#[derive(Debug, Clone, Copy, Default)]
pub struct Background {
    /// Mean number at that load.
    count: f64,
    /// Requests at that load.
    in_flight: f64,
}

impl Background {
    /// Greatest growth of those that serve no request.
    const MOST_GROWN: f64 = 1.05;

    /// Those that have a request, of what waits at the place at a load with so many requests. What does not grow with
    /// load has none, unless a pool limits what serves requests.
    fn with_request(self, one: &ParkedLevel, in_flight: f64) -> f64 {
        let beyond = (self.count - self.in_flight).max(0.0);
        let is_constant = one.count <= Background::MOST_GROWN * self.count;
        let has_none = beyond > 0.0 || (!one.serves && in_flight >= 2.0 * self.in_flight);
        if is_constant && has_none { 0.0 } else { (one.count - beyond).max(0.0) }
    }
}

/// What waits without a request, by the name of its place.
pub fn background(levels: &[AccountLevel]) -> BTreeMap<String, Background> {
    let lowest = levels.iter().find(|level| level.requests.is_some() && !level.parked.is_empty());
    let places = lowest.iter().flat_map(|level| level.parked.iter().map(|one| (level.in_flight(), one)));
    places.map(|(in_flight, one)| (one.name(), Background { count: one.count, in_flight })).collect()
}

/// The places of up to `queued` requests that are inside the program and at none of its threads.
pub fn places(
    level: &AccountLevel,
    background: &BTreeMap<String, Background>,
    (in_flight, queued): (f64, f64),
) -> Vec<(PlaceKind, String, f64)> {
    let mut parked: Vec<&ParkedLevel> = level.parked.iter().collect();
    parked.sort_by_key(|one| one.rank());
    let mut left = queued;
    let at = parked.into_iter().map(|one| {
        let name = one.name();
        let background = background.get(&name).copied().unwrap_or_default();
        let requests = background.with_request(one, in_flight).min(left);
        left -= requests;
        match one.reason.as_str() {
            "sleep" => (PlaceKind::Sleep, one.function.clone(), requests),
            _ => (PlaceKind::Parked, name, requests),
        }
    });
    at.filter(|(.., requests)| *requests > 0.0).collect()
}
