use std::fs;
use std::os::unix::fs::PermissionsExt;

pub(crate) fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().replace('\t', " "))
}

/// The settings whose names begin with `beginning`, such as `net/ipv4/tcp_`.
pub(crate) fn named(beginning: &str) -> Vec<String> {
    let (folder, start) = beginning.rsplit_once('/').unwrap_or(("", beginning));
    let entries = fs::read_dir(format!("/proc/sys/{folder}")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(start)).map(|name| format!("{folder}/{name}")).collect()
}

pub(crate) fn is_writable(name: &str) -> bool {
    fs::metadata(format!("/proc/sys/{name}")).is_ok_and(|found| found.permissions().mode() & 0o200 != 0)
}

/// Sets a setting unless it already has this value. The error is a sentence.
pub(crate) fn set(name: &str, value: &str) -> Result<(), String> {
    if read(name).as_deref() == Some(value) {
        return Ok(());
    }
    record::fault::step()
        .and_then(|()| fs::write(format!("/proc/sys/{name}"), value))
        .map_err(|error| format!("{} could not be set to {value}: {error}", name.replace('/', ".")))
}
