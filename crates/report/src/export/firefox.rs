//! The processed profile of the Firefox Profiler, by `fxprof-processed-profile`: categories are layers, subcategories
//! their parts, and each process of the server is one with a thread. A marker spans each window and names its load.
//!
//! The time of a sample within its window is not known, only the number of samples per stack. So the stacks of a
//! window follow each other, each with a length proportional to its samples.

use super::{ExportedWindow, StackRecording};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame as FirefoxFrame, FrameFlags, FrameInfo,
    MarkerFieldFlags, MarkerFieldFormat, MarkerTiming, Profile, ReferenceTimestamp, SamplingInterval,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};
use record::layers::{Layer, LayerRule, Role};
use record::profile::stacks::NO_STACK;
use record::profile::{Frame, Stack, Stacks};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

pub fn json(recording: &StackRecording) -> Vec<u8> {
    let origin_ms = recording.windows.iter().map(|window| window.stacks.started_unix_ms).min().unwrap_or(0);
    let period_ns = recording.windows.first().map_or(0, |window| window.stacks.period_ns);
    let mut profile = Profile::new(
        &recording.title,
        ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_millis(origin_ms)),
        SamplingInterval::from_nanos(period_ns.max(1)),
    );
    profile.set_os_name("Linux");
    // Functions are named already.
    profile.set_symbolicated(true);
    let categories = Categories::add(&mut profile, recording);
    let mut writer = FirefoxWriter { profile, categories, threads: HashMap::new() };
    for window in &recording.windows {
        let starts_ns = window.stacks.started_unix_ms.saturating_sub(origin_ms).saturating_mul(1_000_000);
        writer.window(window, starts_ns);
    }
    serde_json::to_vec(&writer.profile).unwrap_or_default()
}

struct FirefoxWriter {
    profile: Profile,
    categories: Categories,
    threads: HashMap<(u32, String), ThreadHandle>,
}

impl FirefoxWriter {
    fn window(&mut self, window: &ExportedWindow, starts_ns: u64) {
        let stacks = &window.stacks;
        let mut by_thread: BTreeMap<(u32, &str), Vec<&Stack>> = BTreeMap::new();
        for stack in stacks.stacks.iter().filter(|stack| stack.samples > 0) {
            let process = stack.process.and_then(|place| stacks.processes.get(place as usize));
            let key = (process.map_or(0, |process| process.pid), stacks.root(stack));
            by_thread.entry(key).or_default().push(stack);
        }
        let ends_ns = starts_ns.saturating_add(stacks.duration_ns);
        for ((pid, name), mut of_thread) in by_thread {
            let thread = self.thread(pid, name);
            // Equal layers next to each other make the graph of categories readable.
            of_thread.sort_by_key(|stack| stack.layer);
            let all: u64 = of_thread.iter().map(|stack| stack.samples).sum();
            let mut passed = 0;
            for stack in of_thread {
                passed += stack.samples;
                let share = passed as f64 / all.max(1) as f64;
                let at_ns = starts_ns.saturating_add((stacks.duration_ns as f64 * share) as u64);
                let frames: Vec<FrameInfo> = self.frames(stacks, stack);
                let handle = self.profile.intern_stack_frames(thread, frames.into_iter());
                let weight = i32::try_from(stack.samples).unwrap_or(i32::MAX);
                let cpu = CpuDelta::from_nanos(stack.cpu_ns);
                self.profile.add_sample(thread, time(at_ns), handle, cpu, weight);
            }
            if let Some(load) = &window.load {
                let marker = LoadMarker {
                    name: self.profile.intern_string("load"),
                    words: self.profile.intern_string(&load.with_zone()),
                };
                self.profile.add_marker(thread, MarkerTiming::Interval(time(starts_ns), time(ends_ns)), marker);
            }
        }
    }

    fn thread(&mut self, pid: u32, name: &str) -> ThreadHandle {
        let profile = &mut self.profile;
        *self.threads.entry((pid, name.to_string())).or_insert_with(|| {
            let process = profile.add_process(name, pid, time(0));
            let thread = profile.add_thread(process, pid, time(0), true);
            profile.set_thread_name(thread, name);
            profile.add_initial_visible_thread(thread);
            thread
        })
    }

    /// The frames, outermost first. The innermost frame has the layer of its sample. Other functions have the layer
    /// of their name, or that of their caller.
    fn frames(&mut self, stacks: &Stacks, stack: &Stack) -> Vec<FrameInfo> {
        let charged = self.categories.category(stack.layer, &stack.part);
        let mut inherited = self.categories.category(Some(Layer::User), "");
        let mut frames: Vec<FrameInfo> = stacks
            .outermost_first(stack)
            .map(|frame| {
                inherited = self.categories.of_frame(frame).unwrap_or(inherited);
                self.frame(&frame.function, inherited)
            })
            .collect();
        if frames.is_empty() {
            frames.push(self.frame(NO_STACK, charged));
        }
        if let Some(innermost) = frames.last_mut() {
            innermost.category_pair = charged;
        }
        frames
    }

    fn frame(&mut self, name: &str, category_pair: CategoryPairHandle) -> FrameInfo {
        let frame = FirefoxFrame::Label(self.profile.intern_string(name));
        FrameInfo { frame, category_pair, flags: FrameFlags::empty() }
    }
}

fn time(nanos: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(nanos)
}

struct Categories {
    whole: HashMap<Option<Layer>, CategoryHandle>,
    parts: HashMap<(Layer, String), CategoryPairHandle>,
}

impl Categories {
    fn add(profile: &mut Profile, recording: &StackRecording) -> Categories {
        let mut categories = Categories { whole: HashMap::new(), parts: HashMap::new() };
        let layers = Layer::ALL.into_iter().map(Some).chain([None]);
        for layer in layers {
            let category = match colour(layer) {
                // Every profile has this category.
                None => CategoryHandle::OTHER,
                Some(colour) => profile.add_category(layer.map_or("unattributed", Layer::word), colour),
            };
            categories.whole.insert(layer, category);
        }
        let rows = LayerRule::built_in().rows().into_iter().map(|row| (row.layer, row.part.as_str()));
        let stored = recording.windows.iter().flat_map(|window| &window.stacks.stacks);
        let stored = stored.filter_map(|stack| Some((stack.layer?, stack.part.as_str())));
        for (layer, part) in rows.chain(stored).filter(|(_, part)| !part.is_empty()) {
            let key = (layer, part.to_string());
            // The format limits the number of parts, and a file may have any number.
            if !categories.parts.contains_key(&key) && categories.parts.len() < 1000 {
                let pair = profile.add_subcategory(categories.whole[&Some(layer)], part);
                categories.parts.insert(key, pair);
            }
        }
        categories
    }

    fn category(&self, layer: Option<Layer>, part: &str) -> CategoryPairHandle {
        let of_part = layer.and_then(|layer| self.parts.get(&(layer, part.to_string())));
        of_part.copied().unwrap_or_else(|| self.whole[&layer].into())
    }

    fn of_frame(&self, frame: &Frame) -> Option<CategoryPairHandle> {
        if !frame.is_kernel {
            return Some(self.category(Some(Layer::User), ""));
        }
        match LayerRule::built_in().role(&frame.function, frame.module.as_deref()) {
            Role::Names(row) => Some(self.category(Some(row.layer), &row.part)),
            Role::Helper | Role::Unknown => None,
        }
    }
}

/// The colour of a layer; `None` for the category that every profile has.
fn colour(layer: Option<Layer>) -> Option<CategoryColor> {
    let Some(layer) = layer else { return Some(CategoryColor::DarkGray) };
    Some(match layer {
        Layer::User => CategoryColor::LightBlue,
        Layer::SystemCall => CategoryColor::Yellow,
        Layer::Tcp => CategoryColor::Orange,
        Layer::Ip => CategoryColor::Green,
        Layer::Ethernet => CategoryColor::LightGreen,
        Layer::Driver => CategoryColor::Magenta,
        Layer::Other => return None,
        Layer::Idle => CategoryColor::Transparent,
    })
}

#[derive(Debug, Clone)]
struct LoadMarker {
    name: StringHandle,
    words: StringHandle,
}

impl StaticSchemaMarker for LoadMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "load";
    const DESCRIPTION: Option<&'static str> = Some("The load on the server in one window of samples, and its zone.");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.load}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.data.load}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.load}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "load",
        label: "Load",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.words
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        f64::NAN
    }
}
