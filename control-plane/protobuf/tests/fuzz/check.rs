//! The checks of bytes, by the fuzz target and by the test that replays its corpus.

use berth_api::Kind;
use berth_protobuf::envelope::{Envelope, WatchEvent};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Reads bytes as all messages of a server. The results are ignored; the reads must not panic.
pub(crate) fn check(bytes: &[u8]) {
    if let Ok(event) = WatchEvent::read(bytes) {
        object(event.object);
    }
    object(bytes);
}

fn object(bytes: &[u8]) {
    let Ok(envelope) = Envelope::open(bytes) else {
        return;
    };
    let _ = envelope.decode::<Value>();
    let _ = envelope.decode_any_order::<Value>();
    if let Some(kind) = Kind::by_name(envelope.api_version, envelope.kind)
        && let Ok(object) = envelope.object()
    {
        let _ = kind.decode_from(object);
    }
    if let Ok(list) = envelope.list() {
        let _ = list.metadata::<IgnoredAny>();
        for item in list {
            let _ = Kind::Pod.decode_from(item);
            let _ = Kind::Node.decode_from(item);
        }
    }
}
