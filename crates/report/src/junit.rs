//! Checks as JUnit XML by Jenkins' schema `junit-10.xsd`, which GitLab and other CI systems read: a suite for each
//! group, a case for each check.

use crate::check::{Case, CaseResult};
use quick_xml::Writer;
use record::text::plain;
use std::borrow::Cow;
use std::io;

/// Maximum length of an attribute.
const MOST_CHARS: usize = 600;

/// The document.
pub fn xml(cases: &[Case]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    // Writing to memory cannot fail.
    let _ = document(&mut writer, cases);
    out.push_str(&String::from_utf8_lossy(&writer.into_inner()));
    out.push('\n');
    out
}

fn document(writer: &mut Writer<Vec<u8>>, cases: &[Case]) -> io::Result<()> {
    let root = writer.create_element("testsuites").with_attributes(counts("straingauge", cases.iter()));
    root.write_inner_content(|writer| {
        for suite in cases.chunk_by(|a, b| a.group == b.group) {
            let skipped = suite.iter().filter(|case| case.result == CaseResult::Skipped).count().to_string();
            let element = writer.create_element("testsuite").with_attributes(counts(suite[0].group, suite.iter()));
            element
                .with_attribute(("skipped", skipped.as_str()))
                .write_inner_content(|writer| suite.iter().try_for_each(|one| case(writer, one)))?;
        }
        Ok(())
    })?;
    Ok(())
}

/// The counts that both elements have as attributes.
fn counts<'a>(name: &str, cases: impl Iterator<Item = &'a Case> + Clone) -> [(&'static str, Cow<'static, str>); 4] {
    let count = |result| cases.clone().filter(|case| case.result == result).count().to_string().into();
    [
        ("name", name.to_string().into()),
        ("tests", cases.clone().count().to_string().into()),
        ("failures", count(CaseResult::Failed)),
        ("errors", count(CaseResult::Error)),
    ]
}

fn case(writer: &mut Writer<Vec<u8>>, case: &Case) -> io::Result<()> {
    let (name, words, class) = (legal(&case.name), legal(&case.words), format!("straingauge.{}", case.group));
    let element = writer.create_element("testcase");
    let element = element.with_attributes([("classname", class.as_str()), ("name", name.as_str())]);
    let inner = match case.result {
        CaseResult::Passed if words.is_empty() => return element.write_empty().map(|_| ()),
        CaseResult::Passed => "system-out",
        CaseResult::Failed => "failure",
        CaseResult::Skipped => "skipped",
        CaseResult::Error => "error",
    };
    element.write_inner_content(|writer| {
        let inner = writer.create_element(inner);
        match case.result {
            CaseResult::Passed => inner.write_text_content(quick_xml::events::BytesText::new(&words))?,
            _ => inner.with_attribute(("message", words.as_str())).write_empty()?,
        };
        Ok(())
    })?;
    Ok(())
}

/// Removes the characters that XML 1.0 does not allow.
fn legal(text: &str) -> String {
    plain(text, MOST_CHARS).replace(['\u{fffe}', '\u{ffff}'], "?")
}
