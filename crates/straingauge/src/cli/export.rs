//! `--export` of `profile` and `report`.

use clap::builder::{OsStringValueParser, TypedValueParser};
use report::export::ExportFormat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// One file to export to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub format: ExportFormat,
    pub file: PathBuf,
}

/// Parser of `FORMAT=FILE`. The name of the file need not be UTF-8.
pub fn parser() -> impl TypedValueParser<Value = Export> {
    OsStringValueParser::new().try_map(|value| parse(&value))
}

pub fn parse(value: &OsStr) -> Result<Export, String> {
    let bytes = value.as_bytes();
    let (word, file) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(place) => (&bytes[..place], &bytes[place + 1..]),
        None => (bytes, &b""[..]),
    };
    let formats = ExportFormat::ALL.map(ExportFormat::word).join(", ");
    let format = std::str::from_utf8(word).ok().and_then(ExportFormat::from_word);
    let format = format.ok_or_else(|| format!("the format is one of {formats}, as in pprof=FILE"))?;
    if file.is_empty() {
        return Err(format!("the file is missing, as in {0}=FILE; {0}=- prints it", format.word()));
    }
    Ok(Export { format, file: OsString::from_vec(file.to_vec()).into() })
}
