//! The URL as typed, and its parts: host field, path, port, addresses.

use crate::failure::wrong_usage;
use anyhow::{Result, anyhow};
use record::Outside;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// A parsed target. Untrusted text until it has passed [`Target::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL as typed.
    pub typed: String,
    /// Name or address, without the brackets of IPv6.
    pub name: String,
    /// Whether the URL begins with https.
    pub is_tls: bool,
    /// Port; 80, or 443 for https, where none is given.
    pub port: u16,
    /// Path and query in origin form.
    pub path: String,
    /// Value of the Host field.
    pub host_field: String,
}

impl Target {
    /// Parses `http://host:port/path`, the same with https, `host:port/path` or `:port/path` (this machine).
    pub fn parse(typed: &str) -> Result<Self> {
        let example = "write it as http://127.0.0.1:8080/path";
        let full = match typed {
            _ if typed.contains("://") => typed.to_string(),
            _ if typed.starts_with(':') => format!("http://127.0.0.1{typed}"),
            _ => format!("http://{typed}"),
        };
        let uri: http::Uri =
            full.parse().map_err(|why| wrong_usage(format!("'{}' is not a URL ({why}): {example}", shorten(typed))))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            other => return Err(wrong_usage(format!("'{}' URLs cannot be loaded: {example}", other.unwrap_or("")))),
        };
        let usual_port = if is_tls { 443 } else { 80 };
        let authority =
            uri.authority().ok_or_else(|| wrong_usage(format!("'{}' names no host: {example}", shorten(typed))))?;
        if authority.as_str().contains('@') {
            return Err(wrong_usage("user names in URLs are not sent: pass --header 'Authorization: ...' instead"));
        }
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
        if name.is_empty() {
            return Err(wrong_usage(format!("'{}' names no host: {example}", shorten(typed))));
        }
        // After the host come nothing, or a colon and a port.
        let after_host =
            authority.as_str().rsplit(']').next().and_then(|rest| rest.split_once(':')).map(|(_, port)| port);
        let port = match after_host.map(str::parse::<u16>) {
            None => usual_port,
            Some(Ok(0)) => {
                return Err(wrong_usage("port 0 cannot be loaded: name the port that the server listens on"));
            }
            Some(Ok(port)) => port,
            Some(Err(_)) => {
                return Err(wrong_usage(format!("'{}' has no valid port: ports go from 1 to 65535", shorten(typed))));
            }
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let bracketed = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        let host_field = if port == usual_port { bracketed } else { format!("{bracketed}:{port}") };
        Ok(Target { typed: typed.to_string(), is_tls, name, port, path, host_field })
    }

    /// The addresses that the name resolves to: IPv4 first, because most servers under test listen on it.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.name.as_str(), self.port).to_socket_addrs().map_err(|why| {
            anyhow!(
                "the name '{}' does not resolve ({why}): check the spelling, or give an address",
                shorten(&self.name)
            )
        })?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_by_key(|address| address.is_ipv6());
        addresses.dedup();
        if addresses.is_empty() {
            return Err(anyhow!("the name '{}' resolves to no address: give an address", shorten(&self.name)));
        }
        Ok(addresses)
    }

    /// The address, if the URL has one instead of a name.
    pub fn literal_ip(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }
}

fn shorten(text: &str) -> Outside {
    Outside::new(text, 80)
}

/// `:8080` or `8080`.
pub fn port_word(text: &str) -> Result<u16> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(wrong_usage(format!("'{}' is not a port: write it as :8080", Outside::new(text, 40)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_apart() {
        let target = Target::parse("http://[::1]:8080/a?b=c").unwrap();
        assert_eq!((target.name.as_str(), target.port, target.path.as_str()), ("::1", 8080, "/a?b=c"));
        assert_eq!(target.host_field, "[::1]:8080");
        assert_eq!(Target::parse("localhost").unwrap().host_field, "localhost");
        assert_eq!(Target::parse(":8080/x").unwrap().host_field, "127.0.0.1:8080");
        assert_eq!(Target::parse("http://a:81?q").unwrap().path, "/?q");
        let secure = Target::parse("https://a/x").unwrap();
        assert_eq!((secure.is_tls, secure.port, secure.host_field.as_str()), (true, 443, "a"));
    }

    #[test]
    fn what_cannot_be_loaded_is_said() {
        for text in
            ["", "http://", "https://", "ftp://a/", "http://a:0/", "http://a:99999/", "http://u@a/", "http://a b/"]
        {
            let why = Target::parse(text).expect_err(text).to_string();
            assert!(!why.contains('\n'), "{why}");
        }
    }
}
