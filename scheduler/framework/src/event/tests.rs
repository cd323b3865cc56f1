//! Matching, numbers and names of cluster events.

use super::*;

fn event(resource: EventResource, action: ActionType) -> ClusterEvent {
    ClusterEvent::new(resource, action)
}

/// resource equal, bits overlap, and the incoming action is numerically covered.
#[test]
fn a_registration_matches_what_it_covers() {
    use ActionType as A;
    use EventResource as R;
    for (registered, raised, received) in [
        (
            event(R::Pod, A::DELETE),
            event(R::AssignedPod, A::DELETE),
            true,
        ),
        (
            event(R::Pod, A::ADD),
            event(R::AssignedPod, A::DELETE),
            false,
        ),
        (
            event(R::Node, A::ADD | A::UPDATE_NODE_TAINT),
            event(R::Node, A::UPDATE_NODE_TAINT),
            true,
        ),
        (event(R::Node, A::ADD), event(R::Pod, A::ADD), false),
        (
            event(R::Pod, A::UPDATE_POD_LABEL),
            event(R::UnschedulablePod, A::UPDATE),
            false,
        ),
        (
            event(R::Pod, A::UPDATE),
            event(R::UnschedulablePod, A::UPDATE),
            true,
        ),
        (event(R::Wildcard, A::ALL), event(R::Node, A::ADD), true),
    ] {
        assert_eq!(
            registered.matches(&raised),
            received,
            "{registered:?} receives {raised:?}"
        );
    }
}

/// the numbers are kube-scheduler's, because their order decides which registration receives an event.
#[test]
fn actions_are_bits() {
    let numbers: Vec<u32> = ActionType::ALL.bits().map(|(bit, _)| bit.0).collect();
    assert_eq!(
        numbers,
        [
            1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384
        ]
    );
    let names: Vec<&str> = ActionType::ALL.bits().map(|(_, name)| name).collect();
    assert_eq!(
        names.join(" "),
        "Add Delete UpdateNodeAllocatable UpdateNodeLabel UpdateNodeTaint UpdateNodeCondition UpdateNodeAnnotation UpdateNodeDeclaredFeature UpdateNodePreemptionPolicy UpdatePodLabel UpdatePodScaleDown UpdatePodScaleUp UpdatePodToleration UpdatePodSchedulingGatesEliminated UpdatePodGeneratedResourceClaim"
    );
    assert_eq!((ActionType::UPDATE.0, ActionType::ALL.0), (32764, 32767));
    assert_eq!(ActionType::default().0, 0);
    assert_eq!(ActionType::UPDATE.bits().count(), 13);
}

/// the names of resources, and which events a registration for each receives.
#[test]
fn resources_have_names() {
    use EventResource as R;
    let other = R::Other("foos.v1.example.com".into());
    for (resource, name) in [
        (R::Pod, "Pod"),
        (R::AssignedPod, "AssignedPod"),
        (R::UnschedulablePod, "UnschedulablePod"),
        (R::UnscheduledPod, "UnscheduledPod"),
        (R::TargetPod, "TargetPod"),
        (R::Node, "Node"),
        (R::PersistentVolume, "PersistentVolume"),
        (R::PersistentVolumeClaim, "PersistentVolumeClaim"),
        (R::CsiNode, "storage.k8s.io/CSINode"),
        (R::CsiDriver, "storage.k8s.io/CSIDriver"),
        (R::VolumeAttachment, "storage.k8s.io/VolumeAttachment"),
        (R::CsiStorageCapacity, "storage.k8s.io/CSIStorageCapacity"),
        (R::StorageClass, "storage.k8s.io/StorageClass"),
        (R::ResourceClaim, "resource.k8s.io/ResourceClaim"),
        (R::ResourceSlice, "resource.k8s.io/ResourceSlice"),
        (R::DeviceClass, "resource.k8s.io/DeviceClass"),
        (R::PodGroup, "scheduling.k8s.io/PodGroup"),
        (R::CompositePodGroup, "scheduling.k8s.io/CompositePodGroup"),
        (R::Wildcard, "*"),
        (other.clone(), "foos.v1.example.com"),
    ] {
        assert_eq!(resource.as_str(), name);
        assert!(resource.matches(&resource) && R::Wildcard.matches(&resource));
        let is_pod = name.ends_with("Pod");
        assert_eq!(R::Pod.matches(&resource), is_pod, "{name}");
        assert_eq!(resource.is_pod(), is_pod, "{name}");
    }
    assert!(
        R::TargetPod.matches(&R::UnschedulablePod) && !R::TargetPod.matches(&R::UnscheduledPod)
    );
    assert!(!R::AssignedPod.matches(&R::UnschedulablePod));
    assert_eq!(R::of_kind(Kind::Pod), R::Pod);
    for kind in Kind::ALL {
        let known = !matches!(R::of_kind(*kind), R::Other(_));
        let (group, version, plural) = kind.resource();
        let name = R::of_kind(*kind);
        let named = known || name.as_str() == format!("{plural}.{version}.{group}");
        assert!(named, "{kind:?}: {name:?}");
    }
}

///
#[test]
fn labels_equal_those_in_metrics() {
    for (event, label) in [
        (
            event(EventResource::AssignedPod, ActionType::ADD),
            "AssignedPodAdd",
        ),
        (
            event(EventResource::UnschedulablePod, ActionType::UPDATE),
            "UnschedulablePodUpdate",
        ),
        (
            event(EventResource::Node, ActionType::UPDATE_NODE_LABEL),
            "NodeUpdateNodeLabel",
        ),
        (
            ClusterEvent::wildcard("UnschedulableTimeout"),
            "UnschedulableTimeout",
        ),
    ] {
        assert_eq!(event.label(), label);
    }
}
