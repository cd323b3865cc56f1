//! Disagreements as decision cases: files that `berth conformance decisions` replays.

use super::report::Disagreement;
use berth_api::{Object, Pod, Time};
use berth_scheduler::Scheduler;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The number of cases that are saved; later disagreements are only counted.
const CASES_MAX: usize = 100;

/// Saves cases in a directory.
pub(crate) struct Cases {
    dir: PathBuf,
    /// The configuration of the scheduler.
    config: Value,
    saved: usize,
    /// The threads that write.
    writing: Vec<JoinHandle<()>>,
}

impl Cases {
    /// Cases are written to this directory, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn new(dir: PathBuf, config: Value) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            config,
            saved: 0,
            writing: Vec::new(),
        })
    }

    /// Saves the cluster, the pod and the decision of the other scheduler; returns the file. It is written by another
    /// thread.
    pub(super) fn save(
        &mut self,
        scheduler: &Scheduler,
        pod: &Pod,
        disagreement: &Disagreement,
        now: Time,
    ) -> Option<String> {
        if self.saved >= CASES_MAX {
            return None;
        }
        self.saved += 1;
        let uid = pod.uid().clone();
        let mut objects = scheduler.cache().stored_objects();
        objects.retain(|object| object.metadata().uid != uid || object.as_pod().is_none());
        let mut pending = pod.clone();
        pending.spec.node_name = Default::default();
        let outcome = match &*pod.spec.node_name {
            "" => {
                json!({"unschedulable": disagreement.other.trim_start_matches("unschedulable: ")})
            }
            node => json!({"bound": node}),
        };
        let id = format!("shadow-{}-{}", now.as_nanos() / 1_000_000, self.saved);
        let path = self.dir.join(format!("{id}.jsonl.gz"));
        let config = self.config.clone();
        let shown = path.display().to_string();
        let write = move || {
            let written = write(
                &path,
                &id,
                &objects,
                &Object::Pod(pending.into()),
                &config,
                &outcome,
            );
            if let Err(error) = written {
                tracing::error!(file = %path.display(), %error, "failed to save a decision case");
            }
        };
        match std::thread::Builder::new()
            .name("berth-case".to_owned())
            .spawn(write)
        {
            Ok(thread) => {
                self.writing.push(thread);
                Some(shown)
            }
            Err(error) => {
                tracing::error!(%error, "failed to save a decision case");
                None
            }
        }
    }

    /// Waits until every case is written.
    pub(crate) fn wait(self) {
        for thread in self.writing {
            // A panic of a writing thread is ignored; only its case is missing.
            let _ = thread.join();
        }
    }
}

fn write(
    path: &Path,
    id: &str,
    objects: &[Object],
    pod: &Object,
    config: &Value,
    outcome: &Value,
) -> io::Result<()> {
    let mut file = GzEncoder::new(File::create(path)?, Compression::fast());
    let case = json!({
        "id": id,
        "objects": objects.iter().map(value).collect::<Vec<_>>(),
        "pod": value(pod),
        "config": config,
        "expect": {"outcome": outcome},
    });
    serde_json::to_writer(&mut file, &case)?;
    file.write_all(b"\n")?;
    file.finish()?;
    Ok(())
}

/// An object as the API has it, as far as Berth reads it.
fn value(object: &Object) -> Value {
    let (group, version, _) = object.kind().resource();
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = match group {
        "" => version.into(),
        group => format!("{group}/{version}").into(),
    };
    value["kind"] = object.kind().name().into();
    without_nulls(&mut value);
    value
}

/// A field that is not set is left out, as the API does.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
