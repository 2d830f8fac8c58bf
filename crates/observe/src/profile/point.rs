//! What a load point keeps of a profile: CPU time per request by layer, and the functions that cost most.

use super::result::Profile;
use record::layers::Layer;
use record::point::FunctionCost;
use record::{Figure, Figures, Origin, names};

/// Fewer samples of the server than this leave nothing to divide.
const LEAST_SAMPLES: u64 = 20;

/// The figure's name of each layer; `None` = unattributed.
const FIGURES: [(Option<Layer>, &str); 8] = [
    (Some(Layer::User), names::LAYER_USER),
    (Some(Layer::SystemCall), names::LAYER_SYSTEM_CALL),
    (Some(Layer::Tcp), names::LAYER_TCP),
    (Some(Layer::Ip), names::LAYER_IP),
    (Some(Layer::Ethernet), names::LAYER_ETHERNET),
    (Some(Layer::Driver), names::LAYER_DRIVER),
    (Some(Layer::Other), names::LAYER_OTHER),
    (None, names::LAYER_UNATTRIBUTED),
];

impl Profile {
    /// CPU time per request by layer, in a window with this many requests. A layer without a sample is below what the
    /// window can resolve, and 0 for the sum's sake.
    pub fn point_figures(&self, requests: u64) -> Figures {
        let too_few = match (self.samples.server(), requests) {
            (_, 0) => Some("no request was completed"),
            (samples, _) if samples < LEAST_SAMPLES => Some("the server was sampled fewer than 20 times"),
            _ => None,
        };
        let mut figures = Figures::default();
        for (layer, name) in FIGURES {
            let figure = match too_few {
                Some(why) => Figure::not_measured("us", why),
                None => {
                    let samples = self.layer(layer).map_or(0, |row| row.samples);
                    Figure::new(self.cost_us(samples, requests), "us", samples, Origin::Sampled)
                }
            };
            figures.set(name, figure);
        }
        figures
    }

    /// The functions that cost most, by what they do themselves.
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

    /// CPU time of so many samples over the requests, microseconds. A point's few samples only divide what the scheduler
    /// accounts exactly, so that their number by chance moves no sum.
    fn cost_us(&self, samples: u64, requests: u64) -> f64 {
        let sample_ns = match self.samples.in_server() {
            in_server if in_server >= LEAST_SAMPLES && self.cpu_check.scheduler_ns > 0.0 => {
                self.cpu_check.scheduler_ns / in_server as f64
            }
            _ => self.sample_ns,
        };
        samples as f64 * sample_ns / 1e3 / requests as f64
    }

    /// All figures of [`point_figures`](Self::point_figures), missing for this reason.
    pub fn no_figures(why: &str) -> Figures {
        let mut figures = Figures::default();
        for (_, name) in FIGURES {
            figures.set(name, Figure::not_measured("us", why));
        }
        figures
    }
}
