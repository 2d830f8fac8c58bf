//! Results by class of request. A request in flight when the window begins counts when it ends.

pub use crate::tally::WindowRelation;
use record::workload::{ClassResult, DocumentKind, Grouping};
use record::{Latency, LoadPlan};
use serde::{Deserialize, Serialize};

/// The counts of one class, for requests of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Requests sent in the window, or in flight when it began.
    pub requests: u64,
    /// Complete responses with status 2xx or 3xx.
    pub ok: u64,
    /// Failed requests: errors and other statuses.
    pub failed: u64,
    /// Requests in flight at the end of the run.
    pub unfinished: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Response times of the complete responses.
    pub response: Latency,
}

record::adds_up!(ClassCounts { requests, ok, failed, unfinished, body_bytes, response });

#[derive(Debug, Clone, Copy, Default)]
struct ClassRequest {
    class: u8,
    body_bytes: u64,
}

/// Counts the requests of a thread by class.
#[derive(Debug, Clone)]
pub struct Classes {
    classes: Vec<ClassCounts>,
    under_way: Vec<ClassRequest>,
}

impl Classes {
    /// `None` for a plan without classes and without a log.
    pub fn new(plan: &LoadPlan, slots: usize) -> Option<Box<Self>> {
        let workload = &plan.workload;
        if workload.classes.is_empty() && workload.trace.is_none() {
            return None;
        }
        let classes = vec![ClassCounts::default(); workload.classes.len().max(1)];
        Some(Box::new(Classes { classes, under_way: vec![ClassRequest::default(); slots] }))
    }

    fn class_of(&mut self, slot: usize) -> &mut ClassCounts {
        let class = usize::from(self.under_way[slot].class).min(self.classes.len() - 1);
        &mut self.classes[class]
    }

    /// Counts a request of the connection in `slot`.
    #[inline]
    pub fn sent(&mut self, slot: usize, class: u8, is_counted: bool) {
        self.under_way[slot] = ClassRequest { class, body_bytes: 0 };
        self.class_of(slot).requests += u64::from(is_counted);
    }

    /// Takes bytes of a body.
    #[inline]
    pub fn received(&mut self, slot: usize, body_bytes: usize) {
        self.under_way[slot].body_bytes += body_bytes as u64;
    }

    /// Counts a complete response; returns the bytes of its body.
    pub fn completed(&mut self, slot: usize, is_ok: bool, response_ns: u64, belongs: WindowRelation) -> u64 {
        let body_bytes = self.under_way[slot].body_bytes;
        if let Some(class) = self.ended(slot, belongs) {
            class.ok += u64::from(is_ok);
            class.failed += u64::from(!is_ok);
            class.body_bytes += body_bytes;
            class.response.record_ns(response_ns);
        }
        body_bytes
    }

    pub(crate) fn failed(&mut self, slot: usize, belongs: WindowRelation) {
        let body_bytes = self.under_way[slot].body_bytes;
        if let Some(class) = self.ended(slot, belongs) {
            class.failed += 1;
            class.body_bytes += body_bytes;
        }
    }

    /// Counts a request that is in flight at the end.
    pub fn unfinished(&mut self, slot: usize, belongs: WindowRelation) {
        if let Some(class) = self.ended(slot, belongs) {
            class.unfinished += 1;
        }
    }

    fn ended(&mut self, slot: usize, belongs: WindowRelation) -> Option<&mut ClassCounts> {
        let class = self.class_of(slot);
        class.requests += u64::from(belongs == WindowRelation::CarriedIn);
        belongs.is_counted().then_some(class)
    }

    /// The counts of each class.
    pub fn into_counts(self) -> Vec<ClassCounts> {
        self.classes
    }
}

pub(crate) fn add(mine: &mut Vec<ClassCounts>, other: &[ClassCounts]) {
    mine.resize_with(mine.len().max(other.len()), ClassCounts::default);
    for (mine, theirs) in mine.iter_mut().zip(other) {
        mine.add(theirs);
    }
}

/// Results of each class, and of static and dynamic documents if the plan has both.
pub fn results(plan: &LoadPlan, counts: &[ClassCounts]) -> Vec<ClassResult> {
    let workload = &plan.workload;
    let asked: Vec<f64> = (0..workload.classes.len())
        .map(|class| {
            let of_class = workload.weights.iter().zip(&workload.class_of).filter(|(_, of)| usize::from(**of) == class);
            of_class.map(|(weight, _)| weight).sum()
        })
        .collect();
    let sum: f64 = asked.iter().sum();
    let share = |class: usize| (sum > 0.0).then(|| asked[class] / sum);
    let mut results: Vec<ClassResult> = workload
        .classes
        .iter()
        .zip(counts)
        .enumerate()
        .map(|(class, (named, tally))| result(Grouping::Size, &named.label, share(class), tally))
        .collect();
    if workload.has_dynamic() {
        for (kind, label) in [(DocumentKind::Static, "static"), (DocumentKind::Dynamic, "dynamic")] {
            let mut whole = ClassCounts::default();
            let mut ratio = None;
            let of_kind = workload.classes.iter().zip(counts).enumerate().filter(|(_, (named, _))| named.kind == kind);
            for (class, (_, counts)) in of_kind {
                whole.add(counts);
                ratio = share(class).map(|more| more + ratio.unwrap_or(0.0));
            }
            results.push(result(Grouping::Kind, label, ratio, &whole));
        }
    }
    results
}

fn result(grouping: Grouping, label: &str, asked_ratio: Option<f64>, tally: &ClassCounts) -> ClassResult {
    ClassResult {
        asked_ratio,
        requests: tally.requests,
        ok: tally.ok,
        failed: tally.failed,
        unfinished: tally.unfinished,
        body_bytes: tally.body_bytes,
        ..ClassResult::new(grouping, label, &tally.response)
    }
}
