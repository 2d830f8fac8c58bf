//! profile.proto of pprof (github.com/google/pprof), compressed. The messages are declared here with their field
//! numbers, as far as they are written, and encoded by prost.
//!
//! Layer, load and zone are labels of the samples. Functions have no addresses, so each is its own location.

use super::{PRODUCT, StackRecording, file_words, process_words};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use record::PlainText;
use record::profile::Frame;
use record::profile::stacks::NO_STACK;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Tables of a profile under construction, each entry once.
#[derive(Default)]
struct ProfileTables {
    profile: Profile,
    strings: HashMap<String, i64>,
    mappings: HashMap<String, u64>,
    functions: HashMap<Frame, u64>,
}

impl ProfileTables {
    fn new() -> ProfileTables {
        let mut tables = ProfileTables::default();
        // The format requires the empty string first.
        tables.string("");
        tables
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(place) = self.strings.get(text) {
            return *place;
        }
        let place = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_string());
        self.strings.insert(text.to_string(), place);
        place
    }

    fn value_type(&mut self, what: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.string(what), unit: self.string(unit) }
    }

    fn mapping(&mut self, file: &str) -> u64 {
        if let Some(id) = self.mappings.get(file) {
            return *id;
        }
        let filename = self.string(file);
        let id = self.profile.mapping.len() as u64 + 1;
        self.profile.mapping.push(Mapping { id, filename, has_functions: true });
        self.mappings.insert(file.to_string(), id);
        id
    }

    /// The location of a function, which has the function's number.
    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(id) = self.functions.get(frame) {
            return *id;
        }
        let file = file_words(frame).unwrap_or("[unknown]".into());
        let (name, filename) = (self.string(&frame.function), self.string(&file));
        let (id, mapping_id) = (self.profile.function.len() as u64 + 1, self.mapping(&file));
        self.profile.function.push(Function { id, name, system_name: name, filename });
        self.profile.location.push(Location { id, mapping_id, line: vec![Line { function_id: id }] });
        self.functions.insert(frame.clone(), id);
        id
    }

    fn label(&mut self, key: &str, text: &str) -> Label {
        Label { key: self.string(key), str: self.string(text), num: 0 }
    }
}

pub fn bytes(recording: &StackRecording) -> Vec<u8> {
    let mut tables = ProfileTables::new();
    // pprof takes the first file for the program.
    if let Some(program) = recording.windows.iter().find_map(|window| window.stacks.processes.first()) {
        tables.mapping(&program.name);
    }
    let (samples, cpu) = (tables.value_type("samples", "count"), tables.value_type("cpu", "nanoseconds"));
    let events: BTreeSet<&PlainText> = recording.windows.iter().flat_map(|window| &window.stacks.events).collect();
    tables.profile.sample_type = vec![samples, cpu];
    for event in &events {
        let counted = tables.value_type(event, "count");
        tables.profile.sample_type.push(counted);
    }
    for window in &recording.windows {
        let stacks = &window.stacks;
        for stack in &stacks.stacks {
            let mut location_id: Vec<u64> = Vec::with_capacity(stack.functions.len());
            let frames = stack.functions.iter().filter_map(|place| stacks.functions.get(*place as usize));
            location_id.extend(frames.map(|frame| tables.location(frame)));
            if location_id.is_empty() {
                location_id.push(tables.location(&Frame { function: NO_STACK.into(), module: None, is_kernel: true }));
            }
            let event = |name: &&PlainText| {
                let place = stacks.events.iter().position(|known| known == *name)?;
                stack.events.get(place).copied()
            };
            let counted = events.iter().map(|name| event(name).unwrap_or(0));
            let value = [stack.samples, stack.cpu_ns].into_iter().chain(counted).map(|value| value as i64).collect();
            let mut label = vec![tables.label("layer", stack.layer_word())];
            if !stack.part.is_empty() {
                label.push(tables.label("part", &stack.part));
            }
            label.push(tables.label("process", &process_words(stacks, stack)));
            if let Some(load) = &window.load {
                label.push(tables.label("load", &load.words));
                label.extend(load.zone.map(|zone| tables.label("zone", zone.word())));
                label.push(tables.label("point", &format!("{:03}", load.point)));
            }
            tables.profile.sample.push(Sample { location_id, value, label });
        }
    }
    let comment = format!(
        "{PRODUCT}: the server's work in all processes; sampled; cpu is its CPU time by the scheduler, divided by \
         samples"
    );
    let first = recording.windows.first().map(|window| &window.stacks);
    let length: u64 = recording.windows.iter().map(|window| window.stacks.duration_ns).fold(0, u64::saturating_add);
    let (comment, clock) = (tables.string(&comment), tables.value_type("cpu", "nanoseconds"));
    let mut profile = tables.profile;
    profile.comment = vec![comment];
    profile.time_nanos = first.map_or(0, |stacks| signed(stacks.started_unix_ms.saturating_mul(1_000_000)));
    profile.duration_nanos = signed(length);
    profile.period_type = Some(clock);
    profile.period = first.map_or(0, |stacks| signed(stacks.period_ns));
    profile.default_sample_type = clock.r#type;
    let mut zipped = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to a vector cannot fail.
    let _ = zipped.write_all(&profile.encode_to_vec());
    zipped.finish().unwrap_or_default()
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
