//! Settings of the calling thread's network namespace, under /proc/sys.

use std::fs;

/// The value of a setting such as `net/core/somaxconn`, if it exists.
pub(crate) fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().replace('\t', " "))
}

/// Sets a setting unless it has the value already. The error is a sentence.
pub(crate) fn set(name: &str, value: &str) -> Result<(), String> {
    if read(name).as_deref() == Some(value) {
        return Ok(());
    }
    record::fault::step()
        .and_then(|()| fs::write(format!("/proc/sys/{name}"), value))
        .map_err(|error| format!("{} could not be set to {value}: {error}", name.replace('/', ".")))
}
