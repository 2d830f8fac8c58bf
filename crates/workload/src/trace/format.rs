use super::pattern::TimePattern;
use super::template::{Field, Template, TemplatePiece};
use super::{SizeMeaning, clf, w3c};
use crate::{WorkloadError, wrong};
use std::fmt;
use std::str::FromStr;

/// Format of a log's lines. `FromStr` takes `auto`, `common`, `combined`, `nginx` (its default is combined), `vhost`,
/// `w3c`, or a format string: with `$` it is nginx's `log_format`, with `%` Apache's `LogFormat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFormat {
    /// Recognised from the first lines.
    Auto,
    /// `%h %l %u %t "%r" %>s %b`.
    Common,
    /// Common, followed by referrer and user agent.
    Combined,
    /// Combined, preceded by the virtual host: `%v:%p %h ...`, as in Debian's `other_vhosts_access.log`.
    VhostCombined,
    /// W3C extended, with a `#Fields:` directive.
    W3c,
    /// nginx's `log_format`, as `$remote_addr [$time_local] "$request" $status $body_bytes_sent`.
    Nginx(String),
    /// Apache's `LogFormat`, as `%h %t "%r" %>s %b`.
    Apache(String),
}

impl FromStr for LogFormat {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let format = match text.trim().to_ascii_lowercase().as_str() {
            "auto" => LogFormat::Auto,
            "common" | "clf" => LogFormat::Common,
            "combined" | "nginx" | "apache" => LogFormat::Combined,
            "vhost" | "vhost_combined" | "vhost-combined" => LogFormat::VhostCombined,
            "w3c" | "iis" => LogFormat::W3c,
            _ if text.contains('$') => LogFormat::Nginx(text.into()),
            _ if text.contains('%') => LogFormat::Apache(text.into()),
            _ => {
                return Err(wrong(format!(
                    "'{}' is not a log format: use auto, common, combined, nginx, vhost, w3c, or a format string in \
                     nginx's ($remote_addr ...) or Apache's (%h ...) notation",
                    super::rejected::excerpt(text.as_bytes())
                )));
            }
        };
        format.template().map_err(wrong)?;
        Ok(format)
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogFormat::Auto => f.write_str("auto"),
            LogFormat::Common => f.write_str("common"),
            LogFormat::Combined => f.write_str("combined"),
            LogFormat::VhostCombined => f.write_str("vhost"),
            LogFormat::W3c => f.write_str("w3c"),
            LogFormat::Nginx(text) | LogFormat::Apache(text) => write!(f, "the format {}", text.escape_debug()),
        }
    }
}

impl LogFormat {
    /// The format as it is typed.
    pub fn notation(&self) -> String {
        match self {
            LogFormat::Nginx(text) | LogFormat::Apache(text) => text.clone(),
            named => named.to_string(),
        }
    }

    pub(super) fn template(&self) -> Result<Option<Template>, String> {
        match self {
            LogFormat::Nginx(text) => Template::new(nginx(text)).map(Some),
            LogFormat::Apache(text) => Template::new(apache(text)?).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn recognise(start: &[u8]) -> Option<LogFormat> {
        const LINES: usize = 50;
        if w3c::has_fields(start) {
            return Some(LogFormat::W3c);
        }
        let lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty());
        let (mut plain, mut with_host, mut with_more) = (0, 0, 0);
        let mut last = clf::LastTime::default();
        for line in lines.take(LINES) {
            // A user's name may contain spaces, so a line with a host in front may also parse without one. The ident,
            // which is nearly always "-", distinguishes them.
            let mut words = line.split(|byte| *byte == b' ');
            let is_shifted = words.nth(2) == Some(b"-") && words.next() == Some(b"-");
            if clf::parse(line, false, &mut last).is_ok() && !is_shifted {
                plain += 1;
                with_more += usize::from(line.ends_with(b"\""));
            } else if clf::parse(line, true, &mut last).is_ok() {
                with_host += 1;
            }
        }
        match (plain, with_host) {
            (0, 0) => None,
            _ if with_host > plain => Some(LogFormat::VhostCombined),
            _ if with_more * 2 > plain => Some(LogFormat::Combined),
            _ => Some(LogFormat::Common),
        }
    }
}

/// Reads nginx's notation: `$name` and `${name}` are fields, all other text is literal.
fn nginx(text: &str) -> Vec<TemplatePiece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        pieces.push(TemplatePiece::Literal(rest[..at].into()));
        rest = &rest[at + 1..];
        let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let name = match braced {
            Some((name, after)) => {
                rest = after;
                name
            }
            None => {
                let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_')).unwrap_or(rest.len());
                let name = &rest[..end];
                rest = &rest[end..];
                name
            }
        };
        pieces.push(TemplatePiece::Field(match name {
            "remote_addr" | "realip_remote_addr" | "http_x_real_ip" => Field::Client,
            "http_x_forwarded_for" => Field::Forwarded,
            "time_local" => Field::ClfTime,
            "time_iso8601" => Field::IsoTime,
            "msec" => Field::EpochSeconds,
            "request" => Field::Request,
            "request_method" => Field::Method,
            "request_uri" => Field::Target,
            "uri" | "document_uri" => Field::Path,
            "args" | "query_string" => Field::Query,
            "status" => Field::Status,
            "body_bytes_sent" => Field::Bytes(SizeMeaning::Body),
            "bytes_sent" => Field::Bytes(SizeMeaning::HeaderAndBody),
            _ => Field::Skip,
        }));
    }
    pieces.push(TemplatePiece::Literal(rest.into()));
    pieces
}

/// Reads Apache's notation: `%`, optional modifiers (`!200,304`, `<`, `>`), optional `{argument}`, a letter.
fn apache(text: &str) -> Result<Vec<TemplatePiece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => literal.push(match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            }),
            '%' => {
                while chars.next_if(|char| matches!(char, '!' | ',' | '<' | '>' | '0'..='9')).is_some() {}
                let mut argument = None;
                if chars.next_if_eq(&'{').is_some() {
                    let mut inside = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(char) => inside.push(char),
                            None => return Err(format!("the log format ends inside '{{{inside}'")),
                        }
                    }
                    argument = Some(inside);
                }
                let Some(letter) = chars.next() else { return Err("the log format ends with a lone %".into()) };
                if letter == '%' {
                    literal.push('%');
                    continue;
                }
                let field = match (letter, argument.as_deref()) {
                    ('h' | 'a', _) => Field::Client,
                    ('i', Some(name)) if name.eq_ignore_ascii_case("x-forwarded-for") => Field::Forwarded,
                    ('t', argument) => time(argument.unwrap_or_default())?,
                    ('r', None) => Field::Request,
                    ('m', None) => Field::Method,
                    ('U', None) => Field::Path,
                    ('q', None) => Field::Query,
                    ('s', None) => Field::Status,
                    ('b' | 'B', None) => Field::Bytes(SizeMeaning::Body),
                    ('O', None) => Field::Bytes(SizeMeaning::HeaderAndBody),
                    // Some directives, like %^FB, have a two-letter name.
                    ('^', _) => {
                        chars.next();
                        chars.next();
                        Field::Skip
                    }
                    (letter, _) if letter.is_ascii_alphabetic() => Field::Skip,
                    (letter, _) => return Err(format!("the log format has %{letter}, which Apache does not know")),
                };
                // This form of the time has brackets.
                let is_bracketed = field == Field::ClfTime;
                literal.push_str(if is_bracketed { "[" } else { "" });
                pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
                pieces.push(TemplatePiece::Field(field));
                literal.push_str(if is_bracketed { "]" } else { "" });
            }
            other => literal.push(other),
        }
    }
    pieces.push(TemplatePiece::Literal(literal));
    Ok(pieces)
}

fn time(argument: &str) -> Result<Field, String> {
    let pattern = argument.strip_prefix("begin:").or_else(|| argument.strip_prefix("end:")).unwrap_or(argument);
    Ok(match pattern {
        "sec" => Field::EpochTime(1_000_000_000),
        "msec" => Field::EpochTime(1_000_000),
        "usec" => Field::EpochTime(1_000),
        "msec_frac" => Field::Fraction(1_000_000),
        "usec_frac" => Field::Fraction(1_000),
        "" => Field::ClfTime,
        pattern => Field::PatternTime(TimePattern::compile(pattern)?),
    })
}
