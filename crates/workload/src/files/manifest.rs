//! Lists of a tree's files.

use super::{Tree, mapping};

pub(super) const FIRST_LINE: &[u8] = b"# straingauge files 1\n";

/// The tree as a table: target, file, bytes, origin of the size.
pub fn tsv(tree: &Tree) -> Vec<u8> {
    let mut out = FIRST_LINE.to_vec();
    out.extend_from_slice(b"target\tfile\tbytes\torigin\n");
    for entry in &tree.entries {
        // Targets contain neither tabs nor line ends, because the log's reader refuses control bytes.
        out.extend_from_slice(&entry.target);
        out.extend_from_slice(format!("\t{}\t{}\t{}\n", entry.file, entry.bytes, entry.origin.word()).as_bytes());
    }
    out
}

/// An nginx map from `$request_uri` to the file's path, for targets whose file is not at their path. Include it at
/// the `http` level, with `try_files $straingauge_file $uri/ =404;` in the location.
pub fn nginx_map(tree: &Tree) -> Vec<u8> {
    let longest = tree.entries.iter().map(|entry| entry.target.len()).max().unwrap_or(0);
    let bucket_bytes = (longest + 64).next_power_of_two().max(128);
    let rows = tree.entries.len().max(1).next_power_of_two();
    let mut out = format!(
        "# Include in http {{ }}; then: location / {{ root .../root; try_files $straingauge_file $uri/ =404; }}\n\
         map_hash_bucket_size {bucket_bytes};\nmap_hash_max_size {};\nmap $request_uri $straingauge_file {{\n    \
         default $uri;\n",
        4 * rows
    )
    .into_bytes();
    for entry in &tree.entries {
        let is_index = entry.file == "index.html" || entry.file.ends_with("/index.html");
        if mapping::is_plain(entry) && !is_index {
            continue;
        }
        out.extend_from_slice(b"    \"");
        // nginx reads a leading ~ as a regular expression, and names of map parameters as parameters. A leading
        // backslash escapes both.
        if matches!(entry.target.first(), Some(b'~' | b'*' | b'.')) || is_map_word(&entry.target) {
            out.extend_from_slice(b"\\\\");
        }
        for byte in &entry.target {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.extend_from_slice(format!("\" \"/{}\";\n", quoted(&entry.file)).as_bytes());
    }
    out.extend_from_slice(b"}\n");
    out
}

fn is_map_word(target: &[u8]) -> bool {
    matches!(target, b"default" | b"hostnames" | b"include" | b"volatile")
}

/// Quotes a file's path for nginx; plain paths may contain quotes. nginx cannot escape a dollar sign, so such a
/// target gets no row.
fn quoted(file: &str) -> String {
    file.replace('"', "\\\"")
}
