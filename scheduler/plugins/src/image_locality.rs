//! Prefers nodes that have the images of the pod.
//!
//! An image counts its size times the share of nodes that have it, so that the first node with an image does not
//! attract all pods. The sum is scaled from 23 MiB to 1000 MiB per image to 0 to 100.

use berth_api::{Pod, Str};
use berth_framework::features::Behaviour;
use berth_framework::plugin::{Context, MAX_NODE_SCORE};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeScore;
use berth_framework::table::{ImageState, Images as NodeImages};
use berth_framework::{FeatureGates, NodeTable, NodeView, PodInfo, Slot, Status};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The plugin's name.
pub const NAME: &str = "ImageLocality";

/// The maximum number of images of a pod that are searched individually on a node.
const FEW: usize = 8;
/// One MiB in bytes.
const MIB: i64 = 1024 * 1024;
/// Sums below this size do not count.
const MIN_BYTES: i64 = 23 * MIB;
/// Sizes above this limit per image do not count.
const MAX_BYTES_PER_IMAGE: i64 = 1000 * MIB;

/// Prefers nodes with the pod's images.
#[derive(Debug, Default)]
pub struct ImageLocality;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(ImageLocality)
            .node_score()
            .fragment_version(|cx| Some(cx.cluster.nodes.images().version()))
            .build())
    })
    .args(ArgsKind::None)
    .by_default(Some(1))
}

/// The name under which nodes list an image: with a tag, `latest` when the user wrote none. The part after the last
/// colon is a tag only if it is after the last slash (before it is a registry's port).
fn normalized(image: &Str) -> Str {
    let tagged = match (image.rfind(':'), image.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if tagged {
        image.clone()
    } else {
        Str::new(&format!("{image}:latest"))
    }
}

/// The images of init containers, containers and image volumes.
fn images(pod: &Pod) -> impl Iterator<Item = &Str> {
    let containers = pod.all_containers().map(|container| &container.image);
    let volumes = pod.spec.volumes.iter();
    containers.chain(volumes.filter_map(|volume| Some(&volume.image.as_ref()?.reference)))
}

/// The number of images that the upper threshold counts: containers, and since 1.37 image volumes.
fn counted(pod: &Pod, features: &FeatureGates) -> usize {
    let containers = pod.spec.init_containers.len() + pod.spec.containers.len();
    if features.has(Behaviour::ImageVolumesRaiseImageThreshold) {
        containers
            + pod
                .spec
                .volumes
                .iter()
                .filter(|v| v.image.is_some())
                .count()
    } else {
        containers
    }
}

/// The images of a pod that some node has. Their weight depends on the number of nodes with the image, and on the total
/// number of nodes.
#[derive(Debug, Hash)]
pub struct Images {
    /// Sorted, each with the number of times that the pod names it.
    names: SmallVec<[(Str, i64); 2]>,
    /// The number of images that the upper threshold counts.
    counted: usize,
    /// The number of nodes.
    nodes: usize,
    /// [`NodeTable::images_version`].
    version: u64,
}

impl Images {
    /// `images` are the images of all nodes.
    fn score(&self, node: NodeView<'_>, images: &NodeImages) -> i64 {
        let bytes = |image: ImageState, count: i64| {
            scaled(image.size, image.nodes, self.nodes).saturating_mul(count)
        };
        let sum = if self.names.len() <= FEW {
            let names = self.names.iter();
            let on_node = names.filter_map(|(name, count)| Some(bytes(node.image(name)?, *count)));
            on_node.fold(0, i64::saturating_add)
        } else {
            let of_node = node
                .node()
                .status
                .images
                .iter()
                .flat_map(|image| &image.names);
            let own = |name: &Str| {
                let found = self.names.binary_search_by(|(own, _)| own.cmp(name));
                found.ok()
            };
            let found: BTreeSet<usize> = of_node.filter_map(own).collect();
            let found = found.into_iter().map(|at| &self.names[at]);
            let on_node = found.filter_map(|(name, count)| Some(bytes(images.get(name)?, *count)));
            on_node.fold(0, i64::saturating_add)
        };
        priority(sum, self.counted)
    }
}

/// The score of an image of `size` bytes if `nodes` of `total` nodes have it.
fn scaled(size: i64, nodes: usize, total: usize) -> i64 {
    let spread = nodes as f64 / total as f64;
    (size as f64 * spread) as i64
}

/// Scales a sum of bytes to 0 to 100.
fn priority(bytes: i64, images: usize) -> i64 {
    let images = i64::try_from(images).unwrap_or(i64::MAX);
    let most = MAX_BYTES_PER_IMAGE.saturating_mul(images);
    let bytes = if bytes < MIN_BYTES {
        MIN_BYTES
    } else {
        bytes.min(most)
    };
    let share =
        i128::from(MAX_NODE_SCORE) * i128::from(bytes - MIN_BYTES) / i128::from(most - MIN_BYTES);
    i64::try_from(share).unwrap_or(0)
}

impl NodeScore for ImageLocality {
    type Preference = Images;

    const READS_PODS: bool = false;

    /// `None` if no node has an image of the pod: every node scores zero.
    fn preference(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Images>, Status> {
        let (table, pod) = (&cx.cluster.nodes, &pod.pod);
        let names = images(pod).map(normalized);
        let is_known = |name: &Str| table.images().get(name).is_some();
        let mut known: SmallVec<[Str; 2]> = names.filter(is_known).collect();
        known.sort_unstable();
        let mut names: SmallVec<[(Str, i64); 2]> = SmallVec::new();
        for name in known {
            match names.last_mut() {
                Some((last, count)) if *last == name => *count += 1,
                _ => names.push((name, 1)),
            }
        }
        Ok((!names.is_empty()).then(|| Images {
            names,
            counted: counted(pod, cx.features),
            nodes: table.len(),
            version: table.images().version(),
        }))
    }

    fn rate<'a>(&'a self, images: &'a Images, nodes: &'a NodeTable) -> impl Fn(Slot) -> i64 + 'a {
        move |slot| {
            nodes
                .get(slot)
                .map_or(0, |node| images.score(node, nodes.images()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod_info};
    use berth_api::Release;
    use berth_framework::CycleState;
    use berth_framework::plugin::Score;
    use serde_json::{Value, json};

    /// PL-54: the part after the last colon is a tag only if the colon is after the last slash.
    #[test]
    fn images_get_a_tag() {
        for (image, name) in [
            ("web", "web:latest"),
            ("web:1", "web:1"),
            ("host:5000/web", "host:5000/web:latest"),
            ("host:5000/web:1", "host:5000/web:1"),
            ("host/web@sha256:abc", "host/web@sha256:abc"),
        ] {
            assert_eq!(normalized(&image.into()), name);
        }
    }

    fn node(images: &[i64]) -> Value {
        let images: Vec<Value> = images
            .iter()
            .map(|mib| json!({"names": [format!("i{mib}:latest")], "sizeBytes": mib * MIB}))
            .collect();
        json!({"status": {"images": images}})
    }

    fn containers(images: &[i64]) -> Value {
        images
            .iter()
            .map(|mib| json!({"name": format!("c{mib}"), "image": format!("i{mib}")}))
            .collect()
    }

    /// PL-55: the worked cases, sizes in MiB. For example 250 MiB on one of two nodes, two containers:
    /// (125 − 23)·100 / (2000 − 23) = 5.
    #[test]
    fn the_worked_scores() {
        for (name, spec, nodes, scores) in [
            (
                "40 and 250 apart",
                json!({"containers": containers(&[40, 250])}),
                vec![vec![40], vec![250]],
                vec![0, 5],
            ),
            (
                "40 and 300 together",
                json!({"containers": containers(&[40, 300])}),
                vec![vec![40, 300], vec![]],
                vec![7, 0],
            ),
            (
                "4000 on one of two",
                json!({"containers": containers(&[4000, 10])}),
                vec![vec![4000], vec![10]],
                vec![100, 0],
            ),
            (
                "4000 on one of three",
                json!({"containers": containers(&[4000, 10])}),
                vec![vec![4000], vec![10], vec![]],
                vec![66, 0, 0],
            ),
            (
                "300, 600 and 900",
                json!({"containers": containers(&[300, 600, 900])}),
                vec![vec![600, 900], vec![300, 600, 900], vec![]],
                vec![32, 36, 0],
            ),
            (
                "30 everywhere, 40 once",
                json!({"containers": containers(&[30, 40])}),
                vec![vec![30, 40], vec![30]],
                vec![1, 0],
            ),
            (
                "an image volume",
                json!({"containers": containers(&[1]), "volumes": [{"name": "v", "image": {"reference": "i300"}}]}),
                vec![vec![300], vec![]],
                vec![12, 0],
            ),
            (
                "an init container",
                json!({"initContainers": containers(&[300]), "containers": containers(&[1])}),
                vec![vec![300], vec![]],
                vec![6, 0],
            ),
        ] {
            let mut world = World::new();
            for (i, images) in nodes.iter().enumerate() {
                world = world.node(&format!("n{i}"), node(images));
            }
            assert_eq!(
                world.raw_scores(&ImageLocality, &pod_info("p", spec)),
                scores,
                "{name}"
            );
        }
    }

    /// PL-54: since 1.37 an image volume raises the upper threshold. 250 and 500 MiB on all nodes: (750 − 23)/(1000 −
    /// 23) is 0.744 with one image, and (750 − 23)/(2000 − 23) is 0.367 with two.
    #[test]
    fn image_volumes_raise_the_threshold() {
        let volume = |name: &str, image: &str| json!({"name": name, "image": {"reference": image}});
        for (name, spec, expected) in [
            (
                "a container and an image volume",
                json!({"containers": containers(&[250]), "volumes": [volume("v", "i500")]}),
                [74, 36, 36],
            ),
            (
                "two image volumes of one image",
                json!({"containers": containers(&[250]), "volumes": [volume("v", "i500"), volume("w", "i500")]}),
                // 250 + 500 + 500 = 1250: above one image's 1000, and (1250 − 23)/(3000 − 23).
                [100, 41, 41],
            ),
            (
                "other volumes do not count",
                json!({"containers": containers(&[250]), "volumes": [{"name": "v", "emptyDir": {}}]}),
                [23, 23, 23],
            ),
        ] {
            let mut world = World::new();
            for node_name in ["a", "b"] {
                world = world.node(node_name, node(&[250, 500]));
            }
            for (release, score) in Release::ALL.into_iter().zip(expected) {
                world.features = FeatureGates::of(release);
                let got = world.raw_scores(&ImageLocality, &pod_info("p", spec.clone()));
                assert_eq!(got, [score, score], "{name} in {release}");
            }
        }
    }

    /// PL-56: an image counts for the number of nodes that have it now: when a node is added, deleted or pulls an
    /// image, the scores of the other nodes change. 300 MiB, one container, out of 1000 MiB: 300·(share of nodes) − 23
    /// of 977.
    #[test]
    fn the_scores_of_a_node_follow_the_other_nodes() {
        let pod = pod_info("p", json!({"containers": containers(&[300])}));
        let mut world = World::new();
        for (change, image, scores) in [
            ("one node", Some(("a", vec![300])), vec![28]),
            ("a node without the image", Some(("b", vec![])), vec![12, 0]),
            ("it pulls the image", Some(("b", vec![300])), vec![28, 28]),
            ("a third without it", Some(("c", vec![])), vec![18, 18, 0]),
            ("the second is deleted", None, vec![12, 0]),
        ] {
            let nodes = &mut world.cluster.nodes;
            match image {
                Some((name, images)) => {
                    let node = crate::testing::node(name, node(&images));
                    nodes.set_node(std::sync::Arc::new(node));
                }
                None => drop(nodes.remove_node("b")),
            }
            let (cx, state) = (world.context(), CycleState::default());
            let score = |node| ImageLocality.score(&cx, &state, &pod, node);
            let got: Result<Vec<i64>, Status> = world.cluster.nodes.iter().map(score).collect();
            assert_eq!(got, Ok(scores), "{change}");
        }
    }
}
