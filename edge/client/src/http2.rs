//! Requests over one HTTP/2 connection to one server.
//!
//! A general client looks up a connection and starts a task for each request. Here all requests share one connection,
//! which one task drives, and a request is two frames that are handed to it. A server that does not offer HTTP/2 is
//! left to the general client.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tower::{BoxError, Service, ServiceExt};

/// The bytes of one answer that the server may send ahead, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all answers of a connection: more than all watches together, so that one that is not read cannot stop
/// the others.
const CONNECTION_WINDOW: u32 = 1 << 28;
/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection that does not answer a ping within this time is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The identity of an HTTP/2 connection. Each answer has the identity of its connection as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    /// One that no connection of this process has had.
    pub(crate) fn unique() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self(MADE.fetch_add(1, Ordering::Relaxed))
    }
}

/// The body of an answer.
pub(crate) enum HttpBody {
    /// A stream of an HTTP/2 connection.
    Stream(RecvStream),
    /// Any other body.
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
}

impl http_body::Body for HttpBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let stream = match self.get_mut() {
            Self::Boxed(body) => return Pin::new(body).poll_frame(cx),
            Self::Stream(stream) => stream,
        };
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            None => None,
            Some(Ok(bytes)) => {
                // The server may send as much again. A stream that was reset has no use for it.
                let _ = stream.flow_control().release_capacity(bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            // The answer is complete, and the server does not read the rest of the request.
            Some(Err(error)) if error.reason() == Some(h2::Reason::NO_ERROR) => None,
            Some(Err(error)) => Some(Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Boxed(body) => body.is_end_stream(),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Boxed(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// The requests to one server. Cloning shares the connection.
pub(crate) struct HttpRequests<C: Service<Uri>>(Arc<SharedConnections<C>>);

struct SharedConnections<C: Service<Uri>> {
    connector: C,
    /// The address of the server.
    server: Uri,
    link: Mutex<Link>,
    /// Held while a connection is made.
    connecting: tokio::sync::Mutex<()>,
    /// Speaks to a server that does not offer HTTP/2.
    general: Client<Prepared<C>, Full<Bytes>>,
    /// A connection for the general client.
    prepared: Arc<Mutex<Option<C::Response>>>,
}

/// The connection to the server.
#[derive(Clone)]
enum Link {
    /// No connection.
    None,
    Http2(SendRequest<Bytes>, ConnectionId),
    /// The server does not offer HTTP/2.
    General,
}

impl<C: Service<Uri>> Clone for HttpRequests<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> HttpRequests<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    /// Requests to `server` over connections of `connector`. No request is sent yet.
    pub(crate) fn new(connector: C, server: Uri) -> Self {
        let prepared = Arc::<Mutex<Option<C::Response>>>::default();
        let general = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(Prepared {
                connector: connector.clone(),
                prepared: Arc::clone(&prepared),
            });
        Self(Arc::new(SharedConnections {
            connector,
            server,
            link: Mutex::new(Link::None),
            connecting: tokio::sync::Mutex::new(()),
            general,
            prepared,
        }))
    }
}

impl<C> SharedConnections<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<HttpBody>, BoxError> {
        let link = self.link().clone();
        let (mut sender, connection) = match self.open(link).await? {
            Some(opened) => opened,
            None => {
                let response = self.general.request(request).await?;
                let boxed =
                    |body: hyper::body::Incoming| body.map_err(BoxError::from).boxed_unsync();
                return Ok(response.map(|body| HttpBody::Boxed(boxed(body))));
            }
        };
        let (mut head, mut body) = request.into_parts();
        let body = match body.frame().await {
            Some(frame) => frame?.into_data().unwrap_or_default(),
            None => Bytes::new(),
        };
        let ends = body.is_empty();
        if !ends {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let (answer, mut stream) = sender.send_request(Request::from_parts(head, ()), ends)?;
        if !ends {
            stream.send_data(body, true)?;
        }
        let mut answer = answer.await?;
        answer.extensions_mut().insert(connection);
        Ok(answer.map(HttpBody::Stream))
    }

    /// A connection that accepts requests: the connection of `link`, or a new one. `None` if the server has no HTTP/2.
    async fn open(
        &self,
        link: Link,
    ) -> Result<Option<(SendRequest<Bytes>, ConnectionId)>, BoxError> {
        match link {
            Link::General => return Ok(None),
            // A connection that has ended, or that the server is about to end, takes no request.
            Link::Http2(sender, id) => {
                if let Ok(sender) = sender.ready().await {
                    return Ok(Some((sender, id)));
                }
            }
            Link::None => {}
        }
        let _connecting = self.connecting.lock().await;
        // Another request may have opened a connection in the meantime.
        let link = self.link().clone();
        match link {
            Link::General => return Ok(None),
            Link::Http2(sender, id) => {
                if let Ok(sender) = sender.ready().await {
                    return Ok(Some((sender, id)));
                }
            }
            Link::None => {}
        }
        let connector = self.connector.clone();
        let connection = connector.oneshot(self.server.clone()).await?;
        if !connection.connected().is_negotiated_h2() {
            *lock(&self.prepared) = Some(connection);
            *self.link() = Link::General;
            return Ok(None);
        }
        let (sender, mut connection) = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false)
            .handshake(TokioIo::new(connection))
            .await?;
        let pings = connection.ping_pong();
        tokio::spawn(async move {
            // Streams that are still open fail with the end of the connection.
            tokio::select! {
                result = connection => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "the connection to the API server has ended");
                    }
                }
                () = unanswered(pings) => {
                    tracing::debug!("the connection to the API server does not answer");
                }
            }
        });
        let id = ConnectionId::unique();
        *self.link() = Link::Http2(sender.clone(), id);
        Ok(Some((sender, id)))
    }
}

/// Resolves when the other side does not answer a probe.
async fn unanswered(pings: Option<PingPong>) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        sleep(PING_EVERY).await;
        match timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection itself reports how it has ended.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> Service<Request<Full<Bytes>>> for HttpRequests<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    type Response = Response<HttpBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<HttpBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.send(request).await })
    }
}

/// Creates the connections of the general client. The first one determines the protocols of the server.
struct Prepared<C: Service<Uri>> {
    connector: C,
    prepared: Arc<Mutex<Option<C::Response>>>,
}

impl<C: Service<Uri> + Clone> Clone for Prepared<C> {
    fn clone(&self) -> Self {
        Self {
            connector: self.connector.clone(),
            prepared: Arc::clone(&self.prepared),
        }
    }
}

impl<C> Service<Uri> for Prepared<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Response: Send + 'static,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match lock(&self.prepared).take() {
            Some(connection) => Box::pin(std::future::ready(Ok(connection))),
            None => Box::pin(self.connector.call(server)),
        }
    }
}
