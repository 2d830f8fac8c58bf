//! Targets with weights and classes: a URL, a list of URLs, or a mix.

use crate::cli::WorkloadOptions;
use crate::failure::{refuse_if, wrong_usage};
use crate::input::read_file;
use crate::url::Target;
use anyhow::{Context, Result};
use record::Workload;
use record::scenario::RequestTarget;
use record::workload::{DocumentKind, RequestClass};
use std::path::Path;
use workload::mix::{LogDocuments, Mix, MixClasses};
use workload::trace::{LogFormat, TraceReader};

const MAX_URL_LIST_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct ListedTarget {
    pub path: String,
    /// The weight after the URL.
    pub weight: Option<f64>,
}

/// Reads a list of paths or URLs of the target's server, each with an optional weight. `option` is named in messages.
pub fn url_list(path: &Path, target: &Target, option: &str) -> Result<Vec<ListedTarget>> {
    let text = String::from_utf8(read_file(path, MAX_URL_LIST_BYTES, option)?)
        .map_err(|_| wrong_usage(format!("{} is not text: {option} takes one path or URL per line", path.display())))?;
    let mut found = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = || format!("{}:{}", path.display(), index + 1);
        let mut words = line.split_ascii_whitespace();
        let url = words.next().unwrap_or_default();
        let weight = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(word), None) => match word.parse::<f64>() {
                Ok(weight) if weight.is_finite() && weight >= 0.0 => Some(weight),
                _ => {
                    return Err(wrong_usage(format!(
                        "{}: the weight after the URL must be a number of at least 0, e.g. 2.5 (write a space in a URL \
                         as %20)",
                        at()
                    )));
                }
            },
            _ => {
                return Err(wrong_usage(format!(
                    "{}: a line has a URL and an optional weight (write a space in a URL as %20)",
                    at()
                )));
            }
        };
        let origin = if url.starts_with('/') {
            format!("{}://{}{url}", if target.is_tls { "https" } else { "http" }, target.host_field)
        } else {
            url.to_string()
        };
        let one = Target::parse(&origin).with_context(at)?;
        if (one.is_tls, one.name.as_str(), one.port) != (target.is_tls, target.name.as_str(), target.port) {
            let (one, other) = (one.host_field, &target.host_field);
            return Err(wrong_usage(format!("{}: {one} and {other} are different servers", at())));
        }
        found.push(ListedTarget { path: one.path, weight });
    }
    refuse_if(found.is_empty(), format!("{} lists no path: {option} takes one path or URL per line", path.display()))?;
    Ok(found)
}

/// Relative weights of a list, 1 if missing; `None` if no line has one.
fn weights(list: &[ListedTarget]) -> Option<Vec<f64>> {
    let is_weighted = list.iter().any(|listed| listed.weight.is_some());
    is_weighted.then(|| list.iter().map(|listed| listed.weight.unwrap_or(1.0)).collect())
}

fn scaled(weights: Vec<f64>, share: f64, path: &Path) -> Result<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    refuse_if(sum <= 0.0 || !sum.is_finite(), format!("{}: the sum of the weights must be above 0", path.display()))?;
    Ok(weights.into_iter().map(|weight| weight / sum * share).collect())
}

pub fn size_classes(options: &WorkloadOptions) -> Result<Option<MixClasses>> {
    let parse =
        |text: &String| MixClasses::parse(text).map_err(|error| wrong_usage(format!("classes of [workload]: {error}")));
    options.classes.as_ref().map(parse).transpose()
}

pub struct PlannedRequests {
    pub targets: Vec<RequestTarget>,
    pub workload: Workload,
}

pub fn requests(options: &WorkloadOptions, urls: Option<&Path>, target: &Target) -> Result<PlannedRequests> {
    let mut wanted = match (&options.mix, urls) {
        (Some(_), Some(_)) => {
            return Err(wrong_usage("--mix and --urls both choose the requests: give one of them"));
        }
        (Some(name), None) => mix(name, options, target)?,
        (None, Some(path)) => {
            let list = url_list(path, target, "--urls")?;
            let weights = match weights(&list) {
                Some(weights) => scaled(weights, 1.0, path)?,
                None => Vec::new(),
            };
            let workload = Workload { name: "urls".into(), weights, ..Workload::default() };
            PlannedRequests {
                targets: list.into_iter().map(|listed| RequestTarget { path: listed.path }).collect(),
                workload,
            }
        }
        (None, None) => PlannedRequests {
            targets: vec![RequestTarget { path: target.path.clone() }],
            workload: Workload::default(),
        },
    };
    refuse_if(
        options.classes.is_some() && options.mix.is_none() && options.trace.is_none(),
        "classes of [workload] needs sizes that are known in advance: add --mix or --trace",
    )?;
    match (&options.dynamic_urls, options.dynamic_share) {
        (None, None) => {}
        (None, Some(_)) => {
            return Err(wrong_usage("dynamic-share of [workload] needs URLs: add --set workload.dynamic-urls=FILE"));
        }
        (Some(path), share) => {
            add_dynamic(&mut wanted, path, share.unwrap_or(crate::defaults::DYNAMIC_SHARE).0, target)?
        }
    }
    Ok(wanted)
}

fn add_dynamic(wanted: &mut PlannedRequests, path: &Path, share: f64, target: &Target) -> Result<()> {
    let list = url_list(path, target, "dynamic-urls of [workload]")?;
    let PlannedRequests { targets, workload } = wanted;
    if workload.weights.is_empty() {
        workload.weights = vec![1.0 / targets.len() as f64; targets.len()];
    }
    let sum: f64 = workload.weights.iter().sum();
    for weight in &mut workload.weights {
        *weight *= (1.0 - share) / sum;
    }
    if workload.classes.is_empty() {
        workload.classes.push(RequestClass { label: "static".into(), kind: DocumentKind::Static, largest_bytes: None });
        workload.class_of = vec![0; targets.len()];
    }
    let class = workload.classes.len() as u8;
    workload.classes.push(RequestClass { label: "dynamic".into(), kind: DocumentKind::Dynamic, largest_bytes: None });
    workload.weights.extend(scaled(weights(&list).unwrap_or_else(|| vec![1.0; list.len()]), share, path)?);
    workload.class_of.extend(std::iter::repeat_n(class, list.len()));
    targets.extend(list.into_iter().map(|listed| RequestTarget { path: listed.path }));
    Ok(())
}

fn mix(name: &str, options: &WorkloadOptions, target: &Target) -> Result<PlannedRequests> {
    let mut mix = match (name, &options.trace) {
        ("fitted", Some(log)) => fitted(log, options)?,
        ("fitted", None) => return Err(wrong_usage("--mix fitted needs --trace LOG")),
        (_, Some(_)) => {
            return Err(wrong_usage("--mix and --trace both choose the requests: give one of them, or --mix fitted"));
        }
        (name, None) => Mix::named(name).map_err(|error| wrong_usage(format!("--mix: {error}")))?,
    };
    if let Some(classes) = size_classes(options)? {
        mix.classes = classes;
    }
    let Some(base) = target.path.strip_suffix('/') else {
        return Err(wrong_usage(format!(
            "with --mix the URL is the documents' directory, but '{}' does not end in /: write http://{}/",
            target.path.escape_debug(),
            target.host_field
        )));
    };
    let class_of = mix.documents.iter().map(|document| mix.classes.class_of(document.bytes) as u8).collect();
    Ok(PlannedRequests {
        targets: mix
            .documents
            .iter()
            .map(|document| RequestTarget { path: format!("{base}{}", document.url) })
            .collect(),
        workload: Workload {
            name: mix.name.clone(),
            weights: mix.documents.iter().map(|document| document.probability).collect(),
            class_of,
            classes: mix.classes.named(),
            ..Workload::default()
        },
    })
}

/// A mix with distributions fitted to a log; `straingauge files --mix fitted` writes its files.
fn fitted(log: &Path, options: &WorkloadOptions) -> Result<Mix> {
    let mut reader = TraceReader::open(log, &format(options.trace_format.as_deref(), "trace-format of [workload]")?)?;
    let documents = LogDocuments::read(&mut reader)?;
    documents.mix().with_context(|| format!("no mix can be fitted to {}", log.display()))
}

pub fn format(typed: Option<&str>, option: &str) -> Result<LogFormat> {
    let text = typed.unwrap_or(crate::defaults::TRACE_FORMAT);
    text.parse().map_err(|error| wrong_usage(format!("{option}: {error}")))
}
