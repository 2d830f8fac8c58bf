//! The geometry of a cache: its size, ways, line and replacement policy.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Which line of a full set is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// The line that was not used for the longest time.
    Lru,
    /// The line to which the bits of a binary tree point (pseudo-LRU, as built in hardware). It needs a power of two
    /// of ways.
    TreePlru,
}

impl Replacement {
    /// Its name: `lru`, `plru`.
    pub fn word(self) -> &'static str {
        match self {
            Replacement::Lru => "lru",
            Replacement::TreePlru => "plru",
        }
    }
}

/// A cache, or a TLB, where a line is a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    size_bytes: u64,
    ways: u32,
    line_bytes: u32,
    replacement: Replacement,
}

/// Why a geometry is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeometryError(String);

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GeometryError {}

/// With more lines the model itself would need gigabytes.
const LARGEST_BYTES: u64 = 1 << 30;
const MOST_WAYS: u32 = 64;
/// Pages of 2 MiB are the longest lines (of a TLB).
const LINE_BYTES: std::ops::RangeInclusive<u32> = 8..=(1 << 21);

impl Geometry {
    /// A cache of `size_bytes` with `ways` lines of `line_bytes` in a set. The number of sets may be any whole
    /// number.
    pub fn new(
        size_bytes: u64,
        ways: u32,
        line_bytes: u32,
        replacement: Replacement,
    ) -> Result<Geometry, GeometryError> {
        let error = |what: String| Err(GeometryError(what));
        if !line_bytes.is_power_of_two() || !LINE_BYTES.contains(&line_bytes) {
            return error(format!("a line of {line_bytes} bytes is not a power of two between 8 bytes and 2 MiB"));
        }
        if ways == 0 || ways > MOST_WAYS {
            return error(format!("{ways} ways are not between 1 and {MOST_WAYS}"));
        }
        if replacement == Replacement::TreePlru && !ways.is_power_of_two() {
            return error(format!("tree-PLRU needs a power of two of ways, not {ways}"));
        }
        let set_bytes = u64::from(ways) * u64::from(line_bytes);
        if size_bytes == 0 || !size_bytes.is_multiple_of(set_bytes) {
            return error(format!(
                "{size_bytes} bytes do not divide into sets of {ways} ways of {line_bytes} bytes ({set_bytes} bytes \
                 each)"
            ));
        }
        if size_bytes / u64::from(line_bytes) > LARGEST_BYTES / 64 {
            return error(format!("{size_bytes} bytes in lines of {line_bytes} are more lines than the model holds"));
        }
        Ok(Geometry { size_bytes, ways, line_bytes, replacement })
    }

    /// Bytes that it holds.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Lines of a set.
    pub fn ways(&self) -> u32 {
        self.ways
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u32 {
        self.line_bytes
    }

    /// The replacement policy.
    pub fn replacement(&self) -> Replacement {
        self.replacement
    }

    /// Number of sets.
    pub fn sets(&self) -> u64 {
        self.size_bytes / (u64::from(self.ways) * u64::from(self.line_bytes))
    }
}

/// Text such as `65536/2/64/lru`: size in bytes, ways, line in bytes, replacement. This form is kept, and the plugin
/// reads it.
impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.size_bytes, self.ways, self.line_bytes, self.replacement.word())
    }
}

impl FromStr for Geometry {
    type Err = GeometryError;

    fn from_str(text: &str) -> Result<Geometry, GeometryError> {
        let wrong = || GeometryError(format!("'{}' is not SIZE/WAYS/LINE/lru or plru", text.escape_debug()));
        let parts: Vec<&str> = text.split('/').collect();
        let [size, ways, line, replacement] = parts[..] else { return Err(wrong()) };
        let replacement = match replacement {
            "lru" => Replacement::Lru,
            "plru" => Replacement::TreePlru,
            _ => return Err(wrong()),
        };
        let size = size.parse().map_err(|_| wrong())?;
        let ways = ways.parse().map_err(|_| wrong())?;
        let line = line.parse().map_err(|_| wrong())?;
        Geometry::new(size, ways, line, replacement)
    }
}

impl Serialize for Geometry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl schemars::JsonSchema for Geometry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Geometry".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "SIZE/WAYS/LINE/POLICY, in bytes", "type": "string" })
    }
}

impl<'de> Deserialize<'de> for Geometry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_cache_is_refused_with_its_reason() {
        let refused =
            |size, ways, line, replacement| Geometry::new(size, ways, line, replacement).unwrap_err().to_string();
        assert!(refused(65536, 2, 48, Replacement::Lru).contains("power of two"));
        assert!(refused(65536, 0, 64, Replacement::Lru).contains("ways"));
        assert!(refused(65536, 65, 64, Replacement::Lru).contains("ways"));
        assert!(refused(0, 1, 64, Replacement::Lru).contains("do not divide"));
        assert!(refused(1000, 2, 64, Replacement::Lru).contains("do not divide"));
        assert!(refused(64 * 12, 12, 64, Replacement::TreePlru).contains("power of two of ways"));
        assert!(refused(1 << 40, 16, 64, Replacement::Lru).contains("more lines"));
    }

    #[test]
    fn a_geometry_is_read_back_unchanged() {
        for (size, ways, line, replacement) in [
            (65536, 2, 64, Replacement::Lru),
            (1_310_720, 10, 64, Replacement::Lru),
            (8192, 8, 32, Replacement::TreePlru),
        ] {
            let geometry = Geometry::new(size, ways, line, replacement).unwrap();
            assert_eq!(geometry.to_string().parse(), Ok(geometry));
        }
        assert!("1/2/3".parse::<Geometry>().is_err());
        assert!("65536/2/64/fifo".parse::<Geometry>().is_err());
    }
}
