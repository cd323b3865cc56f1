//! Leader election on a Lease, with client-go's semantics, so that Berth and kube-scheduler can be each other's
//! standby.
//!
//! A candidate never compares the times in the record with its own clock: a lease is over when its record has not
//! changed for its duration since this candidate saw it change. The leader renews it every `retry_period` and stops
//! when that has failed for `renew_deadline`. While it leads, a [`Fence`] states until when it may write.
//!
//! Unlike in client-go, a standby reads the lease four times every `retry_period`, so that it acquires a released lease
//! soon, and the leader's deadlines count from the sending of a renewal, not from its answer.

mod lease;
#[cfg(test)]
mod tests;

pub use lease::{LEASES, LeaseLock, Lock};

use crate::ApiError;
use crate::clock;
use crate::fence::Fence;
use berth_api::Time;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The number of reads of the lease by a standby in each `retry_period`.
const LOOKS_PER_RETRY: u32 = 4;
/// Pauses are longer by up to this share at random, so that candidates do not move in step.
const JITTER: f64 = 0.2;

/// Numbers of a Lease have 32 bits; servers refuse larger ones, and then no candidate could lead.
const NUMBER_MAX: u64 = i32::MAX as u64;

const READ: &str = "failed to read the leader lease";

/// The options of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionOptions {
    /// This candidate, as the record names it.
    pub identity: String,
    /// The wait of a standby after the last observed renewal.
    pub lease_duration: Duration,
    /// The time for which the leader retries to renew before it stops. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The pause between two attempts. Shorter than `renew_deadline`.
    pub retry_period: Duration,
}

/// The record that candidates read and write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElectionRecord {
    /// The leader; empty when there is none.
    pub holder: String,
    /// For how long a renewal counts, in seconds.
    pub lease_duration_seconds: u64,
    /// The time of the acquisition by the leader.
    pub acquire_time: Time,
    /// The time of the last renewal by the leader.
    pub renew_time: Time,
    /// The number of times that the leader has changed.
    pub transitions: u64,
}

/// The state of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// Another candidate leads, or none does.
    Standby,
    /// This one leads.
    Leading,
    /// This candidate has lost the leadership and must stop.
    Lost,
    /// This candidate has released the lease.
    Released,
}

/// The status of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionStatus {
    /// The state of this candidate.
    pub leadership: Leadership,
    /// The leader in the record that was seen last; empty when there is none.
    pub leader: String,
    /// The time of the last observed change of the record.
    pub observed: Instant,
    /// The validity of the record after that.
    pub lease_duration: Duration,
    /// The number of times that a renewal needed the record to be read first.
    pub slow_renewals: u64,
}

impl ElectionStatus {
    /// Returns whether a process holds the lease, as last observed: this candidate, another one, or another program.
    pub fn is_lease_held(&self) -> bool {
        !self.leader.is_empty() && self.observed.elapsed() <= self.lease_duration
    }
}

/// A candidate. It ends with [`Election::release`], or when the lease is lost.
pub struct Election {
    /// The status.
    pub status: watch::Receiver<ElectionStatus>,
    /// Until when this process may write.
    pub fence: Fence,
    release: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Election {
    /// Takes part, within the current runtime.
    pub fn start(lock: impl Lock, options: ElectionOptions) -> Self {
        let (status, notified) = watch::channel(ElectionStatus {
            leadership: Leadership::Standby,
            leader: String::new(),
            observed: Instant::now(),
            lease_duration: Duration::ZERO,
            slow_renewals: 0,
        });
        let fence = Fence::closed();
        let (release, released) = oneshot::channel();
        let candidate = Candidate {
            lock,
            jitter: fastrand::Rng::with_seed(clock::seed(&options.identity)),
            options,
            status,
            fence: fence.clone(),
            observed: ElectionRecord::default(),
            observed_at: Instant::now(),
            reported: None,
        };
        Self {
            status: notified,
            fence,
            release,
            task: tokio::spawn(candidate.run(released)),
        }
    }

    /// Releases the lease if this candidate leads, and ends. The work of the leader must have ended before.
    pub async fn release(self) {
        self.fence.close();
        let _ = self.release.send(());
        let _ = self.task.await;
    }
}

struct Candidate<L> {
    lock: L,
    options: ElectionOptions,
    jitter: fastrand::Rng,
    status: watch::Sender<ElectionStatus>,
    fence: Fence,
    /// The record that was read or written last, and when it was seen to change.
    observed: ElectionRecord,
    observed_at: Instant,
    /// The failure that was logged last. It is logged once, not at each look, until a request succeeds.
    reported: Option<(&'static str, String)>,
}

impl<L: Lock> Candidate<L> {
    async fn run(mut self, mut released: oneshot::Receiver<()>) {
        tokio::select! {
            () = self.lead() => {
                self.fence.close();
                self.notify(Leadership::Lost);
            }
            _ = &mut released => {
                self.fence.close();
                if self.is_leader() {
                    self.give_back().await;
                }
                self.notify(Leadership::Released);
            }
        }
    }

    /// Acquires the lease and renews it until that fails.
    async fn lead(&mut self) {
        tracing::info!(
            identity = self.options.identity,
            "attempting to acquire the leader lease"
        );
        loop {
            let acquired = self.acquire_or_renew().await;
            self.notify(if acquired {
                Leadership::Leading
            } else {
                Leadership::Standby
            });
            if acquired {
                break;
            }
            let pause = self.options.retry_period / LOOKS_PER_RETRY;
            sleep(pause.mul_f64(1.0 + JITTER * self.jitter.f64())).await;
        }
        tracing::info!(
            identity = self.options.identity,
            "acquired the leader lease"
        );
        loop {
            sleep(self.options.retry_period).await;
            let began = Instant::now();
            let deadline = self.options.renew_deadline;
            let trying = async {
                // A lease that another candidate holds is lost, independently of its remaining time.
                while !self.acquire_or_renew().await && self.is_leader() {
                    sleep(self.options.retry_period).await;
                }
            };
            if timeout(deadline, trying).await.is_err() {
                let seconds = began.elapsed().as_secs_f64();
                tracing::error!(tried_seconds = seconds, "failed to renew the leader lease");
                return;
            }
            if !self.is_leader() {
                return;
            }
            self.notify(Leadership::Leading);
        }
    }

    /// Takes the lease if it is free, or renews it if this candidate has it. Returns whether this candidate has it now.
    async fn acquire_or_renew(&mut self) -> bool {
        let sent = Instant::now();
        let mut mine = self.fresh_record();
        // The record is most likely as it was: no need to read it.
        if self.is_leader() && self.is_valid(sent) {
            self.keep_term(&mut mine);
            match self.write(&mine, false).await {
                Ok(()) => {
                    self.renewed(mine, sent);
                    return true;
                }
                Err(error) => {
                    tracing::debug!(v = 2, %error, "failed to renew the lease at once, reading it")
                }
            }
        }
        match self.read().await {
            Ok(None) => {
                let sent = Instant::now();
                return match self.write(&mine, true).await {
                    Ok(()) => {
                        self.renewed(mine, sent);
                        true
                    }
                    Err(error) => {
                        self.report("failed to create the leader lease", &error);
                        false
                    }
                };
            }
            Ok(Some(record)) => {
                self.was_read();
                if record != self.observed {
                    self.observed = record;
                    self.observed_at = Instant::now();
                }
            }
            Err(error) => {
                self.report(READ, &error);
                return false;
            }
        }
        let is_free = self.observed.holder.is_empty() || !self.is_valid(Instant::now());
        if !self.is_leader() && !is_free {
            return false;
        }
        if self.is_leader() {
            self.keep_term(&mut mine);
            self.status.send_modify(|status| status.slow_renewals += 1);
        } else {
            let transitions = self.observed.transitions.saturating_add(1);
            mine.transitions = transitions.min(NUMBER_MAX);
        }
        let sent = Instant::now();
        match self.write(&mine, false).await {
            Ok(()) => {
                self.renewed(mine, sent);
                true
            }
            Err(error) => {
                self.report("failed to update the leader lease", &error);
                false
            }
        }
    }

    /// Logs a failed request, unless it failed in the same way before.
    fn report(&mut self, what: &'static str, error: &ApiError) {
        let failure = Some((what, error.to_string()));
        if self.reported == failure {
            tracing::debug!(%error, "{what}");
        } else {
            tracing::error!(%error, "{what}; retrying");
            self.reported = failure;
        }
    }

    /// The lease was read.
    fn was_read(&mut self) {
        if self.reported.take_if(|(what, _)| *what == READ).is_some() {
            tracing::info!("the leader lease can be read again");
        }
    }

    /// A record of this candidate's that begins now.
    fn fresh_record(&self) -> ElectionRecord {
        let now = clock::now();
        ElectionRecord {
            holder: self.options.identity.clone(),
            lease_duration_seconds: self.options.lease_duration.as_secs().min(NUMBER_MAX),
            acquire_time: now,
            renew_time: now,
            transitions: 0,
        }
    }

    /// Continues the current term of this candidate.
    fn keep_term(&self, mine: &mut ElectionRecord) {
        mine.acquire_time = self.observed.acquire_time;
        mine.transitions = self.observed.transitions;
    }

    /// A record of this candidate's was written with a request that was sent then.
    fn renewed(&mut self, mine: ElectionRecord, sent: Instant) {
        let ElectionOptions {
            lease_duration,
            renew_deadline,
            ..
        } = self.options;
        // Requests that are on their way when the fence closes have this long to end.
        let margin = lease_duration.saturating_sub(renew_deadline) / 2;
        self.fence.extend(sent + lease_duration - margin);
        self.observed = mine;
        self.observed_at = sent;
        self.reported = None;
        tracing::debug!(v = 5, "renewed the leader lease");
    }

    fn is_leader(&self) -> bool {
        self.observed.holder == self.options.identity
    }

    /// Returns whether the lease in the record has not run out.
    fn is_valid(&self, now: Instant) -> bool {
        self.observed_at + Duration::from_secs(self.observed.lease_duration_seconds) > now
    }

    /// Gives the lease back, so that another candidate need not wait.
    async fn give_back(&mut self) {
        if let Err(error) = self.read().await {
            tracing::error!(%error, "failed to release the leader lease");
            return;
        }
        let now = clock::now();
        let free = ElectionRecord {
            holder: String::new(),
            lease_duration_seconds: 1,
            acquire_time: now,
            renew_time: now,
            transitions: self.observed.transitions,
        };
        match self.write(&free, false).await {
            Ok(()) => tracing::info!("released the leader lease"),
            Err(error) => tracing::error!(%error, "failed to release the leader lease"),
        }
    }

    /// The time that a single request may take, as in kube-scheduler.
    fn request_timeout(&self) -> Duration {
        self.options.renew_deadline / 2
    }

    async fn read(&mut self) -> Result<Option<ElectionRecord>, ApiError> {
        let limit = self.request_timeout();
        in_time(limit, self.lock.get()).await
    }

    async fn write(&mut self, record: &ElectionRecord, create: bool) -> Result<(), ApiError> {
        let limit = self.request_timeout();
        if create {
            in_time(limit, self.lock.create(record)).await
        } else {
            in_time(limit, self.lock.update(record)).await
        }
    }

    fn notify(&self, leadership: Leadership) {
        self.status.send_modify(|status| {
            if status.leader != self.observed.holder && !self.observed.holder.is_empty() {
                tracing::info!(leader = self.observed.holder, "new leader elected");
            }
            status.leadership = leadership;
            status.leader.clone_from(&self.observed.holder);
            status.observed = self.observed_at;
            status.lease_duration = Duration::from_secs(self.observed.lease_duration_seconds);
        });
    }
}

async fn in_time<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let late = ApiError::Timeout {
        seconds: limit.as_secs(),
    };
    timeout(limit, request).await.unwrap_or(Err(late))
}

/// A name for this process that no other has.
pub fn identity(host: &str) -> String {
    let mut random = fastrand::Rng::with_seed(clock::seed(&format!(
        "{host} {} {}",
        std::process::id(),
        clock::now().as_nanos()
    )));
    let (high, low) = (random.u64(..), random.u64(..));
    // A version 4 UUID: random but for its version and variant.
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{host}_{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Resolves when this candidate leads, or never will.
pub async fn decided(status: &mut watch::Receiver<ElectionStatus>) -> Leadership {
    let decided = status.wait_for(|status| status.leadership != Leadership::Standby);
    match decided.await {
        Ok(status) => status.leadership,
        Err(_) => Leadership::Lost,
    }
}

/// Returns whether a leader has failed to renew its lease for longer than the lease and `tolerance`, and still runs.
pub fn is_overdue(status: &ElectionStatus, lease_duration: Duration, tolerance: Duration) -> bool {
    status.leadership == Leadership::Leading
        && status.observed.elapsed() > lease_duration + tolerance
}
