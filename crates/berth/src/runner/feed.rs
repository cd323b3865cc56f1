//! Watches every kind that scheduling reads and brings the changes to the core.

use super::Input;
use berth_api::{Kind, Object};
use berth_client::Transport;
use berth_client::reflector::{Followed, Update, follow};
use berth_client::request::Resource;
use berth_scheduler::ClusterChange;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many changes of one kind may be on their way.
const UPDATES_MAX: usize = 256;

/// Pods that have run to their end hold nothing and are not followed.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Starts a watch of every kind.
pub(super) fn start(transport: &Transport, inputs: &mpsc::Sender<Input>) -> Vec<JoinHandle<()>> {
    Kind::ALL
        .iter()
        .flat_map(|kind| {
            let (updates, changes) = mpsc::channel(UPDATES_MAX);
            let followed = followed(*kind);
            let kind = *kind;
            [
                tokio::spawn(follow(
                    transport.clone(),
                    followed,
                    move |json: &[u8]| kind.decode(json),
                    updates,
                )),
                tokio::spawn(bring(kind, changes, inputs.clone())),
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

async fn bring(
    kind: Kind,
    mut updates: mpsc::Receiver<Update<Object>>,
    inputs: mpsc::Sender<Input>,
) {
    while let Some(update) = updates.recv().await {
        let change = match update {
            Update::Replaced(objects) => ClusterChange::Replaced(kind, objects),
            Update::Applied(object) => ClusterChange::Applied(object),
            Update::Deleted(object) => ClusterChange::Deleted(object),
        };
        if inputs.send(Input::Change(change)).await.is_err() {
            return;
        }
    }
}
