//! A page in headless Chromium, driven through the DevTools protocol over two pipes.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The names under which Chromium is installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page.
pub(crate) struct Page {
    child: Child,
    requests: File,
    answers: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// The output of the console, and exceptions.
    pub(crate) console: Vec<String>,
}

impl Drop for Page {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Page {
    /// Opens an empty page; `None`, with a line that reports it, when no browser or no shell with pipes is installed.
    pub(crate) fn open(scratch: &Path) -> Option<Self> {
        let runs = |browser: &&&str| {
            let version = Command::new(browser).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        let Some(browser) = BROWSERS.iter().find(runs) else {
            eprintln!("skipped: none of {BROWSERS:?} is on the PATH");
            return None;
        };
        let pipe = |name: &str| {
            let path = scratch.join(name);
            let made = Command::new("mkfifo").arg(&path).status();
            made.is_ok_and(|status| status.success()).then_some(path)
        };
        let Some((requests, answers)) = pipe("requests").zip(pipe("answers")) else {
            eprintln!("skipped: mkfifo does not work");
            return None;
        };
        // The protocol is read from descriptor 3 and written to descriptor 4.
        let command = r#"exec "$0" --headless=new --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage \
            --window-size=1280,1600 --remote-debugging-pipe --user-data-dir="$3" about:blank 3<"$1" 4>"$2""#;
        let child = Command::new("sh")
            .args(["-c", command, browser])
            .args([&requests, &answers, &scratch.join("profile")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let mut page = Self {
            child,
            requests: File::create(&requests).expect("the pipe of requests"),
            answers: BufReader::new(File::open(&answers).expect("the pipe of answers")),
            session: None,
            number: 0,
            console: Vec::new(),
        };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = page.call("Target.attachToTarget", attach);
        page.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            page.call(domain, json!({}));
        }
        Some(page)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("the browser reads");
        loop {
            let mut bytes = Vec::new();
            let read = self.answers.read_until(0, &mut bytes).expect("an answer");
            assert!(read > 0, "the browser has ended");
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).expect("JSON");
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.noted(&message);
        }
    }

    fn noted(&mut self, event: &Value) {
        let method = event["method"].as_str().unwrap_or_default();
        let of_console = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ];
        if of_console.contains(&method) {
            self.console.push(event["params"].to_string());
        }
    }

    /// Loads an address.
    pub(crate) fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Sets the size of the window, in pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Writes the visible page into a PNG file.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        use base64::Engine;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data);
        std::fs::write(file, bytes.expect("base64")).expect("the file can be written");
    }

    /// The value of an expression.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    /// The value that a promise resolves to.
    pub(crate) fn resolved(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        let exception = &result["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        result["result"]["value"].clone()
    }

    /// The text of an element, as it is shown.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let expression = format!(
            "document.querySelector({})?.innerText ?? ''",
            json!(selector)
        );
        self.value(&expression)
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Presses a key; `text` is the typed text.
    pub(crate) fn key(&mut self, key: &str, code: u32, text: &str) {
        let kind = if text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
        if !text.is_empty() {
            event["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", event);
        let event = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text into the focused field.
    pub(crate) fn types(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// The theme that the system prefers: `dark` or `light`.
    pub(crate) fn prefers(&mut self, theme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": theme});
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
    }
}
