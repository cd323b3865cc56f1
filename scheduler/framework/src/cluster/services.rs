//! Services, and which of them select a pod.

use super::Namespaced;
use berth_api::{Labels, Pod, Service, Str};
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::Arc;

/// A namespace and one label that pods of a service have.
type Selected = (Str, Option<(Str, Str)>);

/// Services, read like other namespaced objects.
#[derive(Debug, Clone, Default)]
pub struct Services {
    all: Namespaced<Service>,
    /// Services by namespace and the first label of their selector; without a label for selectors that match every pod.
    by_label: FxHashMap<Selected, Vec<Arc<Service>>>,
}

impl Deref for Services {
    type Target = Namespaced<Service>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The key of a service. `None` for one without a selector, which selects no pods.
fn place(service: &Service) -> Option<Selected> {
    let selector = service.spec.selector.as_ref()?;
    let label = selector.iter().next();
    let label = label.map(|(key, value)| (key.clone(), value.clone()));
    Some((service.metadata.namespace.clone(), label))
}

impl Services {
    /// Sets or removes a service. Returns the previous version.
    pub(super) fn put(&mut self, service: &Arc<Service>, is_there: bool) -> Option<Arc<Service>> {
        let before = self.all.put(&service.metadata, service, is_there);
        if let Some(before) = &before
            && let Some(place) = place(before)
            && let Some(filed) = self.by_label.get_mut(&place)
        {
            filed.retain(|known| known.metadata.name != before.metadata.name);
            if filed.is_empty() {
                self.by_label.remove(&place);
            }
        }
        if let Some(place) = place(service).filter(|_| is_there) {
            let filed = self.by_label.entry(place).or_default();
            filed.push(service.clone());
        }
        before
    }

    /// The selectors of the services that select the pod, in no particular order.
    pub fn selectors_of(&self, pod: &Pod) -> impl Iterator<Item = &Labels> {
        let labels = pod.labels();
        let label = labels
            .iter()
            .map(|(key, value)| Some((key.clone(), value.clone())));
        let places = label
            .chain([None])
            .map(|label| (pod.namespace().clone(), label));
        let filed = places
            .filter_map(|place| self.by_label.get(&place))
            .flatten();
        filed
            .filter_map(|service| service.spec.selector.as_ref())
            .filter(|selector| {
                let mut selector = selector.iter();
                selector.all(|(key, value)| labels.get_str(key) == Some(value))
            })
    }
}
