//! The layers of a server in successive windows: the profiler stays attached between the points of a run, also on
//! behalf of a remote driver.

use super::{Profile, ProfileOptions, Profiler};
use record::point::FunctionCost;
use record::profile::Stacks;
use record::{Doubt, DoubtKind, Figures};

/// How to sample the points of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointSampling {
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Whether points also report costs per packet, and hardware events.
    pub is_per_packet: bool,
}

impl PointSampling {
    /// For the points of a search: a fifth of a profile's usual rate. A point of two seconds gives about 400 samples
    /// of a busy CPU, and a load with its repeats some thousand. An interrupt may cost 80 us in a virtual machine
    /// (bench/profiler-overhead), which would reduce the throughput at 1,000 per second.
    pub const OF_SEARCH: PointSampling = PointSampling { frequency_hz: 199, is_per_packet: false };
}

/// The layers of one window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowLayers {
    /// CPU time by layer, or the reason why it is unknown.
    pub figures: Figures,
    /// The most expensive functions.
    pub functions: Vec<FunctionCost>,
    /// Functions that divide the server's work, with their callees.
    pub with_callees: Vec<FunctionCost>,
    /// All stacks, if there are samples.
    pub stacks: Option<Stacks>,
    /// Doubts about lost samples.
    pub doubts: Vec<Doubt>,
}

/// An attached profiler, with its samples of the last window.
#[derive(Debug)]
pub struct PointSampler {
    profiler: Profiler,
    how: PointSampling,
    seen: Option<Result<Profile, String>>,
}

impl PointSampler {
    /// Attaches to the server on `port`, in the network namespace of `netns_pid`. The error is a sentence.
    pub fn attach(port: u16, netns_pid: Option<u32>, how: PointSampling) -> Result<PointSampler, String> {
        let mut options = ProfileOptions::new(port);
        (options.frequency_hz, options.netns_pid) = (how.frequency_hz, netns_pid);
        if !how.is_per_packet {
            options.events.clear();
        }
        let profiler = Profiler::attach(options).map_err(|error| error.to_string())?;
        Ok(PointSampler { profiler, how, seen: None })
    }

    /// Begins a window.
    pub fn begin(&mut self) {
        self.seen = self.profiler.begin().err().map(|error| Err(error.to_string()));
    }

    /// Ends the window.
    pub fn end(&mut self) {
        if self.seen.is_none() {
            self.seen = Some(self.profiler.end(None).map_err(|error| error.to_string()));
        }
    }

    /// The result of the last window, in which `requests` were completed; returned once.
    pub fn window_layers(&mut self, requests: u64) -> Option<WindowLayers> {
        let mut layers = WindowLayers::default();
        match self.seen.take()? {
            Ok(profile) => {
                layers.figures = profile.point_figures(requests);
                layers.functions = profile.point_functions(requests);
                layers.with_callees = profile.point_with_callees(requests);
                if self.how.is_per_packet {
                    layers.figures.extend(profile.packet_figures());
                }
                layers.stacks = Some(profile.point_stacks());
                let is_loss = |doubt: &Doubt| doubt.kind == DoubtKind::LostEvents;
                layers.doubts.extend(profile.doubts.into_iter().filter(is_loss));
            }
            Err(why) => {
                layers.figures = Profile::no_figures(&why);
                if self.how.is_per_packet {
                    layers.figures.extend(Profile::no_packet_figures(&why));
                }
            }
        }
        Some(layers)
    }

    /// Drops the last window.
    pub fn forget(&mut self) {
        self.seen = None;
    }
}
