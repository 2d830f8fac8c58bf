//! A user at a browser: pointer, keys, window and preferences, over the DevTools protocol. The browser reads
//! descriptor 3 and writes descriptor 4; each message ends with a zero byte.

use crate::browser::ARGUMENTS;
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout for a browser that hangs; a healthy one answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The browser window and the user's preferences.
pub struct Desk {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
    pub has_script: bool,
}

pub const DESK: Desk = Desk { width: 1280, height: 900, is_dark: false, has_script: true };

pub struct Person {
    browser: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

impl Person {
    pub fn opens(browser: &Path, page: &Path, desk: &Desk) -> Person {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(browser)
            .args(ARGUMENTS)
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let (to, out) = (browser.stdin.take().unwrap(), browser.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(Ok(value)) = message.map(|bytes| serde_json::from_slice(&bytes)) else { break };
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut person = Person { browser, to, from, session: None, calls: 0, events: Vec::new(), _profile: profile };
        let target = person.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = person.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        person.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log"] {
            person.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": desk.width, "height": desk.height, "deviceScaleFactor": 1, "mobile": false });
        person.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if desk.is_dark { "dark" } else { "light" } });
        person.call("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
        person.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        person.call("Emulation.setScriptExecutionDisabled", json!({ "value": !desk.has_script }));
        person.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        // The load event may be that of the preceding blank page.
        person.waits_for("location.href !== 'about:blank' && document.readyState === 'complete'");
        person
    }

    fn read(&mut self) -> Value {
        let message = self.from.recv_timeout(PATIENCE).expect("the browser answers");
        if message.get("id").is_none() {
            self.events.push(message.clone());
        }
        message
    }

    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == self.calls {
                return answer;
            }
        }
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        self.answer("Runtime.evaluate", parameters)
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn sees(&mut self, expression: &str) -> Value {
        let answer = self.evaluate(expression);
        assert!(answer.get("error").is_none(), "{expression}: {answer}");
        let result = &answer["result"];
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, because a link is followed after the click was answered.
    #[track_caller]
    pub fn waits_for(&mut self, expression: &str) {
        let began = Instant::now();
        // Evaluating an expression while leaving the page fails.
        while self.evaluate(expression)["result"]["result"]["value"] != true {
            assert!(began.elapsed() < PATIENCE, "{expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn reads(&mut self, expression: &str) -> String {
        let seen = self.sees(expression);
        seen.as_str().unwrap_or_else(|| panic!("{expression}: {seen}")).to_string()
    }

    /// The middle of an element, which is scrolled into view.
    #[track_caller]
    pub fn finds(&mut self, element: &str) -> (f64, f64) {
        let place = self.sees(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), is_down: bool) {
        let button = if is_down || kind != "mouseMoved" { "left" } else { "none" };
        let held = u32::from(is_down);
        let clicks = u32::from(kind != "mouseMoved");
        let parameters =
            json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": held, "clickCount": clicks });
        self.call("Input.dispatchMouseEvent", parameters);
    }

    pub fn hovers(&mut self, at: (f64, f64)) {
        self.mouse("mouseMoved", at, false);
    }

    pub fn clicks(&mut self, at: (f64, f64)) {
        self.hovers(at);
        self.mouse("mousePressed", at, true);
        self.mouse("mouseReleased", at, false);
    }

    pub fn drags(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.hovers(from);
        self.mouse("mousePressed", from, true);
        for step in 1..=5 {
            let part = f64::from(step) / 5.0;
            self.mouse("mouseMoved", (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part), true);
        }
        self.mouse("mouseReleased", to, false);
    }

    pub fn presses(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            other => (0, other),
        };
        let mut parameters = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            parameters["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", parameters);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Saves a picture of the current window; one of the whole page would move the pointer away.
    pub fn keeps_window(&mut self, picture: &Path) {
        let data = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        keep(&data, picture);
    }

    /// Saves a picture of the whole page, or of its first pixels down to `most`.
    pub fn keeps(&mut self, picture: &Path, most: f64) {
        let metrics = self.call("Page.getLayoutMetrics", json!({}));
        let (width, height) = (&metrics["cssContentSize"]["width"], metrics["cssContentSize"]["height"].as_f64());
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height.unwrap().min(most), "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let data = self.call("Page.captureScreenshot", parameters);
        keep(&data, picture);
    }

    /// Console messages of the page: errors, refused scripts and fetches.
    pub fn complaints(&self) -> Vec<String> {
        let kinds = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        let is_one = |event: &&Value| kinds.iter().any(|kind| event["method"] == *kind);
        self.events.iter().filter(is_one).map(Value::to_string).collect()
    }
}

fn keep(answer: &Value, picture: &Path) {
    let data = answer["data"].as_str().expect("a picture");
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    assert!(bytes.len() > 20_000, "nearly empty: {} bytes", bytes.len());
    std::fs::write(picture, bytes).unwrap();
}
