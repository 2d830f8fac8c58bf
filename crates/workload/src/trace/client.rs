//! Client addresses in the forms in which servers log them: `192.0.2.7`, `2001:db8::7`, `[2001:db8::7]`,
//! `fe80::1%eth0`, `::ffff:192.0.2.7`, `unix:`, or a name, each with or without a port.

use memchr::{memchr, memrchr, memrchr_iter};
use std::net::IpAddr;

/// The address in one form, without brackets, port and the IPv6 prefix of a mapped IPv4 address. Other text stays
/// unchanged.
#[inline]
pub(super) fn address(logged: &[u8]) -> &[u8] {
    if logged.contains(&b':') { plain(logged) } else { logged }
}

fn plain(logged: &[u8]) -> &[u8] {
    let mut address = logged;
    if let Some(inside) = logged.strip_prefix(b"[")
        && let Some(end) = memchr(b']', inside)
    {
        address = &inside[..end];
    }
    if let Some((prefix, rest)) = address.split_at_checked(7)
        && prefix.eq_ignore_ascii_case(b"::ffff:")
        && rest.contains(&b'.')
    {
        address = rest;
    }
    match memrchr(b':', address) {
        Some(at) if at > 0 && is_port(&address[at + 1..]) => {
            let is_only = memchr(b':', address) == Some(at);
            // A group of an IPv6 address has at most four digits.
            if is_only || address.len() - at > 5 { &address[..at] } else { address }
        }
        _ => address,
    }
}

fn is_port(text: &[u8]) -> bool {
    matches!(text.len(), 1..=5) && text.iter().all(u8::is_ascii_digit)
}

/// The client in a list of addresses that proxies forwarded, if it is known.
pub(super) fn first_forwarded(list: &[u8]) -> Option<&[u8]> {
    let first = list[..memchr(b',', list).unwrap_or(list.len())].trim_ascii();
    (!first.is_empty() && !first.eq_ignore_ascii_case(b"unknown")).then_some(first)
}

/// The length of an address that is followed by one or more fields, with `colons` colons before and between them.
/// `text` ends with the last of these fields.
pub(super) fn length_before(text: &[u8], colons: usize) -> Option<usize> {
    memrchr_iter(b':', text).skip(colons - 1).find(|at| is_address(&text[..*at]))
}

fn is_address(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    let (address, zone) = inside.split_at(memchr(b'%', inside).unwrap_or(inside.len()));
    let is_ip = || std::str::from_utf8(address).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    text == b"unix:" || (!zone.contains(&b':') && is_ip())
}
