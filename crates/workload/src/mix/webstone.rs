//! The WebStone mix of Webmonitor (Almeida, Almeida & Yates, Measuring the Behavior of a World-Wide Web Server, 1996),
//! Table 1: Characteristics of an HTTP Workload.

use super::{Document, Mix, MixClasses};

struct TableRow {
    name: &'static str,
    extension: &'static str,
    files: u64,
    total_kbytes: u64,
    probability: f64,
}

const TABLE_1: [TableRow; 4] = [
    TableRow { name: "html", extension: "html", files: 24, total_kbytes: 180, probability: 0.192 },
    TableRow { name: "image", extension: "gif", files: 29, total_kbytes: 385, probability: 0.754 },
    TableRow { name: "sound", extension: "au", files: 20, total_kbytes: 3580, probability: 0.05 },
    TableRow { name: "video", extension: "mpg", files: 4, total_kbytes: 9216, probability: 0.004 },
];

impl Mix {
    /// The 77 files of Table 1. The table gives each item's number of files, total size (in KBytes of 1,024) and
    /// access probability with their averages, but no single files. Here the files of an item have equal
    /// probabilities and sizes; the images' sizes differ by up to one byte so that their total equals the table's.
    pub fn webstone() -> Mix {
        let mut documents = Vec::new();
        for item in &TABLE_1 {
            let total_bytes = item.total_kbytes * 1024;
            for file in 0..item.files {
                let bytes = total_bytes * (file + 1) / item.files - total_bytes * file / item.files;
                documents.push(Document {
                    url: format!("/webstone/{}/{:02}.{}", item.name, file + 1, item.extension),
                    bytes,
                    probability: item.probability / item.files as f64,
                });
            }
        }
        Mix { name: "webstone".into(), documents, classes: MixClasses::default() }
    }
}
