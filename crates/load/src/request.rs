//! The bytes of the requests, made once before the load. [`crate::check()`] has checked all untrusted text before.

use crate::connection::{Connection, LAST_REQUEST};
use crate::http2;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::Distribution;
use rand_distr::weighted::WeightedAliasIndex;
use record::{CloseFirst, LoadPlan, LoadShare};
use std::sync::Arc;

pub(crate) const TRACE_LINE: &str = "traceparent: 00-00000000000000000000000000000000-0000000000000000-01\r\n";

#[derive(Debug)]
pub(crate) struct Requests {
    /// Two requests for each target: the second one is the last on its connection.
    pub(crate) targets: Vec<TargetRequests>,
    pub(crate) is_head: bool,
    /// Request body; HTTP/2 sends it after each header block.
    pub(crate) body: Arc<[u8]>,
    popularity: Option<WeightedAliasIndex<f64>>,
    class_of: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct TargetRequests {
    pub(crate) kept: Box<[u8]>,
    pub(crate) last: Box<[u8]>,
}

impl TargetRequests {
    #[inline]
    pub(crate) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.kept }
    }
}

impl Requests {
    pub(crate) fn new(plan: &LoadPlan) -> Self {
        let targets = plan
            .targets
            .iter()
            .map(|target| TargetRequests {
                kept: encode(plan, &target.path, false).into(),
                last: encode(plan, &target.path, true).into(),
            })
            .collect();
        let body = if plan.protocol.is_over_http_2() { plan.body.as_slice().into() } else { Arc::default() };
        let weights = plan.workload.weights.clone();
        Requests {
            targets,
            is_head: plan.method == "HEAD",
            body,
            // `check` has verified that the weights can be drawn from.
            popularity: (!weights.is_empty()).then(|| WeightedAliasIndex::new(weights).ok()).flatten(),
            class_of: plan.workload.class_of.clone(),
        }
    }

    #[inline]
    pub(crate) fn bytes_for<F>(&self, connection: &Connection<F>) -> &[u8] {
        self.targets[connection.target as usize].bytes(connection.has(LAST_REQUEST))
    }

    #[inline]
    pub(crate) fn class_of(&self, target: usize) -> u8 {
        self.class_of.get(target).copied().unwrap_or(0)
    }

    pub(crate) fn longest(&self) -> usize {
        self.targets.iter().map(|request| request.last.len()).max().unwrap_or(0)
    }
}

pub(crate) enum TargetChoice {
    InTurn(usize),
    Weighted(Box<ChaCha8Rng>),
}

impl TargetChoice {
    pub(crate) fn new(requests: &Requests, seed: u64, share: LoadShare) -> Self {
        if requests.popularity.is_none() {
            return TargetChoice::InTurn(share.index as usize % requests.targets.len().max(1));
        }
        // Independent of the schedule's random numbers.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1 << 32 | u64::from(share.index));
        TargetChoice::Weighted(Box::new(rng))
    }

    /// Walker's alias method: two random numbers, whatever the number of targets.
    #[inline]
    pub(crate) fn next(&mut self, requests: &Requests) -> usize {
        match self {
            TargetChoice::InTurn(next) => {
                let target = *next;
                *next = if target + 1 == requests.targets.len() { 0 } else { target + 1 };
                target
            }
            TargetChoice::Weighted(rng) => requests.popularity.as_ref().map_or(0, |popularity| popularity.sample(rng)),
        }
    }
}

fn encode(plan: &LoadPlan, path: &str, is_last: bool) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\n{}", plan.method, path, fields(plan));
    if !plan.body.is_empty() || matches!(plan.method.as_str(), "POST" | "PUT" | "PATCH") {
        text.push_str(&format!("Content-Length: {}\r\n", plan.body.len()));
    }
    // Connections of HTTP/1.1 are persistent by default.
    if is_last && plan.clients.close_first != Some(CloseFirst::Client) {
        text.push_str("Connection: close\r\n");
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    if plan.protocol.is_http_1() {
        bytes.extend_from_slice(&plan.body);
    }
    bytes
}

pub(crate) fn fields(plan: &LoadPlan) -> String {
    let mut fields = format!("Host: {}\r\n", plan.host);
    if plan.traceparent {
        fields.push_str(TRACE_LINE);
    }
    for (name, value) in &plan.headers {
        fields.push_str(&format!("{name}: {value}\r\n"));
    }
    fields
}

pub(crate) fn http_2(plan: &LoadPlan, body: impl Into<Arc<[u8]>>) -> http2::RequestBlocks {
    let paths = plan.targets.iter().map(|target| target.path.as_str());
    http2::RequestBlocks::new(&plan.method, scheme(plan), &plan.host, &plan.headers, paths, body)
}

pub(crate) fn http_2_writer(plan: &LoadPlan) -> http2::LogRequestWriter {
    http2::LogRequestWriter::new(scheme(plan), &plan.host, &plan.headers)
}

fn scheme(plan: &LoadPlan) -> &'static str {
    if plan.clients.tls.is_some() { "https" } else { "http" }
}
