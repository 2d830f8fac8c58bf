use crate::{WorkloadError, wrong};
use record::units::{format_bytes, parse_bytes};
use record::workload::{DocumentKind, RequestClass};

/// Classes by maximum size, as in Webmonitor (section 4.2: "maximum file size for each class").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixClasses {
    /// Maximum size of each class but the last, ascending. The last class has no maximum.
    largest_bytes: Vec<u64>,
}

impl Default for MixClasses {
    /// Webmonitor's three classes: documents and images, sounds, videos. 64 KiB and 1 MiB lie between the average
    /// sizes in its Table 1: 13, 179 and 2,304 KB.
    fn default() -> Self {
        MixClasses { largest_bytes: vec![64 << 10, 1 << 20] }
    }
}

impl MixClasses {
    /// Makes classes with these maximum sizes.
    pub fn new(largest_bytes: Vec<u64>) -> Result<Self, WorkloadError> {
        if largest_bytes.len() > 32 || largest_bytes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(wrong("size classes need ascending boundaries, at most 32 of them"));
        }
        Ok(MixClasses { largest_bytes })
    }

    /// Parses boundaries such as `64KiB,1MiB`.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let sizes: Result<Vec<u64>, _> = text.split(',').map(parse_bytes).collect();
        Self::new(sizes.map_err(wrong)?)
    }

    /// The classes as those of static documents.
    pub fn named(&self) -> Vec<RequestClass> {
        let class = |class| RequestClass {
            label: self.label(class),
            kind: DocumentKind::Static,
            largest_bytes: self.largest_bytes.get(class).copied(),
        };
        (0..=self.largest_bytes.len()).map(class).collect()
    }

    /// The class of a size, from 0.
    pub fn class_of(&self, bytes: u64) -> usize {
        self.largest_bytes.partition_point(|largest| *largest < bytes)
    }

    /// Name of the class: `to 64.0 KiB`, `64.0 KiB to 1.00 MiB`, `over 1.00 MiB`.
    fn label(&self, class: usize) -> String {
        let size = |index: usize| self.largest_bytes.get(index).map(|bytes| format_bytes(*bytes as f64));
        match (class.checked_sub(1).and_then(size), size(class)) {
            (None, Some(to)) => format!("to {to}"),
            (Some(from), Some(to)) => format!("{from} to {to}"),
            (Some(from), None) => format!("over {from}"),
            (None, None) => "all sizes".into(),
        }
    }
}
