//! The handling of events by an API that is slow, busy, broken or unreachable. Time is virtual.

use super::publish::Losses;
use super::send::EventApi;
use super::series::{Correlator, FINISH_AFTER, SERIES_MAX, Write};
use super::{
    Event, EventPublisher, NOTE_BYTES_MAX, Publishing, REQUESTS_MAX, RETRY_BUDGET, Regarding,
    WAITING_MAX, truncate,
};
use crate::ApiError;
use crate::request::ApiRequest;
use berth_api::Time;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time that each request takes.
const TAKES: Duration = Duration::from_millis(10);

type Answer = Box<dyn FnMut(&Sent) -> Result<(), ApiError> + Send>;

/// A received request.
#[derive(Debug, Clone)]
struct Sent {
    /// Since the beginning.
    after: Duration,
    /// The number of earlier requests.
    number: usize,
    method: String,
    body: Value,
}

impl Sent {
    fn pod(&self) -> &str {
        self.body["regarding"]["name"].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.body["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }
}

/// An API server with configured answers.
#[derive(Clone)]
struct Fake {
    began: Instant,
    state: Arc<Mutex<State>>,
}

struct State {
    sent: Vec<Sent>,
    under_way: usize,
    under_way_most: usize,
    answer: Answer,
    is_settling: bool,
}

impl Fake {
    fn new(answer: impl FnMut(&Sent) -> Result<(), ApiError> + Send + 'static) -> Self {
        Self {
            began: Instant::now(),
            state: Arc::new(Mutex::new(State {
                sent: Vec::new(),
                under_way: 0,
                under_way_most: 0,
                answer: Box::new(answer),
                is_settling: false,
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has panicked here")
    }

    fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    fn start(&self, waiting_max: usize) -> (EventPublisher, Publishing) {
        EventPublisher::start_with(self.clone(), "test".to_owned(), waiting_max)
    }
}

impl EventApi for Fake {
    async fn send(&self, request: &ApiRequest) -> Result<(), ApiError> {
        let (sent, answer) = {
            let mut state = self.state();
            state.under_way += 1;
            state.under_way_most = state.under_way_most.max(state.under_way);
            let sent = Sent {
                after: self.began.elapsed(),
                number: state.sent.len(),
                method: request.method.to_string(),
                body: serde_json::from_slice(&request.body.json()).expect("a body in JSON"),
            };
            state.sent.push(sent.clone());
            let answer = (state.answer)(&sent);
            (sent, answer)
        };
        sleep(TAKES).await;
        self.state().under_way -= 1;
        drop(sent);
        answer
    }

    fn is_settling(&self) -> bool {
        self.state().is_settling
    }
}

fn refused(code: u16, retry_after_seconds: Option<u64>) -> Result<(), ApiError> {
    Err(ApiError::Status {
        code,
        reason: String::new(),
        message: format!("refused with {code}"),
        retry_after_seconds,
    })
}

fn event(pod: &str, note: &str) -> Event {
    Event {
        regarding: Regarding {
            api_version: "v1".into(),
            kind: "Pod",
            namespace: "ns".into(),
            name: pod.into(),
            uid: "u".into(),
        },
        related: None,
        kind: "Warning",
        reason: "FailedScheduling".into(),
        action: "Scheduling".into(),
        note: note.to_owned(),
        reporting_controller: "default-scheduler".into(),
    }
}

fn reason(pod: &str, reason: &str) -> Event {
    Event {
        reason: reason.into(),
        ..event(pod, "")
    }
}

/// Takes the log down, in this thread.
pub(crate) fn log(
    level: tracing::Level,
) -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    struct Line(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let text = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&text);
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level)
        .without_time()
        .with_writer(move || Line(Arc::clone(&to)))
        .finish();
    (text, tracing::subscriber::set_default(subscriber))
}

pub(crate) fn lines(log: &Mutex<Vec<u8>>) -> Vec<String> {
    let mut log = log.lock().expect("not poisoned");
    let text = String::from_utf8(std::mem::take(&mut *log)).expect("text");
    text.lines().map(|line| line.trim().to_owned()).collect()
}

const LONG: Duration = Duration::from_secs(3600);

/// An event names the object that is related to its own, such as the preemptor of an evicted pod.
#[tokio::test(start_paused = true)]
async fn an_event_names_the_related_object() {
    let api = Fake::new(|_| Ok(()));
    let (publisher, publishing) = api.start(WAITING_MAX);
    let group = Regarding {
        api_version: "scheduling.k8s.io/v1beta1".into(),
        kind: "PodGroup",
        ..event("g", "").regarding
    };
    publisher.publish(event("p", "alone"), Time::EPOCH);
    let preempted = Event {
        related: Some(group),
        ..event("p", "for a group")
    };
    publisher.publish(preempted, Time::EPOCH);
    drop(publisher);
    publishing.finish(LONG).await;
    let sent = api.sent();
    let related: Vec<&Value> = sent.iter().map(|sent| &sent.body["related"]).collect();
    let expected = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "namespace": "ns",
        "name": "g", "uid": "u"});
    assert_eq!(related, [&Value::Null, &expected]);
}

/// A storm of events arrives whole, with a few requests at a time.
#[tokio::test(start_paused = true)]
async fn ten_thousand_events_at_once_all_arrive() {
    const PODS: usize = 10_000;
    let api = Fake::new(|_| Ok(()));
    let (publisher, publishing) = api.start(WAITING_MAX);
    for i in 0..PODS {
        publisher.publish(event(&format!("p{i}"), "wait"), Time::EPOCH);
    }
    drop(publisher);
    publishing.finish(LONG).await;
    let sent = api.sent();
    let pods: HashSet<&str> = sent.iter().map(Sent::pod).collect();
    assert_eq!((sent.len(), pods.len()), (PODS, PODS));
    assert_eq!(api.state().under_way_most, REQUESTS_MAX);
    // One after another they would have taken sixteen times as long.
    let rounds = u32::try_from(PODS.div_ceil(REQUESTS_MAX)).expect("few");
    let took = api.began.elapsed();
    assert!(took < TAKES * (rounds + 2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_succeed_later_is_sent_again() {
    let timeout = || Err(ApiError::Timeout { seconds: 30 });
    let broken = || Err(ApiError::Transport("connection reset".to_owned()));
    for (situation, answers, tries, waited_least) in [
        ("at once", vec![Ok(())], 1, 0),
        (
            "an error of the server",
            vec![refused(500, None), Ok(())],
            2,
            250,
        ),
        (
            "growing pauses",
            vec![
                refused(503, None),
                refused(503, None),
                refused(503, None),
                Ok(()),
            ],
            4,
            1750,
        ),
        (
            "too many requests",
            vec![refused(429, Some(7)), Ok(())],
            2,
            7000,
        ),
        ("no answer", vec![timeout(), broken(), Ok(())], 3, 750),
        (
            "no answer, but it is there",
            vec![timeout(), refused(409, None)],
            2,
            250,
        ),
        ("refused", vec![refused(403, None)], 1, 0),
        ("another event has the name", vec![refused(409, None)], 1, 0),
        (
            "busy for longer than we wait",
            vec![refused(429, Some(600))],
            1,
            0,
        ),
    ] {
        let (log, _guard) = log(tracing::Level::INFO);
        let is_taken = matches!(situation, "no answer, but it is there")
            || answers.last().is_some_and(Result::is_ok);
        let mut answers = answers.into_iter();
        let api = Fake::new(move |_| answers.next().unwrap_or(Ok(())));
        let (publisher, publishing) = api.start(WAITING_MAX);
        publisher.publish(event("p", "n"), Time::EPOCH);
        drop(publisher);
        publishing.finish(LONG).await;
        let sent = api.sent();
        assert_eq!(sent.len(), tries, "{situation}");
        assert!(
            sent.iter().all(|s| s.name() == sent[0].name()),
            "{situation}"
        );
        let waited = sent[tries - 1].after;
        let least = Duration::from_millis(waited_least);
        // Half as long again for jitter, and the requests themselves.
        let most = least.mul_f64(1.5) + TAKES * 10;
        assert!(waited >= least && waited <= most, "{situation}: {waited:?}");
        let notified = lines(&log);
        assert_eq!(notified.is_empty(), is_taken, "{situation}: {notified:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_succeeds_is_given_up_and_reported() {
    let (log, _guard) = log(tracing::Level::INFO);
    let api = Fake::new(|sent| {
        if sent.after < RETRY_BUDGET * 2 {
            refused(500, None)
        } else {
            Ok(())
        }
    });
    let (publisher, publishing) = api.start(WAITING_MAX);
    publisher.publish(event("p", "n"), Time::EPOCH);
    sleep(RETRY_BUDGET * 2).await;
    let tries = api.sent();
    assert!((10..100).contains(&tries.len()), "{}", tries.len());
    let last = tries[tries.len() - 1].after;
    assert!(
        last > RETRY_BUDGET / 2 && last <= RETRY_BUDGET + TAKES * 100,
        "{last:?}"
    );
    assert_eq!(
        lines(&log),
        [
            "WARN failed to publish events count=1 last.reason=\"FailedScheduling\" last.object=\"ns/p\" last.error=\"refused with 500\""
        ]
    );
    // The next occurrence is published like the first.
    api.state().answer = Box::new(|sent| match sent.method.as_str() {
        "PATCH" => refused(404, None),
        _ => Ok(()),
    });
    publisher.publish(event("p", "n"), Time::from_secs(240));
    drop(publisher);
    publishing.finish(LONG).await;
    let after: Vec<String> = api
        .sent()
        .split_off(tries.len())
        .into_iter()
        .map(|s| s.method)
        .collect();
    assert_eq!(after, ["PATCH", "POST"]);
}

/// A server that asks for more time than there is gets no second request.
#[tokio::test(start_paused = true)]
async fn who_asks_for_too_long_is_not_asked_again() {
    for seconds in [RETRY_BUDGET.as_secs() + 1, u64::MAX] {
        let (log, _guard) = log(tracing::Level::INFO);
        let api = Fake::new(move |_| refused(429, Some(seconds)));
        let (publisher, publishing) = api.start(WAITING_MAX);
        publisher.publish(event("p", "n"), Time::EPOCH);
        sleep(RETRY_BUDGET).await;
        assert_eq!(api.sent().len(), 1, "{seconds}");
        assert_eq!(lines(&log).len(), 1, "{seconds}");
        drop(publisher);
        publishing.finish(LONG).await;
    }
}

/// An event that waits for a retry delays only the events of its own object.
#[tokio::test(start_paused = true)]
async fn events_of_an_object_keep_their_order() {
    const REASONS: [&str; 4] = [
        "NotReadyForScheduling",
        "FailedScheduling",
        "Preempted",
        "Scheduled",
    ];
    let mut failures = 0;
    let api = Fake::new(move |sent| {
        // The first event of two pods fails for a while.
        if sent.pod().starts_with("slow") && sent.reason() == REASONS[0] && failures < 6 {
            failures += 1;
            return refused(503, None);
        }
        Ok(())
    });
    let (publisher, publishing) = api.start(WAITING_MAX);
    let pods: Vec<String> = (0..50)
        .map(|i| {
            if i < 2 {
                format!("slow{i}")
            } else {
                format!("p{i}")
            }
        })
        .collect();
    for of in REASONS {
        for pod in &pods {
            publisher.publish(reason(pod, of), Time::EPOCH);
        }
    }
    drop(publisher);
    publishing.finish(LONG).await;
    let sent = api.sent();
    for pod in &pods {
        let mut notified: Vec<&str> = sent
            .iter()
            .filter(|s| s.pod() == pod)
            .map(Sent::reason)
            .collect();
        notified.dedup();
        assert_eq!(notified, REASONS, "{pod}");
    }
    let names: HashSet<&str> = sent.iter().map(Sent::name).collect();
    assert_eq!(
        names.len(),
        pods.len() * REASONS.len(),
        "each has its own name"
    );
    let of = |slow: bool| {
        sent.iter()
            .filter(move |s| s.pod().starts_with("slow") == slow)
    };
    let first_success = of(true)
        .find(|s| s.reason() != REASONS[0])
        .expect("they come through");
    assert!(
        of(false).all(|s| s.number < first_success.number),
        "the others are done by then"
    );
}

/// Only the series of an event is patched, and another note is another event.
#[tokio::test(start_paused = true)]
async fn a_series_never_overtakes_its_event_and_changes_nothing_else() {
    let api = Fake::new(|sent| match sent.number {
        0..4 => refused(500, None),
        _ => Ok(()),
    });
    let (publisher, publishing) = api.start(WAITING_MAX);
    for note in ["a", "a", "b", "a", "a", "b", "b"] {
        publisher.publish(event("p", note), Time::EPOCH);
    }
    sleep(Duration::from_secs(60)).await;
    let methods = |from: usize| -> Vec<String> {
        let sent = api.sent().split_off(from);
        let line = |s: &Sent| {
            format!(
                "{} {}{}",
                s.method, s.body["note"], s.body["series"]["count"]
            )
        };
        sent.iter().map(line).collect()
    };
    let first = r#"POST "a"null"#;
    assert_eq!(
        methods(0),
        [
            first,
            first,
            first,
            first,
            first,
            "PATCH null2",
            r#"POST "b"null"#,
            "PATCH null2"
        ]
    );
    let patch = &api.sent()[5].body;
    let fields: Vec<&String> = patch.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["series"]);
    // Without further events, the last counts are written.
    sleep(FINISH_AFTER + Duration::from_secs(120)).await;
    let mut last = methods(8);
    last.sort();
    assert_eq!(last, ["PATCH null3", "PATCH null4"]);
    drop(publisher);
    publishing.finish(LONG).await;
}

/// A server that has just returned may not have loaded its roles yet.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_server_that_has_just_come_back_is_not_final() {
    for (is_settling, tries) in [(true, 3), (false, 1)] {
        let api = Fake::new(|sent| match sent.number {
            0..2 => refused(403, None),
            _ => Ok(()),
        });
        api.state().is_settling = is_settling;
        let (publisher, publishing) = api.start(WAITING_MAX);
        publisher.publish(event("p", "n"), Time::EPOCH);
        drop(publisher);
        publishing.finish(LONG).await;
        assert_eq!(api.sent().len(), tries, "settling: {is_settling}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_may_wait_are_dropped_counted_and_reported_once_in_a_while() {
    let (log, _guard) = log(tracing::Level::INFO);
    let api = Fake::new(|_| Ok(()));
    let (publisher, publishing) = api.start(100);
    let storm = || {
        for i in 0..250 {
            publisher.publish(event(&format!("p{i}"), ""), Time::EPOCH);
        }
    };
    storm();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(api.sent().len(), 100);
    assert_eq!(lines(&log), Vec::<String>::new());
    // The queue has space again. Repeated events of a series need no request.
    storm();
    sleep(Duration::from_secs(6)).await;
    let notified = "events were dropped: too many waited to be published";
    assert_eq!(lines(&log), [format!("WARN {notified} count=300")]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lines(&log), Vec::<String>::new());
    storm();
    drop(publisher);
    publishing.finish(LONG).await;
    assert_eq!(lines(&log), [format!("WARN {notified} count=150")]);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_events_but_not_for_ever() {
    let (log, _guard) = log(tracing::Level::INFO);
    let api = Fake::new(|_| refused(503, None));
    let (publisher, publishing) = api.start(WAITING_MAX);
    for i in 0..40 {
        publisher.publish(event(&format!("p{i}"), ""), Time::EPOCH);
    }
    // A publisher still exists.
    let patience = Duration::from_secs(1);
    publishing.finish(patience).await;
    assert_eq!(api.began.elapsed(), patience);
    let notified = "events were not published: there was no time left when it was to stop";
    assert_eq!(lines(&log), [format!("WARN {notified} count=40")]);
    let sent = api.sent().len();
    sleep(LONG).await;
    assert_eq!(api.sent().len(), sent, "nothing goes on after the end");
    drop(publisher);
}

#[test]
fn failures_are_logged_in_one_line() {
    let (log, _guard) = log(tracing::Level::INFO);
    let losses = Losses::default();
    let terminating = ApiError::Status {
        code: 403,
        reason: "Forbidden".into(),
        message: "events \"p.1\" is forbidden: unable to create new content in namespace ns because it is being terminated"
            .into(),
        retry_after_seconds: None,
    };
    losses.failed(&event("p", ""), &terminating);
    losses.notify();
    assert_eq!(lines(&log), Vec::<String>::new());
    for code in [403, 422] {
        let error = refused(code, None).expect_err("an error");
        losses.failed(&event("p", ""), &error);
    }
    losses.notify();
    losses.notify();
    let notified = lines(&log);
    assert_eq!(notified.len(), 1, "{notified:?}");
    assert!(
        notified[0].contains("count=2") && notified[0].contains("refused with 422"),
        "{notified:?}"
    );
}

/// The second event makes it a series, silence ends it, and a continuing series is refreshed.
#[test]
fn an_event_that_repeats_grows_a_series() {
    let mut correlator = Correlator::default();
    let at = Time::from_secs;
    let Some(Write::Create(name)) = correlator.take(&event("p", "a"), at(1)) else {
        panic!("the first event is created")
    };
    let grow = |count, last| Write::Grow {
        name: name.clone(),
        count,
        last: at(last),
    };
    assert_eq!(correlator.take(&event("p", "a"), at(2)), Some(grow(2, 2)));
    for second in 3..2_000 {
        assert_eq!(correlator.take(&event("p", "a"), at(second)), None);
    }
    let writes = |due: Vec<(Event, Write)>| -> Vec<Write> {
        due.into_iter().map(|(_, write)| write).collect()
    };
    assert_eq!(
        writes(correlator.tick(at(2_000))),
        [grow(1_999, 1_999)],
        "refreshed"
    );
    assert_eq!(writes(correlator.tick(at(2_001))), []);
    assert_eq!(correlator.take(&event("p", "a"), at(2_002)), None);
    let over = 2_002 + FINISH_AFTER.as_secs() as i64 + 1;
    assert_eq!(
        writes(correlator.tick(at(over))),
        [grow(2_000, 2_002)],
        "finished"
    );
    assert_eq!(correlator.len(), 0);
    // After that it is another event.
    let fresh = correlator.take(&event("p", "a"), at(over));
    assert!(matches!(fresh, Some(Write::Create(other)) if other != name));
}

/// The numbers of client-go's spam filter: 25 at once, then one every five minutes, for each object.
#[test]
fn an_object_has_so_many_events_with_new_notes() {
    let mut correlator = Correlator::default();
    let mut created = |pod: &str, notes: std::ops::Range<u32>, second: i64| {
        let now = Time::from_secs(second);
        let takes = notes.map(|i| correlator.take(&event(pod, &format!("note {i}")), now));
        takes
            .filter(|write| matches!(write, Some(Write::Create(_))))
            .count()
    };
    assert_eq!(created("p", 0..100, 1), 25);
    assert_eq!(created("q", 0..3, 1), 3, "another object has its own");
    assert_eq!(created("p", 100..200, 299), 0);
    assert_eq!(created("p", 200..300, 302), 1);
}

#[test]
fn series_of_a_storm_stay_bounded() {
    let mut correlator = Correlator::default();
    for i in 0..(SERIES_MAX as i64 * 2) {
        correlator.take(&event(&format!("p{i}"), ""), Time::from_millis(i));
    }
    assert!(correlator.len() <= SERIES_MAX);
    // The correlator still knows the latest series.
    let last = event(&format!("p{}", SERIES_MAX * 2 - 1), "");
    let now = Time::from_millis(SERIES_MAX as i64 * 2);
    assert!(matches!(
        correlator.take(&last, now),
        Some(Write::Grow { count: 2, .. })
    ));
}

#[test]
fn names_are_unique_and_no_longer_than_the_api_takes() {
    let mut correlator = Correlator::default();
    let mut names = HashSet::new();
    let long = "x".repeat(253);
    for event in [
        reason("p", "A"),
        reason("p", "B"),
        reason(&long, "A"),
        reason(&long, "B"),
    ] {
        let Some(Write::Create(name)) = correlator.take(&event, Time::from_secs(1)) else {
            panic!("each is new")
        };
        assert!(name.len() <= 253, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 4);
}

#[test]
fn long_notes_are_cut_at_a_character() {
    let mut note = "ä".repeat(600);
    truncate(&mut note);
    assert!(
        note.len() <= NOTE_BYTES_MAX && note.ends_with(" ..."),
        "{}",
        note.len()
    );
    let mut short = "short".to_owned();
    truncate(&mut short);
    assert_eq!(short, "short");
}
