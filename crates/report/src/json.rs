//! The output of `--json` for runs, points, comparisons and predictions; `kind` names the content. `straingauge
//! --generate schema output` prints its schema and `docs/run-directory.md` describes it. Additions keep the version;
//! changes of meaning increase it.

use analyze::account::AccountLevel;
use analyze::compare::{Comparison, Price};
use analyze::predict::Prediction;
use analyze::predict::what_if::WhatIfAnswer;
use analyze::watched::ServerSide;
use analyze::zones::Findings;
use record::path::PathPlan;
use record::run::RunRecord;
use record::{Point, RunDir, Sweep};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use verdict::Verdict;
use verdict::answer::Answer;
use verdict::index::Index;
use verdict::proof::Proof;

/// Version of the output format.
pub const SCHEMA: u32 = 1;

/// An object on standard output.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Output<'a> {
    /// Version of the output format.
    pub schema: u32,
    /// Crossed limits of `--fail-if`, as text; only for `find`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits_crossed: Option<Vec<String>>,
    /// The content.
    #[serde(flatten)]
    pub content: Content<'a>,
}

/// The content of an output.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Content<'a> {
    /// Output of `find`, and of `report` for a run with points.
    Run(Box<Run<'a>>),
    /// Output of `load`, and of `report` for a run of `load`.
    Point(Loaded<'a>),
    /// Output of `find --compare-with` and `--beside`, and of `report` for such a run.
    SideBySide(SideBySide<'a>),
    /// Output of `compare`: two runs compared.
    Comparison {
        /// Comparison of the two runs.
        comparison: &'a Comparison,
    },
    /// Output of `predict`: numbers with intervals.
    Prediction {
        /// Prediction; each number has its unit next to it.
        prediction: &'a Prediction,
    },
    /// Output of `runs`: the runs of a folder.
    Runs(&'a Index),
}

/// A whole run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Run<'a> {
    /// Path of the run directory.
    pub path: String,
    /// Contents of `run.json`.
    pub record: &'a RunRecord,
    /// Contents of each `point.json`.
    pub points: &'a [Point],
    /// Rate to plan with, rate at which the server breaks, and the full stage; only for runs with a sweep over
    /// connections or rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Zones, yield and failure points, and capacity of each sweep.
    pub findings: Findings,
    /// Accounts of requests and threads, for each sweep whose threads were traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub account: Vec<AccountOfSweep>,
    /// Requests from the server's side, for each sweep whose points were watched.
    pub server_side: Vec<ServerSide>,
    /// Causes that explain the findings, with evidence and remedy.
    pub verdict: Verdict,
    /// Answers to the questions kept with the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_ifs: Option<Vec<WhatIfAnswer>>,
    /// Result of `find --prove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// The account of a sweep, by load.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct AccountOfSweep {
    /// Sweep of these loads.
    pub sweep: Sweep,
    /// Loads of the sweep, ascending; loads whose threads were not traced are left out.
    pub levels: Vec<AccountLevel>,
}

impl<'a> Run<'a> {
    /// A run with its findings.
    pub fn new(run: &'a RunDir, findings: Findings, mut verdict: Verdict) -> Run<'a> {
        Run {
            answer: verdict.answer.take(),
            path: run.path.to_string_lossy().into_owned(),
            record: &run.record,
            points: &run.points,
            account: findings
                .sweeps()
                .map(|sweep| AccountOfSweep { sweep: sweep.sweep, levels: analyze::account::levels(run, sweep) })
                .filter(|account| !account.levels.is_empty())
                .collect(),
            findings,
            server_side: analyze::watched::of_run(run),
            verdict,
            what_ifs: None,
            proof: None,
        }
    }
}

/// One measured point, with everything that `load` prints.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Loaded<'a> {
    /// The point, as in `point.json`.
    pub point: &'a Point,
    /// Emulated path; absent without one.
    pub path: Option<PathPlan>,
    /// Complete responses by status code; empty for protocols without such codes.
    pub status_counts: &'a BTreeMap<u16, u64>,
    /// Complete replies by kind, e.g. `answer`, `miss` or `-MOVED`, of protocols other than HTTP.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reply_counts: &'a BTreeMap<String, u64>,
    /// The first few errors, as text.
    pub first_errors: &'a [String],
    /// Limits of `--fail-if`, each with its result.
    pub limits: Vec<CheckedLimit>,
}

/// A limit and whether it was crossed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct CheckedLimit {
    /// Text of the limit, as typed after `--fail-if`.
    pub limit: String,
    /// Whether the limit was crossed.
    pub crossed: bool,
    /// Measured value and limit, as a sentence.
    pub detail: String,
}

/// Two runs that were measured in turn.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct SideBySide<'a> {
    /// First run, an output of kind `run`.
    pub a: Box<Output<'a>>,
    /// Second run, an output of kind `run`.
    pub b: Box<Output<'a>>,
    /// Comparison of the two runs; `null` if they have no load in common.
    pub comparison: Option<&'a Comparison>,
    /// Cost of the command that ran in the turns of run B; only for `find --beside`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<&'a Price>,
}

impl<'a> From<Content<'a>> for Output<'a> {
    fn from(content: Content<'a>) -> Output<'a> {
        Output { schema: SCHEMA, limits_crossed: None, content }
    }
}

impl Output<'_> {
    /// The output as JSON, with members in alphabetical order.
    pub fn value(&self) -> Value {
        serde_json::to_value(self).expect("an output has only string keys")
    }
}
