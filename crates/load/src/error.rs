use std::fmt::Display;

/// Why a load could not start, or a probe found no usable server: a sentence with the remedy.
///
/// Failures of single requests during a load are not errors; [`record::Outcomes`](record::Outcomes) counts them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

pub(crate) fn wrong(why: impl Into<String>) -> LoadError {
    LoadError(why.into())
}

pub(crate) fn refuse_if(is_wrong: bool, why: impl Into<String>) -> Result<(), LoadError> {
    if is_wrong { Err(wrong(why)) } else { Ok(()) }
}

pub(crate) fn machine<E: Display>(what: &str) -> impl Fn(E) -> LoadError {
    move |cause| wrong(format!("the load engine could not {what}: {cause}"))
}
