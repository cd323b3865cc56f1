//! The client of the admission service. Every request has a time limit, and every answer a maximum size.

use berth_api::{Duration, Pod};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::future::Future;

/// The maximum size of an answer, in bytes. It becomes part of the pod's condition.
const ANSWER_MAX: usize = 1024;

/// An admission service. Cheap to clone: clones share connections.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionService {
    client: Client<HttpConnector, Empty<Bytes>>,
    /// Without a slash at the end.
    base: String,
    timeout: Duration,
}

impl AdmissionService {
    /// A service at an address.
    ///
    /// # Errors
    /// The address is invalid.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err("must begin with http://".to_owned());
        }
        if uri.query().is_some() {
            return Err("must not have a query".to_owned());
        }
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            base: url.trim_end_matches('/').to_owned(),
            timeout,
        })
    }

    /// The time limit of a request.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Requests the admission of a pod to a node. The request can be repeated.
    pub(crate) fn admit(
        &self,
        pod: &Pod,
        node: &str,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        self.send(Method::PUT, pod, node)
    }

    /// Revokes the admission of a pod. No component waits for the result. If it fails, the service learns it from the
    /// next request for the pod.
    pub(crate) fn withdraw(
        &self,
        pod: &Pod,
        node: &str,
    ) -> impl Future<Output = ()> + Send + use<> {
        let sent = self.send(Method::DELETE, pod, node);
        async move {
            let _ = sent.await;
        }
    }

    /// The names of pods and nodes need no escaping.
    fn send(
        &self,
        method: Method,
        pod: &Pod,
        node: &str,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let uri = format!("{}/{}/{}/{node}", self.base, pod.namespace(), pod.name());
        let (client, timeout) = (self.client.clone(), self.timeout);
        async move {
            let answer = tokio::time::timeout(timeout, request(&client, method, &uri));
            match answer.await {
                Ok(Ok((status, _))) if status.is_success() => Ok(()),
                Ok(Ok((status, text))) if text.is_empty() => Err(format!("{uri}: {status}")),
                Ok(Ok((status, text))) => Err(format!("{uri}: {status}: {text}")),
                Ok(Err(error)) => Err(format!("{uri}: {error}")),
                Err(_) => Err(format!("{uri}: no answer after {timeout:?}")),
            }
        }
    }
}

async fn request(
    client: &Client<HttpConnector, Empty<Bytes>>,
    method: Method,
    uri: &str,
) -> Result<(StatusCode, String), String> {
    let request = Request::builder().method(method).uri(uri);
    let request = request.body(Empty::new()).map_err(|e| e.to_string())?;
    let answer = client.request(request).await.map_err(|e| e.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
    let text = match body {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Ok((status, text))
}

#[cfg(test)]
mod tests {
    // A test may open a port.
    #![allow(clippy::disallowed_types)]

    use super::*;
    use berth_framework::testing::pod;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;

    /// Answers one request, or never, and returns its first line. The connection stays open until then.
    fn answer_once(answer: Option<&'static str>) -> (String, JoinHandle<(String, TcpStream)>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        #[allow(clippy::disallowed_methods)]
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client calls");
            let mut head = vec![0; 1024];
            let read = stream.read(&mut head).expect("a request");
            if let Some(answer) = answer {
                stream.write_all(answer.as_bytes()).expect("an answer");
            }
            let text = String::from_utf8_lossy(&head[..read]).into_owned();
            (text.lines().next().unwrap_or_default().to_owned(), stream)
        });
        (format!("http://{address}/v1/"), thread)
    }

    #[test]
    fn only_success_admits() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime starts");
        for (answer, millis, outcome) in [
            (
                Some("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
                60_000,
                Ok(()),
            ),
            (
                Some(
                    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 8\r\nconnection: close\r\n\r\nwarming\n",
                ),
                60_000,
                Err("503 Service Unavailable: warming"),
            ),
            (
                Some("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
                60_000,
                Err("403 Forbidden"),
            ),
            (None, 50, Err("no answer after 50ms")),
        ] {
            let (url, server) = answer_once(answer);
            let timeout = Duration::from_millis(millis);
            let service = AdmissionService::new(&url, timeout).expect("the address is right");
            let got = runtime.block_on(service.admit(&pod("p").build(), "n1"));
            let (line, _stream) = server.join().expect("the server ends");
            assert_eq!(line, "PUT /v1/default/p/n1 HTTP/1.1");
            let expected = outcome.map_err(|error| format!("{url}default/p/n1: {error}"));
            assert_eq!(got, expected);
        }
    }
}
