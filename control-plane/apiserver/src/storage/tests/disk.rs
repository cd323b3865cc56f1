//! The store on a disk that loses power, has no space, or fails to write or to sync, at any of its operations.
//!
//! The writes, the fault and the time of the fault are derived from one seed. After the fault, the store is opened
//! again from the contents of the disk. Every acknowledged write must be present, the state must be a previous state of
//! the store, and watches must continue from any revision of the kept history.

use super::*;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Runs in `cargo test`, and in the ignored test.
const RUNS: u64 = 60;
const RUNS_MANY: u64 = 3_000;
/// The number of times that the store is opened on one disk.
const ROUNDS: usize = 4;
/// Writes of one round.
const WRITES_MAX: usize = 120;
const NAMES: u64 = 12;
/// The bits of a database that are flipped, one at a time.
const FLIPPED_BITS: usize = 200;
const FLIPPED_SEED: u64 = 0x0b17_f11b;

/// The fault at an operation of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Each write since the last sync is lost, kept or torn independently. All further operations fail.
    PowerLoss,
    /// Writes fail: the disk is full.
    NoSpace,
    /// Writes fail.
    Write,
    /// The sync fails. Its data may or may not be on the disk.
    Sync,
}

#[derive(Debug)]
enum Unsynced {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Debug)]
struct State {
    /// The bytes that are certainly on the disk.
    synced: Vec<u8>,
    /// The bytes that the operating system shows.
    shown: Vec<u8>,
    unsynced: Vec<Unsynced>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    failed: bool,
    random: fastrand::Rng,
}

/// A disk. Cloning shares.
#[derive(Debug, Clone)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            synced: Vec::new(),
            shown: Vec::new(),
            unsynced: Vec::new(),
            operations: 0,
            fault: None,
            failed: false,
            random: fastrand::Rng::with_seed(seed),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault happens after `operations` more operations.
    fn arm(&self, operations: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + operations, fault));
    }

    /// The disk as the next process finds it.
    fn after_restart(&self) -> Self {
        let mut state = self.state();
        let bytes = state.shown.clone();
        Self(Arc::new(Mutex::new(State {
            synced: bytes.clone(),
            shown: bytes,
            unsynced: Vec::new(),
            operations: 0,
            fault: None,
            failed: false,
            random: state.random.fork(),
        })))
    }
}

impl State {
    /// Counts an operation. Returns an error for the failing operation.
    fn operate(&mut self, is_sync: bool) -> io::Result<()> {
        self.operations += 1;
        let fault = match self.fault {
            Some((at, fault)) if self.operations >= at => fault,
            _ => return Ok(()),
        };
        match (fault, is_sync) {
            (Fault::PowerLoss, _) => {
                if !self.failed {
                    self.lose_power();
                }
                Err(io::Error::other("the machine is off"))
            }
            (Fault::NoSpace, false) => Err(io::ErrorKind::StorageFull.into()),
            (Fault::Write, false) | (Fault::Sync, true) => {
                Err(io::Error::other("input/output error"))
            }
            _ => Ok(()),
        }
        .inspect_err(|_| self.failed = true)
    }

    fn lose_power(&mut self) {
        let mut bytes = std::mem::take(&mut self.synced);
        for operation in self.unsynced.drain(..) {
            match operation {
                Unsynced::Write(offset, data) => {
                    let kept = match self.random.u8(..3) {
                        0 => 0,
                        1 => self.random.usize(..=data.len()),
                        _ => data.len(),
                    };
                    if bytes.len() < offset + kept {
                        bytes.resize(offset + kept, 0);
                    }
                    bytes[offset..offset + kept].copy_from_slice(&data[..kept]);
                }
                Unsynced::SetLen(len) => bytes.resize(len, 0),
            }
        }
        self.shown = bytes;
    }
}

fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().shown.len() as u64)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let at = offset(at);
        let bytes = state.shown.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.operate(false)?;
        state.shown.resize(offset(len), 0);
        state.unsynced.push(Unsynced::SetLen(offset(len)));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.operate(true)?;
        let unsynced = std::mem::take(&mut state.unsynced);
        for operation in unsynced {
            match operation {
                Unsynced::Write(at, data) => {
                    if state.synced.len() < at + data.len() {
                        state.synced.resize(at + data.len(), 0);
                    }
                    state.synced[at..at + data.len()].copy_from_slice(&data);
                }
                Unsynced::SetLen(len) => state.synced.resize(len, 0),
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.operate(false)?;
        let at = offset(at);
        let Some(bytes) = state.shown.get_mut(at..at + data.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        bytes.copy_from_slice(data);
        state.unsynced.push(Unsynced::Write(at, data.to_vec()));
        Ok(())
    }
}

/// Names and their revisions.
type Live = BTreeMap<String, u64>;

/// A change, as the writer knows it: its revision, the kind of event, the name, and the previous revision.
type Known = (u64, EventKind, String, Option<u64>);

/// The expected state of the store.
#[derive(Debug, Default)]
struct Model {
    live: Live,
    changes: Vec<Known>,
    /// The newest revision that was acknowledged.
    acknowledged: u64,
}

impl Model {
    /// The objects as they were at a revision.
    fn at(&self, revision: u64) -> Live {
        let mut live = Live::new();
        for (at, kind, name, _) in &self.changes {
            if *at > revision {
                break;
            }
            match kind {
                EventKind::Deleted => live.remove(name),
                _ => live.insert(name.clone(), *at),
            };
        }
        live
    }

    /// Writes something.
    fn write(&mut self, store: &ObjectStore, random: &mut fastrand::Rng) {
        let name = format!("n{}", random.u64(..NAMES));
        let before = self.live.get(&name).copied();
        let mut object = object(&name);
        object["spec"]["x"] = random.u32(..).into();
        object["spec"]["padding"] = "x".repeat(random.usize(..3_000)).into();
        let (kind, written) = match before {
            None => (EventKind::Created, store.create(KIND, &name, object)),
            Some(revision) if random.u8(..3) == 0 => {
                let deleted = store.delete(KIND, &name, revision, object);
                (EventKind::Deleted, deleted)
            }
            Some(revision) => {
                let replaced = store.replace(KIND, &name, revision, object);
                (EventKind::Updated, replaced)
            }
        };
        let revision = match written {
            Ok(version) => version.revision(),
            Err(e) => panic!("{kind:?} {name}: {e}"),
        };
        match kind {
            EventKind::Deleted => self.live.remove(&name),
            _ => self.live.insert(name.clone(), revision),
        };
        self.changes.push((revision, kind, name, before));
    }

    /// Compares the store with its expected state after a restart, and forgets lost changes.
    fn verify(&mut self, store: &ObjectStore, random: &mut fastrand::Rng) {
        let revision = store.revision();
        assert!(
            revision >= self.acknowledged,
            "revision {revision} is older than the acknowledged {}",
            self.acknowledged
        );
        let page = match store.list(KIND, &ListQuery::default()) {
            Ok(page) => page,
            Err(e) => panic!("list: {e}"),
        };
        let live: Live = page
            .items
            .iter()
            .map(|v| {
                let name = v.object()["metadata"]["name"].as_str().map(str::to_owned);
                (name.unwrap_or_default(), v.revision())
            })
            .collect();
        assert_eq!(live, self.at(revision), "the state of revision {revision}");
        let from = random.u64(1..=revision);
        match store.watch_after(KIND, from) {
            Ok(mut cursor) => {
                let Ok((events, _)) = cursor.read(usize::MAX) else {
                    panic!("the cursor starts in the history");
                };
                let seen: Vec<Known> = events
                    .iter()
                    .map(|e| {
                        let previous = e.previous.as_ref().map(|p| p.revision());
                        (e.revision(), e.kind, e.key.to_string(), previous)
                    })
                    .collect();
                let expect: Vec<Known> = self
                    .changes
                    .iter()
                    .filter(|(at, ..)| *at > from && *at <= revision)
                    .cloned()
                    .collect();
                assert_eq!(seen, expect, "changes after {from}");
            }
            Err(StoreError::Expired { requested, oldest }) => {
                assert!(
                    requested < oldest && oldest <= revision,
                    "{requested} {oldest}"
                );
            }
            Err(e) => panic!("watch: {e}"),
        }
        self.changes.retain(|(at, ..)| *at <= revision);
        self.live = live;
    }
}

fn open(disk: &Disk) -> Result<ObjectStore, DataDirError> {
    let limits = HistoryLimits {
        age_min: Duration::ZERO,
        events_min: 20,
        events_max: 40,
        ..HistoryLimits::default()
    };
    let data = DataDir::with_backend(Path::new("/data"), disk.clone())?;
    ObjectStore::open(vec!["pods".to_owned(), "nodes".to_owned()], limits, data)
}

async fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut disk = Disk::new(random.u64(..));
    let mut model = Model::default();
    // A new database gets its name when it is complete, so that it has no faults.
    assert!(open(&disk).is_ok());
    for _ in 0..ROUNDS {
        let fault =
            [Fault::PowerLoss, Fault::NoSpace, Fault::Write, Fault::Sync][random.usize(..4)];
        let spread = if random.bool() { 40 } else { 600 };
        disk.arm(random.u64(1..spread), fault);
        if let Ok(store) = open(&disk) {
            model.verify(&store, &mut random);
            for _ in 0..random.usize(..WRITES_MAX) {
                model.write(&store, &mut random);
                if random.u8(..8) == 0 {
                    store.compact();
                }
                if random.u8(..4) == 0 {
                    let revision = store.revision();
                    match store.settle().await {
                        Ok(()) => model.acknowledged = revision,
                        Err(Unsettled::Failed(why)) => {
                            assert!(why.contains("/data"), "{why}");
                            break;
                        }
                        Err(Unsettled::Late) => panic!("the disk does not answer"),
                    }
                }
            }
        }
        disk = disk.after_restart();
        let store = match open(&disk) {
            Ok(store) => store,
            Err(e) => panic!("after {fault:?}: {e}"),
        };
        model.verify(&store, &mut random);
    }
}

async fn run_many(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        // Shown when the run fails.
        eprintln!("seed {seed}");
        run(seed).await;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_faults_of_the_disk() {
    run_many(0..RUNS).await;
}

#[tokio::test]
#[ignore = "long; a step of .ci/run"]
async fn acknowledged_writes_survive_many_faults_of_the_disk() {
    run_many(RUNS..RUNS_MANY).await;
}

/// The objects of the store on a disk.
fn contents(disk: &Disk) -> Result<Vec<Value>, DataDirError> {
    let page = open(disk)?.list(KIND, &ListQuery::default());
    let items = page.map(|page| page.items).unwrap_or_default();
    Ok(items.iter().map(|v| Value::clone(&v.object())).collect())
}

#[tokio::test]
async fn a_flipped_bit_is_found_or_is_in_no_page_that_is_in_use() {
    let disk = Disk::new(FLIPPED_SEED);
    let mut random = fastrand::Rng::with_seed(FLIPPED_SEED);
    let mut model = Model::default();
    let store = open(&disk).expect("an empty disk can be used");
    for _ in 0..WRITES_MAX {
        model.write(&store, &mut random);
    }
    assert_eq!(store.settle().await, Ok(()));
    store.close();
    drop(store);
    let expected = contents(&disk.after_restart()).expect("the disk can be used");
    assert!(!expected.is_empty());
    let mut found = 0;
    for _ in 0..FLIPPED_BITS {
        let damaged = disk.after_restart();
        let at = {
            let mut state = damaged.state();
            let at = random.usize(..state.shown.len());
            state.shown[at] ^= 1 << random.u8(..8);
            state.synced = state.shown.clone();
            at
        };
        match contents(&damaged) {
            Ok(contents) => assert!(contents == expected, "seed {FLIPPED_SEED}, byte {at}"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("is damaged"),
                    "seed {FLIPPED_SEED}, byte {at}: {text}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 0, "seed {FLIPPED_SEED}");
}

#[tokio::test]
async fn a_change_is_visible_when_it_is_on_the_disk() {
    let disk = Disk::new(1);
    let Ok(store) = open(&disk) else {
        panic!("an empty disk can be used");
    };
    let first = create(&store, "a");
    assert_eq!(store.settle().await, Ok(()));
    let Ok(mut cursor) = store.watch_after(KIND, 1) else {
        panic!("the history reaches back");
    };
    assert_eq!(cursor.read(10).map(|(events, _)| events.len()), Ok(1));
    // The next sync fails: the second change is in memory, and no watcher sees it.
    disk.arm(0, Fault::Sync);
    let second = create(&store, "b");
    assert!(matches!(store.settle().await, Err(Unsettled::Failed(_))));
    assert_eq!(
        cursor.read(10).map(|(events, to)| (events.len(), to)),
        Ok((0, Some(first)))
    );
    let late = store.reached(second, Duration::from_millis(1)).await;
    assert_eq!(
        late,
        Err(StoreError::Future {
            requested: second,
            current: first
        })
    );
    assert!(store.failed().await.contains("input/output error"));
}

#[tokio::test]
async fn compaction_leaves_live_objects_and_the_kept_history_on_the_disk() {
    let disk = Disk::new(1);
    let Ok(store) = open(&disk) else {
        panic!("an empty disk can be used");
    };
    create(&store, "stays");
    for i in 0..500 {
        let revision = create(&store, &format!("k{i}"));
        let name = format!("k{i}");
        assert!(store.delete(KIND, &name, revision, object(&name)).is_ok());
    }
    store.compact();
    assert_eq!(store.settle().await, Ok(()));
    drop(store);
    let Ok(data) = DataDir::with_backend(Path::new("/data"), disk.after_restart()) else {
        panic!("the disk can be used");
    };
    let mut revisions = Vec::new();
    let kinds = ["pods".to_owned(), "nodes".to_owned()];
    assert!(
        data.load(&kinds, |_, _| (), |r| revisions.push(r.version.revision()))
            .is_ok()
    );
    // The live object, and the 20 newest of 1,001 changes: 10 creations and 10 deletions.
    assert_eq!(revisions.len(), 21, "{revisions:?}");
    assert_eq!(revisions.first(), Some(&2));
}
