//! The base of every controller: one task, its own views of the kinds it watches, and a work queue.
//!
//! A controller receives each difference exactly once ([`Controller::observe`]), determines the affected keys, and
//! reconciles one key at a time ([`Controller::reconcile`]). It owns all its state, so there is no lock; the calls of
//! [`Access`] do not wait, so a task never blocks on another.
//!
//! A watch whose channel closes is opened again: the view is compared with a new list and the differences are
//! reported as if the watch had never ended.

mod activity;
mod cache;
mod clock;
mod handle;
mod queue;
mod recorder;

pub use self::activity::Activity;
pub use self::clock::WallClock;
pub use self::handle::Handle;

pub(crate) use self::cache::{Cache, CacheDifference, Index};
pub(crate) use self::recorder::{EventSubject, EventType};

use self::activity::Counter;
use self::queue::WorkQueue;
use self::recorder::Recorder;
use berth_objects::access::{
    Access, AccessError, DeleteOptions, GroupResource, StoredObject, WatchedChange, WatchedChanges,
    unless_not_found,
};
use berth_objects::object::{self, ControllerKey, ControllerKind};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, warn};

/// The number of changes of one watch that are taken in before the queue has its turn.
const CHANGES_PER_TURN: usize = 4096;
/// The number of keys that are worked on before other tasks have their turn.
const KEYS_PER_TURN: u32 = 16;
/// The shortest and longest pause before a closed watch is opened again.
const REOPEN_AFTER: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// A kind to watch and its indexes.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) kind: GroupResource,
    pub(crate) indexes: &'static [Index],
}

/// Shorthand for [`Watch`].
pub(crate) const fn watching(kind: ControllerKind, indexes: &'static [Index]) -> Watch {
    Watch {
        kind: kind.resource,
        indexes,
    }
}

/// A control loop. See the module.
pub(crate) trait Controller: Send + 'static {
    /// The key of its work, one at a time.
    type Key: Clone + Debug + Eq + Hash + Send + 'static;

    /// Its name, as in logs and as the source of its events.
    const NAME: &'static str;
    /// The watched kinds.
    const WATCHES: &'static [Watch] = &[];

    /// The name of a controller whose kind is known at run time only.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The watched kinds, if they are known only at run time.
    fn watches(&self) -> Vec<Watch> {
        Self::WATCHES.to_vec()
    }

    /// The kinds to watch from now on, in addition to the previous kinds.
    fn added(&mut self) -> Vec<Watch> {
        Vec::new()
    }

    /// The kinds that it no longer watches.
    fn removed(&mut self) -> Vec<GroupResource> {
        Vec::new()
    }

    /// Before anything is observed: add keys that are due by time alone.
    fn start(&mut self, _cx: &mut ControllerContext<Self::Key>) {}

    /// An object of `kind` has changed; the view shows it already. Adds the keys that this concerns.
    fn observe(
        &mut self,
        cx: &mut ControllerContext<Self::Key>,
        kind: GroupResource,
        diff: &CacheDifference,
    );

    /// Brings one key closer to where it should be. After an error it is tried again, later and later.
    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<Self::Key>,
        key: &Self::Key,
    ) -> Result<(), AccessError>;
}

/// The context of a controller.
pub(crate) struct ControllerContext<K> {
    api: Arc<dyn Access>,
    clock: WallClock,
    queue: WorkQueue<K>,
    caches: FxHashMap<GroupResource, Cache>,
    /// Differences that the controller's own writes made and that it has not observed yet.
    unobserved: VecDeque<(GroupResource, CacheDifference)>,
    recorder: Recorder,
    nothing: Cache,
    /// Whether a key is being reconciled; keys that are enqueued then are not changes from outside.
    is_working: bool,
    /// Whether the running reconcile has created or deleted objects.
    has_progressed: bool,
}

impl<K: Clone + Eq + Hash> ControllerContext<K> {
    fn new(
        api: Arc<dyn Access>,
        clock: WallClock,
        component: &'static str,
        watches: &[Watch],
    ) -> Self {
        Self {
            api,
            clock,
            queue: WorkQueue::default(),
            caches: watches
                .iter()
                .map(|w| (w.kind, Cache::new(w.indexes)))
                .collect(),
            unobserved: VecDeque::new(),
            recorder: Recorder::new(component),
            nothing: Cache::default(),
            is_working: false,
            has_progressed: false,
        }
    }

    /// The API itself, for reads that must not be stale.
    pub(crate) fn api(&self) -> &dyn Access {
        &*self.api
    }

    /// The time of day.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The view of a watched kind; empty for any other.
    pub(crate) fn cache(&self, kind: ControllerKind) -> &Cache {
        self.cache_of(kind.resource)
    }

    /// As [`ControllerContext::cache`], for kinds that are known at run time only.
    pub(crate) fn cache_of(&self, kind: GroupResource) -> &Cache {
        self.caches.get(&kind).unwrap_or(&self.nothing)
    }

    /// Works on `key` soon.
    pub(crate) fn enqueue(&mut self, key: K) {
        self.enqueue_after(key, Duration::ZERO);
    }

    /// Reconciles `key` after `delay`, unless an earlier time is already set. Repeated requests of a controller for the
    /// same key during its reconciles are delayed.
    pub(crate) fn enqueue_after(&mut self, key: K, delay: Duration) {
        if self.is_working {
            let progressed = self.has_progressed;
            self.queue.add_again(key, delay, progressed, Instant::now());
        } else if delay.is_zero() {
            self.queue.add(key);
        } else {
            self.queue.add_at(key, Instant::now() + delay);
        }
    }

    /// Works on `key` at `time`; as [`ControllerContext::enqueue_after`], also for a time that is over.
    pub(crate) fn enqueue_at(&mut self, key: K, time: jiff::Timestamp) {
        let delay = time.duration_since(self.now());
        self.enqueue_after(key, Duration::try_from(delay).unwrap_or_default());
    }

    /// Creates an object.
    pub(crate) fn create(
        &mut self,
        kind: ControllerKind,
        object: Value,
    ) -> Result<StoredObject, AccessError> {
        let created = self.api.create(kind.resource, object)?;
        self.has_progressed = true;
        self.wrote(kind.resource, &created);
        Ok(created)
    }

    /// Replaces an object.
    pub(crate) fn update(
        &mut self,
        kind: impl Into<GroupResource>,
        object: Value,
    ) -> Result<StoredObject, AccessError> {
        let kind = kind.into();
        let updated = self.api.update(kind, object)?;
        // Taking away the last finalizer of an object that is being deleted ends it.
        if object::is_deleting(&updated) {
            self.refresh(kind, &updated);
        } else {
            self.wrote(kind, &updated);
        }
        Ok(updated)
    }

    /// Replaces the status of an object.
    pub(crate) fn update_status(
        &mut self,
        kind: ControllerKind,
        object: Value,
    ) -> Result<StoredObject, AccessError> {
        let updated = self.api.update_status(kind.resource, object)?;
        self.wrote(kind.resource, &updated);
        Ok(updated)
    }

    /// Gives an object this status, unless it has it already.
    pub(crate) fn write_status(
        &mut self,
        kind: ControllerKind,
        object: &StoredObject,
        status: Value,
    ) -> Result<StoredObject, AccessError> {
        if status == object["status"] {
            return Ok(object.clone());
        }
        let mut new = Value::clone(object);
        new["status"] = status;
        self.update_status(kind, new)
    }

    /// Deletes exactly this object; a missing object is not an error.
    pub(crate) fn delete(
        &mut self,
        kind: impl Into<GroupResource>,
        object: &Value,
    ) -> Result<(), AccessError> {
        self.delete_with(kind, object, DeleteOptions::default())
    }

    /// As [`ControllerContext::delete`], with options.
    pub(crate) fn delete_with(
        &mut self,
        kind: impl Into<GroupResource>,
        object: &Value,
        mut options: DeleteOptions,
    ) -> Result<(), AccessError> {
        let kind = kind.into();
        options.uid = Some(object::uid(object).to_owned());
        let (namespace, name) = (object::namespace(object), object::name(object));
        let result = self.api.delete(kind, namespace, name, &options);
        self.has_progressed |= result.is_ok();
        self.refresh(kind, object);
        unless_not_found(result)
    }

    /// Records an event about an object that reports no problem.
    pub(crate) fn normal(&mut self, regarding: &Value, reason: &str, message: impl Into<String>) {
        self.event(
            EventSubject::of(regarding),
            EventType::Normal,
            reason,
            message.into(),
        );
    }

    /// Records an event about a problem of an object.
    pub(crate) fn warn(&mut self, regarding: &Value, reason: &str, message: impl Into<String>) {
        self.event(
            EventSubject::of(regarding),
            EventType::Warning,
            reason,
            message.into(),
        );
    }

    /// Records an event; a failed write is not an error of the controller.
    pub(crate) fn event(
        &mut self,
        subject: EventSubject<'_>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let now = self.clock.now();
        self.recorder
            .record(&*self.api, now, subject, event_type, reason, message);
    }

    fn wrote(&mut self, kind: GroupResource, object: &StoredObject) {
        if let Some(cache) = self.caches.get_mut(&kind) {
            let differences = cache.put(object.clone());
            self.unobserved
                .extend(differences.into_iter().map(|d| (kind, d)));
        }
    }

    /// Looks again at an object that was deleted or marked.
    fn refresh(&mut self, kind: GroupResource, object: &Value) {
        let Some(cache) = self.caches.get_mut(&kind) else {
            return;
        };
        let uid = object::uid(object);
        let key = ControllerKey::of(object);
        let differences = match self.api.get(kind, &key.namespace, &key.name) {
            Ok(current) if object::uid(&current) == uid => cache.put(current),
            Ok(_) => cache.remove_ahead(&key, uid),
            Err(error) if error.is_not_found() => cache.remove_ahead(&key, uid),
            Err(_) => Vec::new(),
        };
        self.unobserved
            .extend(differences.into_iter().map(|d| (kind, d)));
    }
}

/// The channel of one watch.
struct WatchChannel {
    kind: GroupResource,
    receiver: Option<Box<dyn WatchedChanges>>,
    /// The time of the next attempt to open a closed watch.
    reopen_at: Instant,
    pause: Duration,
}

impl WatchChannel {
    fn new(kind: GroupResource) -> Self {
        Self {
            kind,
            receiver: None,
            reopen_at: Instant::now(),
            pause: REOPEN_AFTER.0,
        }
    }

    fn closed(&mut self) {
        self.receiver = None;
        self.reopen_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(REOPEN_AFTER.1);
    }
}

/// Runs a controller until `stop` becomes true.
async fn run<C: Controller>(
    mut controller: C,
    api: Arc<dyn Access>,
    clock: WallClock,
    counter: Arc<Counter>,
    mut stop: watch::Receiver<bool>,
) {
    let watches = controller.watches();
    let mut cx = ControllerContext::new(api, clock, controller.name(), &watches);
    let mut sources: Vec<WatchChannel> =
        watches.iter().map(|w| WatchChannel::new(w.kind)).collect();
    // All views are filled before the first difference is reported: a controller never acts on half of them.
    for source in &mut sources {
        open(source, &mut cx);
    }
    controller.start(&mut cx);
    let mut turns = 0u32;
    while !*stop.borrow() {
        for source in &mut sources {
            absorb(source, &mut cx);
        }
        observe_all(&mut controller, &mut cx);
        if let Some(key) = cx.queue.pop(Instant::now()) {
            counter.ran();
            work(&mut controller, &mut cx, &key);
            for removed in controller.removed() {
                cx.caches.remove(&removed);
                sources.retain(|source| source.kind != removed);
            }
            for added in controller.added() {
                cx.caches.insert(added.kind, Cache::new(added.indexes));
                sources.push(WatchChannel::new(added.kind));
            }
            turns += 1;
            if turns.is_multiple_of(KEYS_PER_TURN) {
                tokio::task::yield_now().await;
            }
            continue;
        }
        let due = sources
            .iter()
            .filter(|s| s.receiver.is_none())
            .map(|s| s.reopen_at)
            .chain(cx.queue.next_due())
            .min();
        let sleep = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = stop.changed() => if changed.is_err() { return },
            (source, change) = next_change(&mut sources) => take(&mut sources[source], &mut cx, change),
            () = sleep => {}
        }
        counter.woke();
    }
}

fn open<K: Clone + Eq + Hash>(source: &mut WatchChannel, cx: &mut ControllerContext<K>) {
    // The watch begins before the list is read, so that no change falls between the two.
    source.receiver = Some(cx.api.watch(source.kind));
    let list = cx.api.list(source.kind, None);
    if let Some(cache) = cx.caches.get_mut(&source.kind) {
        let differences = cache.reset(list);
        cx.unobserved
            .extend(differences.into_iter().map(|d| (source.kind, d)));
    }
}

fn absorb<K: Clone + Eq + Hash>(source: &mut WatchChannel, cx: &mut ControllerContext<K>) {
    if source.receiver.is_none() && source.reopen_at <= Instant::now() {
        open(source, cx);
    }
    for _ in 0..CHANGES_PER_TURN {
        let Some(receiver) = &mut source.receiver else {
            return;
        };
        match receiver.try_next() {
            Poll::Ready(change) => take(source, cx, change),
            Poll::Pending => return,
        }
    }
}

fn take<K: Clone + Eq + Hash>(
    source: &mut WatchChannel,
    cx: &mut ControllerContext<K>,
    change: Option<WatchedChange>,
) {
    let Some(change) = change else {
        debug!(
            kind = source.kind.resource,
            "a watch closed, it is opened again"
        );
        source.closed();
        return;
    };
    source.pause = REOPEN_AFTER.0;
    if let Some(cache) = cx.caches.get_mut(&source.kind) {
        let differences = cache.apply(change);
        cx.unobserved
            .extend(differences.into_iter().map(|d| (source.kind, d)));
    }
}

/// The next change of any open watch, with the index of the watch; no change when it closed.
async fn next_change(sources: &mut [WatchChannel]) -> (usize, Option<WatchedChange>) {
    std::future::poll_fn(|cx| {
        for (i, source) in sources.iter_mut().enumerate() {
            if let Some(receiver) = &mut source.receiver
                && let Poll::Ready(change) = receiver.poll_next(cx)
            {
                return Poll::Ready((i, change));
            }
        }
        Poll::Pending
    })
    .await
}

fn observe_all<C: Controller>(controller: &mut C, cx: &mut ControllerContext<C::Key>) {
    while let Some((kind, difference)) = cx.unobserved.pop_front() {
        controller.observe(cx, kind, &difference);
    }
}

fn work<C: Controller>(controller: &mut C, cx: &mut ControllerContext<C::Key>, key: &C::Key) {
    cx.is_working = true;
    cx.has_progressed = false;
    // A bug that one object brings out must not end the control of all others.
    let result = catch_unwind(AssertUnwindSafe(|| controller.reconcile(cx, key)));
    match result {
        Ok(Ok(())) => cx.queue.forget(key),
        Ok(Err(error)) => {
            let delay = cx.queue.retry(key.clone(), Instant::now());
            // Another client wrote or deleted the object first: the controller retries, and no warning is needed.
            if error.is_conflict() || error.is_not_found() {
                debug!(controller = controller.name(), ?key, %error, ?delay, "the view was late");
            } else {
                warn!(controller = controller.name(), ?key, %error, ?delay, "will try again");
            }
        }
        Err(_) => {
            cx.queue.retry(key.clone(), Instant::now());
            error!(
                controller = controller.name(),
                ?key,
                "panicked, will try again"
            );
        }
    }
    observe_all(controller, cx);
    cx.is_working = false;
}

#[cfg(test)]
mod tests;
