//! Candidates on a lease in memory, in paused time.

use super::*;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

/// A lease that several candidates share, and the faults of requests for it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    record: Option<ElectionRecord>,
    /// Requests of this candidate get no answer.
    cut_off: Option<String>,
    /// The time that every request takes.
    latency: Duration,
    writes: usize,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self) -> ElectionRecord {
        self.with(|state| state.record.clone().unwrap_or_default())
    }

    fn candidate(&self, identity: &str) -> Election {
        let lock = Memory {
            shared: self.clone(),
            identity: identity.to_owned(),
            version: 0,
        };
        Election::start(lock, options(identity))
    }
}

fn options(identity: &str) -> ElectionOptions {
    ElectionOptions {
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

struct Memory {
    shared: Shared,
    identity: String,
    version: u64,
}

impl Memory {
    async fn pass(&self) {
        let (latency, is_cut_off) = self.shared.with(|state| {
            let is_cut_off = state.cut_off.as_ref() == Some(&self.identity);
            (state.latency, is_cut_off)
        });
        sleep(latency).await;
        if is_cut_off {
            std::future::pending::<()>().await;
        }
    }

    fn conflict() -> ApiError {
        ApiError::Status {
            code: 409,
            reason: "Conflict".to_owned(),
            message: "the object has been modified".to_owned(),
            retry_after_seconds: None,
        }
    }

    fn write(&mut self, record: &ElectionRecord, expected: u64) -> Result<(), ApiError> {
        let written = self.shared.with(|state| {
            if state.version != expected {
                return Err(Self::conflict());
            }
            state.version += 1;
            state.writes += 1;
            state.record = Some(record.clone());
            Ok(state.version)
        });
        self.version = written?;
        Ok(())
    }
}

impl Lock for Memory {
    async fn get(&mut self) -> Result<Option<ElectionRecord>, ApiError> {
        self.pass().await;
        let (version, record) = self
            .shared
            .with(|state| (state.version, state.record.clone()));
        self.version = version;
        Ok(record)
    }

    async fn create(&mut self, record: &ElectionRecord) -> Result<(), ApiError> {
        self.pass().await;
        self.write(record, 0)
    }

    async fn update(&mut self, record: &ElectionRecord) -> Result<(), ApiError> {
        self.pass().await;
        let expected = self.version;
        self.write(record, expected)
    }
}

fn leads(election: &Election) -> bool {
    election.status.borrow().leadership == Leadership::Leading
}

/// Waits until this candidate leads; returns the duration.
async fn until_leading(election: &mut Election) -> Duration {
    let began = Instant::now();
    let decided = timeout(Duration::from_secs(120), decided(&mut election.status)).await;
    assert_eq!(decided, Ok(Leadership::Leading));
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_of_several_candidates_leads_and_renews() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    assert!(!first.status.borrow().is_lease_held());
    until_leading(&mut first).await;
    let second = shared.candidate("second");
    sleep(Duration::from_secs(100)).await;
    assert!(leads(&first) && first.fence.is_open());
    assert!(!leads(&second) && !second.fence.is_open());
    assert_eq!(second.status.borrow().leader, "first");
    assert!(second.status.borrow().is_lease_held() && first.status.borrow().is_lease_held());
    let record = shared.record();
    assert_eq!((&*record.holder, record.transitions), ("first", 0));
    // Every two seconds, and not more often.
    let writes = shared.with(|state| state.writes);
    assert!((45..=52).contains(&writes), "{writes}");
}

/// Within the duration of the lease and a short look.
#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_when_the_leader_is_gone() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    let mut second = shared.candidate("second");
    sleep(Duration::from_secs(30)).await;
    let began = shared.record().renew_time;
    first.task.abort();
    let took = until_leading(&mut second).await;
    assert!(took <= Duration::from_secs(16), "{took:?}");
    assert!(took >= Duration::from_secs(12), "{took:?}");
    let record = shared.record();
    assert_eq!((&*record.holder, record.transitions), ("second", 1));
    assert!(record.acquire_time >= began);
}

/// The leader's fence closes, and the leader ends, before a standby can lead.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_leads() {
    for latency in [0, 1_000, 3_000] {
        let shared = Shared::default();
        shared.with(|state| state.latency = Duration::from_millis(latency));
        let mut first = shared.candidate("first");
        until_leading(&mut first).await;
        let mut second = shared.candidate("second");
        sleep(Duration::from_secs(30)).await;
        shared.with(|state| state.cut_off = Some("first".to_owned()));
        let fence = first.fence.clone();
        let began = Instant::now();
        let closed = async {
            while fence.is_open() {
                sleep(Duration::from_millis(50)).await;
            }
            Instant::now()
        };
        let (closed, _) = tokio::join!(closed, until_leading(&mut second));
        assert!(closed < Instant::now(), "latency {latency} ms");
        assert!(
            began.elapsed() >= Duration::from_secs(9),
            "latency {latency} ms"
        );
        let lost = first.status.wait_for(|s| s.leadership == Leadership::Lost);
        assert!(timeout(Duration::from_secs(20), lost).await.is_ok());
    }
}

/// A short outage of the API has no effect.
#[tokio::test(start_paused = true)]
async fn a_leader_survives_an_outage_that_is_shorter_than_its_deadline() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    let second = shared.candidate("second");
    sleep(Duration::from_secs(10)).await;
    shared.with(|state| state.cut_off = Some("first".to_owned()));
    sleep(Duration::from_secs(5)).await;
    shared.with(|state| state.cut_off = None);
    sleep(Duration::from_secs(60)).await;
    assert!(leads(&first) && first.fence.is_open() && !leads(&second));
    assert_eq!(shared.record().transitions, 0);
}

/// Within a second, and with the fence closed before the lease is released.
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    let mut second = shared.candidate("second");
    sleep(Duration::from_secs(5)).await;
    let fence = first.fence.clone();
    let mut status = first.status.clone();
    first.release().await;
    assert!(!fence.is_open());
    assert_eq!(status.borrow_and_update().leadership, Leadership::Released);
    let took = until_leading(&mut second).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(shared.record().transitions, 1);
}

/// A lease whose number of transitions is the largest that servers take can be taken all the same.
#[tokio::test(start_paused = true)]
async fn the_number_of_transitions_stays_within_its_field() {
    for (before, after) in [
        (0, 1),
        (2_147_483_646, 2_147_483_647),
        (2_147_483_647, 2_147_483_647),
        (u64::MAX, 2_147_483_647),
    ] {
        let shared = Shared::default();
        shared.with(|state| {
            state.version = 1;
            state.record = Some(ElectionRecord {
                transitions: before,
                ..ElectionRecord::default()
            });
        });
        until_leading(&mut shared.candidate("first")).await;
        assert_eq!(shared.record().transitions, after, "{before}");
    }
}

/// A candidate that does not lead leaves the record as it is.
#[tokio::test(start_paused = true)]
async fn a_standby_releases_nothing() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    let second = shared.candidate("second");
    sleep(Duration::from_secs(3)).await;
    second.release().await;
    assert_eq!(shared.record().holder, "first");
    assert!(leads(&first));
}

/// Another candidate wrote the lease: it is read again before it counts as lost, as in client-go.
#[tokio::test(start_paused = true)]
async fn a_changed_lease_is_read_and_renewed() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    shared.with(|state| state.version += 1);
    sleep(Duration::from_secs(5)).await;
    assert!(leads(&first));
    assert_eq!(first.status.borrow().slow_renewals, 1);
    // A thief has it now, by its record.
    shared.with(|state| {
        state.version += 1;
        if let Some(record) = &mut state.record {
            record.holder = "thief".to_owned();
        }
    });
    let lost = first
        .status
        .wait_for(|s| s.leadership != Leadership::Leading);
    let lost = timeout(Duration::from_secs(20), lost)
        .await
        .expect("an end");
    assert_eq!(lost.map(|s| s.leadership).ok(), Some(Leadership::Lost));
    assert!(!first.fence.is_open());
}

/// The assumptions of readers of the record: whole seconds, and no seconds of a released lease that delay others.
#[tokio::test(start_paused = true)]
async fn a_released_record_delays_no_candidate() {
    let shared = Shared::default();
    let mut first = shared.candidate("first");
    until_leading(&mut first).await;
    assert_eq!(shared.record().lease_duration_seconds, 15);
    first.release().await;
    let record = shared.record();
    assert_eq!((&*record.holder, record.lease_duration_seconds), ("", 1));
}

#[test]
fn identities_are_a_host_and_a_uuid() {
    let identity = identity("host");
    let (host, uuid) = identity.split_once('_').expect("two parts");
    assert_eq!(host, "host");
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
    assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
    assert!(
        uuid.split('-')
            .all(|part| u64::from_str_radix(part, 16).is_ok())
    );
}
