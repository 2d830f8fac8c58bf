use super::{CpuMode, LayerRow, Profile, Ran};
use crate::PlainText;
use crate::layers::Layer;
use crate::names::OF_LAYERS;
use crate::point::FunctionCost;
use crate::{Figure, Figures, Origin, names};
use std::collections::BTreeMap;

/// With fewer samples of the server, a division by layer is meaningless.
const LEAST_SAMPLES: u64 = 20;

/// The name of code in memory of no file, or of a file that only memory holds: a compiler in the process made it.
pub const COMPILED: &str = "[compiled at run time]";

/// Least share of the server's samples for a function with its callees. In most of the samples in user mode are the
/// program's main loops, which say nothing.
const LEAST_WITH_CALLEES: f64 = 0.2;
const MAIN_LOOP: f64 = 0.9;
/// How names of the kernel's functions for system calls begin.
pub const SYSTEM_CALLS: [&str; 3] = ["__x64_sys_", "__arm64_sys_", "__do_sys_"];

/// A part of the layer Other (`data/layers.txt`).
const MEMORY_MANAGEMENT: &str = "memory management";

/// Samples of a function with its callees.
#[derive(Default)]
struct Use {
    samples: u64,
    /// Samples in which it called itself.
    recursive: u64,
    /// Sum over the samples of its distance from the innermost function.
    depth: f64,
}

impl Profile {
    /// CPU time per request by layer, in a window with this many requests. A layer without a sample is below the
    /// resolution; it is 0, so that the sum is right.
    pub fn point_figures(&self, requests: u64) -> Figures {
        let mut figures = Figures::default();
        for (layer, name, ..) in OF_LAYERS {
            figures.set(name, self.cost_of(self.layer(*layer), requests, "no request was completed"));
        }
        let memory = self.layers.iter().find(|row| row.layer == Some(Layer::Other) && row.part == MEMORY_MANAGEMENT);
        figures.set(names::LAYER_MEMORY, self.cost_of(memory, requests, "no request was completed"));
        figures
    }

    /// The most expensive functions, without their callees.
    pub fn point_functions(&self, requests: u64) -> Vec<FunctionCost> {
        if requests == 0 || self.samples.server() < LEAST_SAMPLES {
            return Vec::new();
        }
        self.functions
            .iter()
            .map(|row| FunctionCost {
                function: row.function.clone(),
                module: row.module.clone(),
                layer: row.layer,
                us_per_request: self.cost_us(row.samples, requests),
                samples: row.samples,
            })
            .collect()
    }

    /// Functions that divide the server's work, with their callees: see [`crate::Point::with_callees`]. A function that
    /// calls itself is an interpreter's loop or a tree's: its callers say more.
    pub fn point_with_callees(&self, requests: u64) -> Vec<FunctionCost> {
        let all = self.samples.server();
        if requests == 0 || all < LEAST_SAMPLES {
            return Vec::new();
        }
        let of_server = || self.stacks.stacks.iter().filter(|stack| stack.ran == Ran::Server);
        let of_user: u64 = of_server().filter(|stack| stack.mode == CpuMode::User).map(|stack| stack.samples).sum();
        let mut used: BTreeMap<u32, Use> = BTreeMap::new();
        for stack in of_server() {
            let mut times: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
            for (depth, place) in stack.functions.iter().enumerate() {
                times.entry(*place).or_insert((0, depth)).0 += 1;
            }
            for (place, (times, depth)) in times {
                let used = used.entry(place).or_default();
                used.samples += stack.samples;
                used.recursive += if times > 1 { stack.samples } else { 0 };
                used.depth += depth as f64 * stack.samples as f64;
            }
        }
        let cost = |(place, used): (u32, Use)| {
            let (frame, samples) = (self.stacks.functions.get(place as usize)?, used.samples);
            let (name, of_user) = (frame.function.as_str(), of_user as f64);
            let is_named = match SYSTEM_CALLS.iter().find_map(|start| name.strip_prefix(start)) {
                Some(_) => frame.is_kernel,
                None => !frame.is_kernel && !name.starts_with('[') && (samples as f64) < MAIN_LOOP * of_user,
            };
            let is_kept =
                is_named && 2 * used.recursive <= samples && samples as f64 >= LEAST_WITH_CALLEES * all as f64;
            let cost = || FunctionCost {
                function: name.to_string(),
                module: frame.module.as_ref().map(PlainText::to_string),
                layer: (!frame.is_kernel).then_some(Layer::User),
                us_per_request: self.cost_us(samples, requests),
                samples,
            };
            is_kept.then(|| (used.depth / samples as f64, cost()))
        };
        let mut costs: Vec<(f64, FunctionCost)> = used.into_iter().filter_map(cost).collect();
        costs.sort_by(|a, b| a.0.total_cmp(&b.0));
        costs.into_iter().map(|(_, cost)| cost).collect()
    }

    /// CPU time, and hardware events if the machine counts them, per packet that the port's connections sent; also
    /// the number of these packets.
    pub fn packet_figures(&self) -> Figures {
        let sent = self.packets.packets[1];
        let mut figures = Figures::default();
        for (layer, _, name, _) in OF_LAYERS {
            figures.set(name, self.cost_of(self.layer(*layer), sent, "no packet was sent"));
        }
        self.event_figures(&mut figures);
        for (name, count) in [
            (names::PACKETS_SENT, sent),
            (names::PACKETS_RECEIVED, self.packets.packets[0]),
            (names::SEGMENTS_SENT, self.packets.segments[1]),
            (names::PAYLOAD_SENT, self.packets.payload_bytes[1]),
        ] {
            figures.measured(name, count as f64, count, Origin::Counted);
        }
        figures
    }

    fn event_figures(&self, figures: &mut Figures) {
        // Rows are per packet in both directions.
        let to_sent = self.packets.total() as f64 / self.packets.packets[1] as f64;
        for event in &self.events {
            let of_stack = names::event_per_packet("stack", &event.event);
            if let Some(why) = &event.not_measured {
                figures.set(&of_stack, Figure::not_measured("count", why.clone()));
                continue;
            }
            let mut stack = 0.0;
            for (layer, _, _, word) in OF_LAYERS {
                let row = self.layer(*layer).and_then(|row| row.events_per_packet.get(&event.event));
                let per_packet = row.map_or(0.0, |estimate| estimate.value) * to_sent;
                if layer.is_some_and(Layer::is_stack) {
                    stack += per_packet;
                }
                let figure = Figure::new(per_packet, "count", event.samples, Origin::Sampled);
                figures.set(&names::event_per_packet(word, &event.event), figure);
            }
            figures.set(&of_stack, Figure::new(stack, "count", event.samples, Origin::Sampled));
        }
    }

    /// CPU time of a row per request or packet, of which there are `n`; `none`: the reason if there are none.
    fn cost_of(&self, row: Option<&LayerRow>, n: u64, none: &str) -> Figure {
        match (self.samples.server(), n) {
            (_, 0) => Figure::not_measured("us", none),
            (server, _) if server < LEAST_SAMPLES => {
                Figure::not_measured("us", "the server was sampled fewer than 20 times")
            }
            _ => {
                let samples = row.map_or(0, |row| row.samples);
                Figure::new(self.cost_us(samples, n), "us", samples, Origin::Sampled)
            }
        }
    }

    fn cost_us(&self, samples: u64, requests: u64) -> f64 {
        samples as f64 * self.point_sample_ns() / 1e3 / requests as f64
    }

    /// CPU time per sample of a point, nanoseconds. The few samples of a point only divide the scheduler's exact
    /// time, so their random number does not change the sum.
    pub(super) fn point_sample_ns(&self) -> f64 {
        match self.samples.in_server() {
            in_server if in_server >= LEAST_SAMPLES && self.cpu_check.scheduler_ns > 0.0 => {
                self.cpu_check.scheduler_ns / in_server as f64
            }
            _ => self.sample_ns,
        }
    }

    /// All figures of [`point_figures`](Self::point_figures), missing for this reason.
    pub fn no_figures(why: &str) -> Figures {
        let mut figures = Figures::default();
        let names = OF_LAYERS.iter().map(|(_, name, ..)| *name).chain([names::LAYER_MEMORY]);
        names.for_each(|name| figures.not_measured(name, why));
        figures
    }

    /// All figures per packet, missing for this reason.
    pub fn no_packet_figures(why: &str) -> Figures {
        let counts = [names::PACKETS_SENT, names::PACKETS_RECEIVED, names::SEGMENTS_SENT, names::PAYLOAD_SENT];
        let mut figures = Figures::default();
        OF_LAYERS.iter().map(|(_, _, name, _)| *name).chain(counts).for_each(|name| figures.not_measured(name, why));
        figures
    }
}
