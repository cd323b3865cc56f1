//! An admission service whose answers are given by the test.

use crate::e2e::PATIENCE;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A service on a separate port. Its thread ends with the test's process.
pub(crate) struct AdmissionServer {
    address: SocketAddr,
    requests: Receiver<Asked>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    line: String,
    stream: TcpStream,
}

impl AdmissionServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                line.push_str(&lines.next().unwrap_or_default());
                // The rest of the head; there is no body.
                while lines.next().is_some_and(|header| !header.is_empty()) {}
                if sender.send(Asked { line, stream }).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/admissions", self.address)
    }

    /// The next request.
    pub(crate) fn next(&self) -> Asked {
        let asked = self.requests.recv_timeout(PATIENCE);
        asked.expect("the service is asked")
    }
}

impl Asked {
    /// Method and path.
    pub(crate) fn line(&self) -> &str {
        self.line.trim_end_matches(" HTTP/1.1")
    }

    pub(crate) fn answer(mut self, status: &str, text: &str) {
        let length = text.len();
        write!(
            self.stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
        )
        .expect("the answer is sent");
    }
}
