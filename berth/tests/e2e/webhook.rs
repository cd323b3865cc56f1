//! An extender that a test serves: a webhook that a KubeSchedulerConfiguration names.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The requests to an extender: the path and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender of the test.
pub(crate) struct Webhook {
    /// The address of the server, without a path.
    pub(crate) url: String,
    asked: Asked,
}

impl Webhook {
    /// Serves on a free port until the test ends. `answer` gets the path and the request, and returns code and answer.
    pub(crate) fn serve(
        answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Asked::default();
        let (seen, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || exchange(&stream, &seen, &*answer));
            }
        });
        Self { url, asked }
    }

    /// The requests about a pod at a path, in order.
    pub(crate) fn asked(&self, path: &str, pod: &str) -> Vec<Value> {
        let asked = self.asked.lock().expect("no test has failed");
        let about = |question: &Value| {
            question["Pod"]["metadata"]["name"] == pod || question["PodName"] == pod
        };
        let mut found = asked.clone();
        found.retain(|(at, question)| at == path && about(question));
        found.into_iter().map(|(_, question)| question).collect()
    }
}

/// Answers one request and closes the connection.
fn exchange(stream: &TcpStream, asked: &Asked, answer: &dyn Fn(&str, &Value) -> (u16, Value)) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("post ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let question: Value = serde_json::from_slice(&body).expect("a question is JSON");
    let (code, answer) = answer(&path, &question);
    asked
        .lock()
        .expect("no test has failed")
        .push((path, question));
    let answer = answer.to_string();
    let length = answer.len();
    let head =
        format!("HTTP/1.1 {code} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let mut stream = stream;
    // The scheduler may no longer wait for it.
    let _ = stream.write_all((head + &answer).as_bytes());
}

/// The names of the nodes in a question.
pub(crate) fn nodes(question: &Value) -> Vec<String> {
    let nodes = question["Nodes"]["items"].as_array();
    let names = nodes.into_iter().flatten();
    let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
    names.filter_map(name).collect()
}
