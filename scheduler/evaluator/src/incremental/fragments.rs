//! The fragments that were written lately, by template: the pods of one template have the same ones, as long as the part
//! of the cluster that fragments depend on has not changed.

use berth_api::Pod;
use berth_framework::PodInfo;
use berth_framework::keep::Fragment;
use berth_framework::pod_info::TemplateKey;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The number of templates that are remembered before all are forgotten.
const TEMPLATES_MAX: usize = 1024;

/// The fragments of a template.
struct TemplateFragments {
    /// See [`Plan::fragment_version`](super::plan::Plan::fragment_version).
    version: u64,
    fragments: [Fragment; 3],
    /// The pod that keeps the addresses of the key in use.
    _pod: Arc<Pod>,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct RememberedFragments {
    by_template: FxHashMap<(usize, TemplateKey), TemplateFragments>,
}

impl RememberedFragments {
    /// Finds the fragments of a pod, by the place of its plan and its template, or has them written. False when they cannot be.
    ///
    /// # Panics
    /// In a debug build, if the remembered fragments differ from the written fragments: a plugin has a wrong version.
    pub(super) fn find(
        &mut self,
        key: (usize, TemplateKey),
        version: u64,
        pod: &PodInfo,
        fragments: &mut [Fragment; 3],
        write: impl Fn(&mut [Fragment; 3]) -> bool,
    ) -> bool {
        if let Some(known) = self.by_template.get(&key)
            && known.version == version
        {
            fragments.clone_from(&known.fragments);
            let is_right = || {
                let mut written = <[Fragment; 3]>::default();
                write(&mut written) && written == *fragments
            };
            debug_assert!(
                is_right(),
                "the fragments of pod {} are not those of its template",
                pod.pod.key()
            );
            return true;
        }
        let is_written = write(fragments);
        if is_written {
            // All at once: the templates in use are soon known again, and the order of their use need not be kept.
            if self.by_template.len() >= TEMPLATES_MAX {
                self.by_template.clear();
            }
            let fresh = TemplateFragments {
                version,
                fragments: fragments.clone(),
                _pod: pod.pod.clone(),
            };
            self.by_template.insert(key, fresh);
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::pod;
    use std::cell::Cell;
    use std::hash::Hasher;

    /// The fragments that are found: three parts of a text.
    fn parts(text: &str) -> impl Fn(&mut [Fragment; 3]) -> bool {
        move |fragments| {
            for (fragment, part) in fragments.iter_mut().zip(text.split(' ')) {
                fragment.clear();
                fragment.write(part.as_bytes());
            }
            !text.is_empty()
        }
    }

    #[test]
    fn fragments_are_written_once_for_a_template_and_a_version() {
        let mut remembered = RememberedFragments::default();
        let [web, db] = ["web", "db"].map(|team| pod("p").label("team", team).info());
        for (situation, pod, version, text, is_written) in [
            ("none that can be kept", &web, 1, "", true),
            ("the first", &web, 1, "a b c", true),
            ("another template", &db, 1, "d e f", true),
            ("the same", &web, 1, "a b c", false),
            ("another version", &web, 2, "a g c", true),
            ("the same of the other", &db, 1, "d e f", false),
            ("the same again", &web, 2, "a g c", false),
        ] {
            let times = Cell::new(0);
            let write = |fragments: &mut [Fragment; 3]| {
                times.set(times.get() + 1);
                parts(text)(fragments)
            };
            let key = (0, pod.template_key().expect("a key"));
            let mut fragments = <[Fragment; 3]>::default();
            let is_found = remembered.find(key, version, pod, &mut fragments, write);
            assert_eq!(is_found, !text.is_empty(), "{situation}");
            // A debug build writes the fragments again to compare them.
            let is_compared = cfg!(debug_assertions);
            assert_eq!(times.get() == 1, is_written || is_compared, "{situation}");
            let found = fragments
                .each_ref()
                .map(|f| String::from_utf8_lossy(f.as_bytes()));
            assert_eq!(found.join(" ").trim(), text, "{situation}");
        }
    }

    #[test]
    fn there_is_a_limit_of_templates() {
        let mut remembered = RememberedFragments::default();
        for team in 0..=TEMPLATES_MAX {
            let pod = pod("p").label("team", &team.to_string()).info();
            let key = (0, pod.template_key().expect("a key"));
            remembered.find(key, 0, &pod, &mut Default::default(), parts("a b c"));
            assert!(remembered.by_template.len() <= TEMPLATES_MAX);
        }
        assert_eq!(remembered.by_template.len(), 1);
    }
}
