//! Users and groups of the guest: the system accounts of this machine, so that a server can switch to its own.
//!
//! Accounts of people are left out, and so are passwords, names, homes and shells, so that the contents of the
//! guest's files depend only on the names and numbers.

use std::collections::BTreeMap;

/// First user id of people's accounts (`UID_MIN` of login.defs).
const FIRST_OF_PEOPLE: u32 = 1000;
/// User id of `nobody` on every distribution.
const NOBODY: u32 = 65_534;
/// Maximum number of accounts; no system has more.
const MOST: usize = 500;

/// The guest's /etc/passwd and /etc/group, made from this machine's.
pub fn passwd_and_group(passwd: &str, group: &str) -> (String, String) {
    let mut users = BTreeMap::from([("root", (0, 0)), ("nobody", (NOBODY, NOBODY))]);
    for line in passwd.lines() {
        let mut fields = line.split(':');
        let (name, user, group) = (fields.next(), fields.nth(1), fields.next());
        if let (Some(name), Some(user), Some(group)) = (name.filter(|name| is_name(name)), number(user), number(group))
            && users.len() < MOST
        {
            users.insert(name, (user, group));
        }
    }
    let mut groups = BTreeMap::from([("root", 0), ("nogroup", NOBODY)]);
    for line in group.lines() {
        let mut fields = line.split(':');
        let (name, group) = (fields.next(), fields.nth(1));
        if let (Some(name), Some(group)) = (name.filter(|name| is_name(name)), number(group))
            && groups.len() < MOST
        {
            groups.insert(name, group);
        }
    }
    let users = users.iter().map(|(name, (user, group))| format!("{name}:x:{user}:{group}::/:/bin/false\n"));
    let groups = groups.iter().map(|(name, group)| format!("{name}:x:{group}:\n"));
    (users.collect(), groups.collect())
}

/// The number of a system account.
fn number(text: Option<&str>) -> Option<u32> {
    text?.parse().ok().filter(|number| *number < FIRST_OF_PEOPLE || *number == NOBODY)
}

fn is_name(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte);
    !text.is_empty() && text.len() <= 32 && !text.starts_with(['-', '+']) && text.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_has_system_accounts_and_no_user_accounts() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nmemcache:x:105:107:Memcached,,,:/nonexistent:/bin/false\n\
                      alice:x:1000:1000:Alice:/home/alice:/bin/zsh\nnobody:x:65534:65534:n:/:/bin/false\n\
                      +nis::::::\nhalf:x:7\n:x:1:1::/:\nodd name:x:8:8::/:\n";
        let group = "root:x:0:\nmemcache:x:107:alice\nalice:x:1000:\nnogroup:x:65534:\n\x1b[2J:x:5:\n";
        let (users, groups) = passwd_and_group(passwd, group);
        let expected =
            "memcache:x:105:107::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\nroot:x:0:0::/:/bin/false\n";
        assert_eq!(users, expected);
        assert_eq!(groups, "memcache:x:107:\nnogroup:x:65534:\nroot:x:0:\n");
    }

    #[test]
    fn a_machine_without_accounts_has_root_and_nobody() {
        let (users, groups) = passwd_and_group("", "");
        assert!(users.contains("root:x:0:0:") && users.contains("nobody:x:65534:65534:"), "{users}");
        assert_eq!(groups.lines().count(), 2);
    }
}
