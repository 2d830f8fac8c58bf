//! speedscope's file format (github.com/jlfwong/speedscope). Each load is a sampled profile whose weights are CPU
//! time, and another one with the layer as the frame after the program, because the format has no labels.

use super::{PRODUCT, StackRecording, file_words};
use record::profile::stacks::NO_STACK;
use record::profile::{Frame, Stacks};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::HashMap;

#[derive(Serialize)]
struct File<'r> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'r str,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: SharedFrames,
    profiles: Vec<SampledProfile>,
}

#[derive(Serialize)]
struct SharedFrames {
    frames: Vec<NamedFrame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct NamedFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
struct SampledProfile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    /// Outermost frame first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

#[derive(Default)]
struct Frames {
    all: Vec<NamedFrame>,
    places: HashMap<NamedFrame, usize>,
}

impl Frames {
    fn place(&mut self, frame: NamedFrame) -> usize {
        *self.places.entry(frame).or_insert_with_key(|frame| {
            self.all.push(frame.clone());
            self.all.len() - 1
        })
    }

    fn label(&mut self, name: &str) -> usize {
        self.place(NamedFrame { name: name.to_string(), file: None })
    }

    fn function(&mut self, frame: &Frame) -> usize {
        self.place(NamedFrame { name: frame.function.to_string(), file: file_words(frame) })
    }
}

pub fn json(recording: &StackRecording) -> Vec<u8> {
    let mut frames = Frames::default();
    let mut profiles = Vec::new();
    for (load, windows) in recording.by_load() {
        let name = load.map_or_else(|| recording.title.to_string(), |load| load.with_zone());
        for by_layer in [false, true] {
            let name = if by_layer { format!("{name}, by layer") } else { name.clone() };
            profiles.push(sampled(name, &windows, by_layer, &mut frames));
        }
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: PRODUCT,
        name: &recording.title,
        active: 0,
        shared: SharedFrames { frames: frames.all },
        profiles,
    };
    serde_json::to_vec(&file).unwrap_or_default()
}

fn sampled(name: String, windows: &[&Stacks], by_layer: bool, frames: &mut Frames) -> SampledProfile {
    // Repeats of a load have many stacks in common.
    let mut weights: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for stacks in windows {
        for stack in stacks.stacks.iter().filter(|stack| stack.cpu_ns > 0) {
            let mut path = vec![frames.label(stacks.root(stack))];
            path.extend(by_layer.then(|| frames.label(stack.layer_word())));
            path.extend(stacks.outermost_first(stack).map(|frame| frames.function(frame)));
            if stack.functions.is_empty() {
                path.push(frames.label(NO_STACK));
            }
            let sum = weights.entry(path).or_default();
            *sum = sum.saturating_add(stack.cpu_ns);
        }
    }
    let end = weights.values().fold(0u64, |sum, weight| sum.saturating_add(*weight));
    let (samples, weights) = weights.into_iter().unzip();
    SampledProfile { r#type: "sampled", name, unit: "nanoseconds", start: 0, end, samples, weights }
}
