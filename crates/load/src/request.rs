//! The bytes of the requests, made once before the load. What the engine owns (Host, Content-Length, Connection) is
//! written here and nowhere else; what came from outside is checked by [`crate::check()`] before it gets here.

use record::LoadPlan;

/// Every request of a plan, ready to send.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Per target: on a connection that stays, and the last one of a connection.
    pub(crate) targets: Vec<Request>,
    pub(crate) is_head: bool,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kept: Box<[u8]>,
    pub(crate) last: Box<[u8]>,
}

impl Request {
    #[inline]
    pub(crate) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.kept }
    }
}

impl Requests {
    /// For a plan that [`crate::check()`] has passed.
    pub(crate) fn new(plan: &LoadPlan) -> Self {
        let targets = plan
            .targets
            .iter()
            .map(|target| Request {
                kept: encode(plan, &target.path, false).into(),
                last: encode(plan, &target.path, true).into(),
            })
            .collect();
        Requests { targets, is_head: plan.method == "HEAD" }
    }

    pub(crate) fn longest(&self) -> usize {
        self.targets.iter().map(|request| request.last.len()).max().unwrap_or(0)
    }
}

fn encode(plan: &LoadPlan, path: &str, is_last: bool) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", plan.method, path, plan.host);
    for (name, value) in &plan.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !plan.body.is_empty() || matches!(plan.method.as_str(), "POST" | "PUT" | "PATCH") {
        text.push_str(&format!("Content-Length: {}\r\n", plan.body.len()));
    }
    // HTTP/1.1 keeps the connection unless told otherwise.
    if is_last {
        text.push_str("Connection: close\r\n");
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&plan.body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_plan::plan;

    #[test]
    fn the_last_request_of_a_connection_says_so() {
        let mut plan = plan(([127, 0, 0, 1], 80).into());
        plan.host = "example".into();
        plan.headers = vec![("X-A".into(), "b".into())];
        let requests = Requests::new(&plan);
        assert_eq!(&*requests.targets[0].kept, b"GET / HTTP/1.1\r\nHost: example\r\nX-A: b\r\n\r\n");
        assert_eq!(
            &*requests.targets[0].last,
            b"GET / HTTP/1.1\r\nHost: example\r\nX-A: b\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_body_comes_with_its_length() {
        let mut plan = plan(([127, 0, 0, 1], 80).into());
        plan.method = "POST".into();
        plan.body = b"a=1".to_vec();
        let requests = Requests::new(&plan);
        assert!(requests.targets[0].kept.ends_with(b"Content-Length: 3\r\n\r\na=1"));
    }
}
