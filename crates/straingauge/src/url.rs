//! The URL as typed, and its parts: host field, path, port, addresses.

use crate::failure::{refuse_if, wrong_usage};
use anyhow::{Result, anyhow};
use record::PlainText;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The protocol that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// http and https
    Http,
    /// redis and rediss
    Redis,
    /// memcached
    Memcached,
    /// tcp
    Tcp,
}

impl Scheme {
    fn parse(word: &str) -> Option<(Scheme, bool)> {
        Some(match word {
            "http" => (Scheme::Http, false),
            "https" => (Scheme::Http, true),
            "redis" => (Scheme::Redis, false),
            "rediss" => (Scheme::Redis, true),
            "memcached" => (Scheme::Memcached, false),
            "tcp" => (Scheme::Tcp, false),
            _ => return None,
        })
    }

    /// The scheme without TLS.
    pub fn word(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Redis => "redis",
            Scheme::Memcached => "memcached",
            Scheme::Tcp => "tcp",
        }
    }

    /// The default port of the protocol; a tcp URL must name one.
    fn usual_port(self, is_tls: bool) -> Option<u16> {
        match self {
            Scheme::Http if is_tls => Some(443),
            Scheme::Http => Some(80),
            Scheme::Redis => Some(6379),
            Scheme::Memcached => Some(11211),
            Scheme::Tcp => None,
        }
    }
}

/// A parsed target. Its text is untrusted until [`Target::parse`] has checked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL as typed, with `***` in place of a password.
    pub typed: String,
    /// The protocol.
    pub scheme: Scheme,
    pub user: String,
    pub password: String,
    /// Name or address, without the brackets of IPv6.
    pub name: String,
    /// Whether the URL begins with https or rediss.
    pub is_tls: bool,
    /// Port; the default of the protocol if the URL has none.
    pub port: u16,
    /// Path and query in origin form.
    pub path: String,
    pub host_field: String,
}

impl Target {
    /// Parses `http://host:port/path` or another scheme, `host:port/path`, or `:port/path` (this machine).
    pub fn parse(typed: &str) -> Result<Self> {
        let example = "write it as http://127.0.0.1:8080/path";
        let full = match typed {
            _ if typed.contains("://") => typed.to_string(),
            _ if typed.starts_with(':') => format!("http://127.0.0.1{typed}"),
            _ => format!("http://{typed}"),
        };
        let uri: http::Uri =
            full.parse().map_err(|why| wrong_usage(format!("'{}' is not a URL ({why}): {example}", shown(typed))))?;
        let word = uri.scheme_str().unwrap_or("");
        let Some((scheme, is_tls)) = Scheme::parse(word) else {
            return Err(wrong_usage(format!(
                "'{word}' URLs are not supported: {example}, or with https, redis, rediss, memcached or tcp"
            )));
        };
        let usual_port = scheme.usual_port(is_tls);
        let authority =
            uri.authority().ok_or_else(|| wrong_usage(format!("'{}' names no host: {example}", shown(typed))))?;
        let (user, password) = match (authority.as_str().rsplit_once('@'), scheme) {
            (None, _) => (String::new(), String::new()),
            (Some(_), Scheme::Http) => {
                return Err(wrong_usage("user names in URLs are not sent: pass --header 'Authorization: ...' instead"));
            }
            (Some((said, _)), Scheme::Redis) => {
                let (user, password) = said.split_once(':').unwrap_or(("", said));
                (decoded(user)?, decoded(password)?)
            }
            (Some(_), _) => {
                return Err(wrong_usage(format!("{} has no users: leave out the part before the @", scheme.word())));
            }
        };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
        refuse_if(name.is_empty(), format!("'{}' names no host: {example}", shown(typed)))?;
        // Only `:PORT` may follow the host.
        let host_and_port = authority.as_str().rsplit('@').next().unwrap_or_default();
        let after_host = host_and_port.rsplit(']').next().and_then(|rest| rest.split_once(':')).map(|(_, port)| port);
        let port = match after_host.map(str::parse::<u16>) {
            None => match usual_port {
                Some(port) => port,
                None => return Err(wrong_usage("a tcp URL needs a port: write it as tcp://127.0.0.1:7000")),
            },
            Some(Ok(0)) => {
                return Err(wrong_usage("port 0 is invalid: give the port that the server listens on"));
            }
            Some(Ok(port)) => port,
            Some(Err(_)) => {
                return Err(wrong_usage(format!("'{}' has no valid port: ports go from 1 to 65535", shown(typed))));
            }
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let bracketed = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        let host_field = if Some(port) == usual_port { bracketed } else { format!("{bracketed}:{port}") };
        let typed = without_password(typed).unwrap_or_else(|| typed.to_string());
        Ok(Target { typed, scheme, user, password, is_tls, name, port, path, host_field })
    }

    /// The addresses that the name resolves to: IPv4 first, because most servers under test listen on it.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.name.as_str(), self.port).to_socket_addrs().map_err(|why| {
            anyhow!(
                "the name '{}' does not resolve ({why}): check the spelling, or use an address",
                shorten(&self.name)
            )
        })?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_by_key(|address| address.is_ipv6());
        addresses.dedup();
        if addresses.is_empty() {
            return Err(anyhow!("the name '{}' resolves to no address: use an address", shorten(&self.name)));
        }
        Ok(addresses)
    }

    /// The address, if the URL has one instead of a name.
    pub fn literal_ip(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }
}

/// The URL with `***` in place of its password, if it has one.
pub fn without_password(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (said, host) = authority.rsplit_once('@')?;
    let user = said.split_once(':').map_or(String::new(), |(user, _)| user.to_string());
    Some(format!("{scheme}://{user}:***@{host}{path}"))
}

fn shown(url: &str) -> PlainText {
    shorten(&without_password(url).unwrap_or_else(|| url.to_string()))
}

fn decoded(text: &str) -> Result<String> {
    let wrong = || wrong_usage("user and password in the URL are not UTF-8: write each % in them as %25");
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        out.push((high * 16 + low) as u8);
    }
    String::from_utf8(out).map_err(|_| wrong())
}

fn shorten(text: &str) -> PlainText {
    PlainText::new(text, 80)
}

/// Parses `:8080` or `8080`.
pub fn port_word(text: &str) -> Result<u16> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(wrong_usage(format!("'{}' is not a port: write it as :8080", PlainText::new(text, 40)))),
    }
}
