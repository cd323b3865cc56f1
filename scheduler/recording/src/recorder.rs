//! Observes a core and passes its inputs and outputs to the writing thread.
//!
//! The core's thread only clones references and puts batches into a bounded queue. If the queue is full, inputs are
//! dropped and counted; the recording continues in a new file that begins with the objects of the cluster.

use crate::call::{describe, describe_in};
use crate::entry::{Entry, JobValue, Start};
use crate::pseudonyms::Pseudonyms;
use crate::writer::{Limits, Writer};
use berth_api::{Object, Time};
use berth_framework::call::{ApiCall, CallId, PodRef};
use berth_scheduler::cache::Cache;
use berth_scheduler::{ClusterChange, CycleResult, ObservedInput, Observer, Outputs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem};

/// The number of batches that may wait to be written.
const BATCHES_MAX: usize = 1024;
/// The number of entries that may wait to be written.
const ENTRIES_MAX: usize = 64 * 1024;
/// A batch of this many entries is handed over.
const BATCH_LEN: usize = 128;
/// A smaller batch is handed over when it is this old.
const BATCH_AGE: berth_api::Duration = berth_api::Duration::from_millis(10);
/// After inputs were dropped, this is how often the recorder tries to continue.
const RETRY_AFTER: berth_api::Duration = berth_api::Duration::from_secs(1);
/// A block is written at least this often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The place and the limits of a recording.
#[derive(Debug)]
pub struct RecorderOptions {
    /// The directory; it is created when it does not exist.
    pub dir: PathBuf,
    /// The limits.
    pub limits: Limits,
    /// The run: when it begins, in milliseconds since 1970. Later runs have larger numbers.
    pub run: u64,
    /// The pseudonyms that replace names and labels, if they are replaced.
    pub pseudonyms: Option<Pseudonyms>,
}

/// The written input: an entry, or an input that becomes one in the thread that writes.
#[derive(Debug, PartialEq)]
enum SeenInput {
    Entry(Entry),
    Called(CallId, ApiCall),
}

enum Message {
    Batch(Vec<(i64, SeenInput)>),
    /// The number of missing inputs, and the objects now.
    Gap {
        nanos: i64,
        dropped: u64,
        objects: Vec<Object>,
        /// The current configuration, if it differs from the one at the start.
        configuration: Option<Arc<str>>,
    },
}

/// The status of a recording while it is written.
#[derive(Debug, Default)]
pub struct RecordingStatus {
    waiting: AtomicUsize,
    dropped: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU64,
    failed: AtomicBool,
    error: Mutex<Option<String>>,
}

impl RecordingStatus {
    /// The number of inputs that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The number of bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of entries that were written.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// The reason why the recording ended early, if it did.
    pub fn error(&self) -> Option<String> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn fail(&self, error: &io::Error) {
        tracing::error!(%error, "failed to write the recording; the scheduler continues without it");
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Records a core: give it to [`Scheduler::observe`](berth_scheduler::Scheduler::observe). The recording ends when it
/// is dropped.
pub struct Recorder {
    sender: SyncSender<Message>,
    status: Arc<RecordingStatus>,
    batch: Vec<(i64, SeenInput)>,
    now: Time,
    sent: Time,
    /// The configuration that was taken over last.
    configuration: Option<Arc<str>>,
    /// The number of inputs that are missing since the queue was full, and when that was noticed last.
    gap: Option<(u64, Time)>,
}

impl Recorder {
    /// Begins a recording: creates the directory and the first file, and starts the thread that writes. The thread ends
    /// after the recorder is dropped.
    ///
    /// # Errors
    /// When the directory or the file cannot be created.
    pub fn start(
        options: RecorderOptions,
        start: Start,
    ) -> io::Result<(Self, Arc<RecordingStatus>, JoinHandle<()>)> {
        let began = Time::from_nanos(start.at_nanos);
        let start = Start {
            pseudonyms: options.pseudonyms.is_some(),
            ..start
        };
        let mut writer = Writer::new(&options.dir, options.run, start, options.limits)?;
        writer.flush()?;
        let mut pseudonyms = options.pseudonyms;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let status = Arc::new(RecordingStatus::default());
        let shared = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("berth-record".to_owned())
            .spawn(move || write_all(&receiver, writer, &mut pseudonyms, &shared))?;
        let recorder = Self {
            sender,
            status: Arc::clone(&status),
            batch: Vec::with_capacity(BATCH_LEN),
            now: began,
            sent: began,
            configuration: None,
            gap: None,
        };
        Ok((recorder, status, thread))
    }

    fn push(&mut self, entry: Entry) {
        self.batch
            .push((self.now.as_nanos(), SeenInput::Entry(entry)));
    }

    fn send(&mut self) {
        let batch = mem::replace(&mut self.batch, Vec::with_capacity(BATCH_LEN));
        self.sent = self.now;
        let len = batch.len();
        let waiting = self.status.waiting.load(Ordering::Relaxed);
        // A list of all objects of a kind is one input, however long it is.
        if waiting == 0 || waiting + len <= ENTRIES_MAX {
            self.status.waiting.fetch_add(len, Ordering::Relaxed);
            match self.sender.try_send(Message::Batch(batch)) {
                Ok(()) => return,
                // The thread has ended after an error that was logged.
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(_)) => {}
            }
            self.status.waiting.fetch_sub(len, Ordering::Relaxed);
        }
        tracing::warn!("inputs of the core are not recorded: the recorder cannot keep up");
        self.gap = Some((0, self.now));
        self.drop_inputs(len as u64);
    }

    fn drop_inputs(&mut self, count: u64) {
        if let Some((dropped, _)) = &mut self.gap {
            *dropped += count;
        }
        self.status.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// After a gap: continues with the objects of the cluster when the queue has room again.
    fn continue_after_gap(&mut self, cache: &Cache) {
        let Some((dropped, noticed)) = self.gap else {
            return;
        };
        let is_drained = self.status.waiting.load(Ordering::Relaxed) < ENTRIES_MAX / 2;
        if !is_drained || self.now.since(noticed) < RETRY_AFTER {
            return;
        }
        let message = Message::Gap {
            nanos: self.now.as_nanos(),
            dropped,
            objects: cache.stored_objects(),
            configuration: self.configuration.clone(),
        };
        self.gap = match self.sender.try_send(message) {
            Ok(()) => None,
            Err(_) => Some((dropped, self.now)),
        };
    }
}

impl Observer for Recorder {
    fn input(&mut self, now: Time, input: ObservedInput<'_>, cache: &Cache) {
        self.now = now;
        if let ObservedInput::Reconfigure(new) = input {
            self.configuration = Some(Arc::clone(&new.source));
        }
        if self.status.failed.load(Ordering::Relaxed) {
            return;
        }
        self.continue_after_gap(cache);
        if self.gap.is_some() {
            self.drop_inputs(1);
            return;
        }
        let is_old = now.since(self.sent) >= BATCH_AGE;
        if self.batch.len() >= BATCH_LEN || (is_old && !self.batch.is_empty()) {
            self.send();
        }
        if self.gap.is_some() {
            self.drop_inputs(1);
            return;
        }
        match input {
            ObservedInput::Apply(ClusterChange::Applied(object)) => {
                self.push(Entry::Apply(object.clone()))
            }
            ObservedInput::Apply(ClusterChange::Deleted(object)) => {
                self.push(Entry::Delete(object.clone()));
            }
            ObservedInput::Apply(ClusterChange::Replaced(kind, objects)) => {
                self.push(Entry::List(*kind, objects.len()));
                for object in objects {
                    self.push(Entry::Item(object.clone()));
                }
            }
            ObservedInput::Complete(id, result) => self.push(Entry::Complete(id, result.clone())),
            ObservedInput::JobDone(id, result) => {
                self.push(Entry::JobDone(id, JobValue::of(result)))
            }
            ObservedInput::Tick => self.push(Entry::Tick),
            ObservedInput::ScheduleOne => self.push(Entry::ScheduleOne),
            ObservedInput::TakeOutputs => self.push(Entry::TakeOutputs),
            ObservedInput::Reconfigure(new) => {
                self.push(Entry::Reconfigure(new.source.to_string()));
            }
            ObservedInput::Close => self.push(Entry::Close),
        }
    }

    fn decided(&mut self, pod: &PodRef, result: &CycleResult) {
        if self.gap.is_none() {
            self.push(Entry::Decided(pod.clone(), result.clone()));
        }
    }

    fn outputs(&mut self, outputs: &Outputs) {
        if self.gap.is_some() {
            return;
        }
        for (id, call) in &outputs.calls {
            let seen = SeenInput::Called(*id, call.clone());
            self.batch.push((self.now.as_nanos(), seen));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.gap.is_none() && !self.status.failed.load(Ordering::Relaxed) {
            self.push(Entry::End);
            // The queue is drained without the core, so this waits for the disk at most.
            let batch = mem::take(&mut self.batch);
            self.status
                .waiting
                .fetch_add(batch.len(), Ordering::Relaxed);
            let _ = self.sender.send(Message::Batch(batch));
        }
    }
}

/// The entry for an input that was seen.
fn entry_of(seen: SeenInput, pseudonyms: &mut Option<Pseudonyms>) -> io::Result<Entry> {
    Ok(match (seen, pseudonyms) {
        (SeenInput::Entry(entry), None) => entry,
        (SeenInput::Entry(entry), Some(pseudonyms)) => pseudonyms.entry(entry)?,
        (SeenInput::Called(id, call), None) => Entry::Called(id, describe(&call)),
        (SeenInput::Called(id, call), Some(pseudonyms)) => {
            Entry::Called(id, describe_in(&call, pseudonyms))
        }
    })
}

fn write_all(
    messages: &Receiver<Message>,
    mut writer: Writer,
    pseudonyms: &mut Option<Pseudonyms>,
    status: &RecordingStatus,
) {
    let mut flushed = Instant::now();
    loop {
        let written = match messages.recv_timeout(FLUSH_EVERY) {
            Ok(Message::Batch(batch)) => {
                let len = batch.len();
                let written = write_batch(&mut writer, batch, pseudonyms);
                status.waiting.fetch_sub(len, Ordering::Relaxed);
                status.entries.fetch_add(len as u64, Ordering::Relaxed);
                written
            }
            Ok(Message::Gap {
                nanos,
                dropped,
                objects,
                configuration,
            }) => {
                tracing::warn!(dropped, "the recording continues after a gap");
                writer.objects = Default::default();
                let taken_over = configuration.map(|text| Entry::Reconfigure(text.to_string()));
                let configured = taken_over.map_or(Ok(()), |entry| {
                    let entry = entry_of(SeenInput::Entry(entry), pseudonyms)?;
                    writer.follow(&entry);
                    Ok(())
                });
                let set = objects.into_iter().try_for_each(|object| {
                    let item = entry_of(SeenInput::Entry(Entry::Item(object)), pseudonyms)?;
                    if let Entry::Item(object) = &item {
                        writer.objects.set(object);
                    }
                    Ok(())
                });
                configured
                    .and(set)
                    .and_then(|()| writer.next_file(nanos, dropped))
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                if let Err(error) = writer.flush() {
                    status.fail(&error);
                }
                status.bytes.store(writer.bytes_total, Ordering::Relaxed);
                return;
            }
        };
        let written = match written {
            Ok(()) if flushed.elapsed() >= FLUSH_EVERY => {
                flushed = Instant::now();
                writer.flush()
            }
            other => other,
        };
        status.bytes.store(writer.bytes_total, Ordering::Relaxed);
        if let Err(error) = written {
            return status.fail(&error);
        }
    }
}

fn write_batch(
    writer: &mut Writer,
    batch: Vec<(i64, SeenInput)>,
    pseudonyms: &mut Option<Pseudonyms>,
) -> io::Result<()> {
    for (nanos, seen) in batch {
        let entry = entry_of(seen, pseudonyms)?;
        // A file begins between two inputs, and never within a list.
        let is_input = !matches!(
            entry,
            Entry::Item(_) | Entry::Decided(..) | Entry::Called(..) | Entry::End
        );
        if is_input && writer.is_full() {
            writer.next_file(nanos, 0)?;
        }
        writer.follow(&entry);
        writer.push(nanos, &entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::node;

    /// A recorder whose queue takes one batch.
    fn recorder() -> (Recorder, Receiver<Message>) {
        let (sender, receiver) = sync_channel(1);
        let recorder = Recorder {
            sender,
            status: Arc::default(),
            batch: Vec::new(),
            now: Time::EPOCH,
            sent: Time::EPOCH,
            configuration: None,
            gap: None,
        };
        (recorder, receiver)
    }

    #[test]
    fn a_full_queue_drops_inputs_counts_them_and_continues_with_the_objects() {
        let (mut recorder, messages) = recorder();
        let mut cache = Cache::default();
        let node = node("n").object();
        cache.set_node(node.as_node().expect("a node").clone());
        let tick = |recorder: &mut Recorder, millis: i64| {
            recorder.input(Time::from_millis(millis), ObservedInput::Tick, &cache);
        };
        // The first batch is sent at 10 ms, the second one finds the queue full at 20 ms.
        for millis in [0, 10, 20, 30] {
            tick(&mut recorder, millis);
        }
        assert_eq!(recorder.status.dropped(), 3);
        let Ok(Message::Batch(batch)) = messages.try_recv() else {
            panic!("no batch");
        };
        assert_eq!(batch, [(0, SeenInput::Entry(Entry::Tick))]);
        recorder.status.waiting.store(0, Ordering::Relaxed);
        tick(&mut recorder, 40);
        assert_eq!(recorder.status.dropped(), 4, "it is too early to continue");
        tick(&mut recorder, 1020);
        assert_eq!(recorder.status.dropped(), 4);
        let Ok(Message::Gap {
            dropped,
            objects,
            nanos,
            ..
        }) = messages.try_recv()
        else {
            panic!("no gap");
        };
        assert_eq!((dropped, nanos), (4, 1_020_000_000));
        assert_eq!(objects, [node]);
        assert_eq!(
            recorder.batch,
            [(1_020_000_000, SeenInput::Entry(Entry::Tick))]
        );
    }

    /// A list of more objects than may wait is one input.
    #[test]
    fn a_long_list_is_recorded() {
        let (mut recorder, messages) = recorder();
        let cache = Cache::default();
        let nodes: Vec<Object> = vec![node("n").object(); ENTRIES_MAX + 1];
        let list = ClusterChange::Replaced(berth_api::Kind::Node, nodes);
        recorder.input(Time::EPOCH, ObservedInput::Apply(&list), &cache);
        recorder.input(Time::EPOCH, ObservedInput::Tick, &cache);
        let Ok(Message::Batch(batch)) = messages.try_recv() else {
            panic!("no batch");
        };
        assert_eq!(batch.len(), ENTRIES_MAX + 2);
        assert_eq!(recorder.status.dropped(), 0);
    }
}
