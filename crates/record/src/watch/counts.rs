use super::counters::{COUNTERS, Counter};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Counters; `null` or absent = not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([Option<u64>; COUNTERS]);

impl Counter {
    /// Whether the counter belongs to the object `losses`.
    pub fn is_loss(self) -> bool {
        self.declaration().is_loss
    }
}

impl Counts {
    /// The number of each counter.
    pub fn from_fn(number: impl FnMut(Counter) -> Option<u64>) -> Counts {
        Counts(Counter::ALL.map(number))
    }

    /// Value of a counter.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.0[counter as usize]
    }

    /// Whether no counter is measured.
    pub fn is_empty(&self) -> bool {
        *self == Counts::default()
    }
}

impl Serialize for Counts {
    // If one counter is measured, the others of its object are present, too; `null` means not measured.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_measured = |object| Counter::ALL.iter().any(|one| one.is_loss() == object && self.get(*one).is_some());
        let members = Counter::ALL.into_iter().filter(|counter| is_measured(counter.is_loss()));
        serializer.collect_map(members.map(|counter| (counter.declaration().name, self.get(counter))))
    }
}

impl schemars::JsonSchema for Counts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Counts".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let member = |counter: Counter| {
            let declaration = counter.declaration();
            let number =
                serde_json::json!({ "description": declaration.help, "type": ["integer", "null"], "minimum": 0 });
            (declaration.name.to_string(), number)
        };
        let members: serde_json::Map<_, _> = Counter::ALL.map(member).into_iter().collect();
        schemars::json_schema!({
            "description": "Counters; `null` or absent: not measured.", "type": "object", "properties": members
        })
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = BTreeMap::<String, Value>::deserialize(deserializer)?;
        Ok(Counts::from_fn(|counter| members.get(counter.declaration().name).and_then(Value::as_u64)))
    }
}
