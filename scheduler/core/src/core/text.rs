//! Texts in the format of Go, for comparisons with kube-scheduler.

use berth_api::{Duration, GoDuration};

/// The longest note of an event, in bytes.
const NOTE_BYTES_MAX: usize = 1024;

/// A message as the note of an event: a message longer than 1024 bytes is cut after 1020 bytes and ends with ` ...`
/// (C-49).
pub(crate) fn event_note(message: &str) -> String {
    if message.len() <= NOTE_BYTES_MAX {
        return message.to_owned();
    }
    let mut end = NOTE_BYTES_MAX - 4;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &message[..end])
}

/// A duration in the format of Go: `1h2m3.5s`, `15m0s`, `250ms`, `0s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    GoDuration::from(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_like_gos() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1.5s"),
            (60_000, "1m0s"),
            (900_000, "15m0s"),
            (3_600_000, "1h0m0s"),
            (3_723_500, "1h2m3.5s"),
            (10_000, "10s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(go_duration(Duration::from_nanos(1_500)), "1.5µs");
        assert_eq!(go_duration(Duration::from_nanos(7)), "7ns");
    }

    /// Edge case 227.
    #[test]
    fn notes_are_cut_between_letters() {
        assert_eq!(event_note(&"a".repeat(1024)), "a".repeat(1024));
        assert_eq!(
            event_note(&"a".repeat(1025)),
            format!("{} ...", "a".repeat(1020))
        );
        let umlauts = event_note(&"ä".repeat(600));
        assert_eq!(umlauts, format!("{} ...", "ä".repeat(510)));
    }
}
