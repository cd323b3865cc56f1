//! Watches every kind that scheduling reads and brings the changes to the core.

use super::Input;
use berth_api::{Kind, Object};
use berth_client::Transport;
use berth_client::extender::raw::{Raw, RawObjects};
use berth_client::reflector::{Followed, Update, follow};
use berth_client::request::Resource;
use berth_scheduler::ClusterChange;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many changes of one kind may be on their way.
const UPDATES_MAX: usize = 256;

/// Pods that have run to their end hold nothing and are not followed.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Starts a watch of every kind.
pub(super) fn start(
    transport: &Transport,
    inputs: &mpsc::Sender<Input>,
    raw: &Arc<RawObjects>,
) -> Vec<JoinHandle<()>> {
    Kind::ALL
        .iter()
        .flat_map(|kind| {
            let (updates, changes) = mpsc::channel(UPDATES_MAX);
            let followed = followed(*kind);
            let (kind, kept) = (*kind, raw.clone());
            let decode = move |json: &[u8]| {
                let object = kind.decode(json)?;
                let raw = kept.of(&object, json);
                Ok((object, raw))
            };
            [
                tokio::spawn(follow(transport.clone(), followed, decode, updates)),
                tokio::spawn(bring(kind, changes, inputs.clone(), raw.clone())),
            ]
        })
        .collect()
}

fn followed(kind: Kind) -> Followed {
    let (group, version, plural) = kind.resource();
    Followed {
        resource: Resource {
            group,
            version,
            plural,
        },
        field_selector: if kind == Kind::Pod { LIVE_PODS } else { "" },
        optional: !Kind::ESSENTIAL.contains(&kind),
    }
}

/// Brings the changes of a kind to the core; before it, the JSON that extenders may be asked with to where that is kept.
async fn bring(
    kind: Kind,
    mut updates: mpsc::Receiver<Update<(Object, Option<Raw>)>>,
    inputs: mpsc::Sender<Input>,
    raw: Arc<RawObjects>,
) {
    while let Some(update) = updates.recv().await {
        let change = match update {
            Update::Replaced(objects) => {
                let told = objects.iter().map(|(object, raw)| (object, raw.as_ref()));
                raw.replace(kind, told);
                let objects = objects.into_iter().map(|(object, _)| object);
                ClusterChange::Replaced(kind, objects.collect())
            }
            Update::Applied((object, json)) => {
                raw.set(&object, json);
                ClusterChange::Applied(object)
            }
            Update::Deleted((object, _)) => {
                raw.set(&object, None);
                ClusterChange::Deleted(object)
            }
        };
        if inputs.send(Input::Change(change)).await.is_err() {
            return;
        }
    }
}
