//! Pairs of lists: the work for two lists that are long at once is the work for each of them.
//!
//! A function that walks one list for each entry of another takes a number of steps proportional to the product of
//! both, which tests of single lists do not detect. The **interaction** of two sets of lists is the work with both sets
//! long, minus the work with either of them long, plus the work with neither. The work for the entries of each single
//! list cancels out. All pairs are found with few requests: the lists of a kind are divided at random, each pair is
//! separated by half of the divisions, and a division with an interaction is halved until a pair remains.

use super::lists::{self, Place};
use super::objects;
use super::requests::Tester;

/// Entries of long lists. The interaction of a product is four times as much at the second size.
const SIZES: [usize; 2] = [32, 64];
/// The interaction at the second size is at least half the product of both lists, and a multiple of that at the first
/// size. Twice is linear.
const READS_MIN: i64 = 2_048;
const GROWTH_MIN: i64 = 3;
/// The number of divisions of the lists of a kind. A pair is found with a probability of 1 - 2⁻¹⁰.
const DIVISIONS: usize = 10;
/// The seed of the divisions; a failure names the pair, so it need not be repeated.
const SEED: u64 = 44;
/// The objects around a pod that admission reads.
const AROUND: [&str; 3] = ["limitranges", "resourcequotas", "runtimeclasses"];

type Places<'p> = Vec<&'p Place>;

/// Objects with some long lists.
struct Pairs<'t> {
    tester: &'t mut Tester,
    /// Lists of the objects around a pod, instead of lists of the object itself.
    around: bool,
}

fn names(places: &[&Place]) -> String {
    let names: Vec<String> = places.iter().map(|place| place.name()).collect();
    names.join(", ")
}

impl Pairs<'_> {
    /// The fields read while an object with these long lists is created. `second` are lists of the same object, or of the
    /// objects around it.
    fn reads(
        &mut self,
        kind: &Place,
        first: (&[&Place], usize),
        second: (&[&Place], usize),
    ) -> i64 {
        let mut lists: Vec<(&Place, usize)> = first.0.iter().map(|p| (*p, first.1)).collect();
        if self.around {
            for plural in AROUND {
                let of_kind = second.0.iter().filter(|p| p.kind.plural == plural);
                let long: Vec<(&Place, usize)> = of_kind.map(|p| (*p, second.1)).collect();
                if let Some((place, _)) = long.first() {
                    let mut object = objects::with_lists(place, &long);
                    object["metadata"]["name"] = "around".into();
                    let is_stored = self.tester.put(place.kind, &object);
                    assert!(is_stored, "{}", names(second.0));
                }
            }
        } else {
            lists.extend(second.0.iter().map(|p| (*p, second.1)));
        }
        let mut object = objects::with_lists(kind, &lists);
        if self.around {
            object["spec"]["runtimeClassName"] = "around".into();
        }
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = "pairs".into();
        }
        self.tester.dry_run(kind.kind, &object)
    }

    fn interaction(&mut self, kind: &Place, first: &[&Place], second: &[&Place]) -> bool {
        let [few, many] = SIZES.map(|n| {
            let both = self.reads(kind, (first, n), (second, n));
            let only_first = self.reads(kind, (first, n), (second, 1));
            let only_second = self.reads(kind, (first, 1), (second, n));
            both - only_first - only_second + self.reads(kind, (first, 1), (second, 1))
        });
        many >= READS_MIN && many >= GROWTH_MIN * few
    }

    /// A pair of lists with an interaction, one of each set.
    fn pair<'p>(
        &mut self,
        kind: &Place,
        mut first: Places<'p>,
        mut second: Places<'p>,
    ) -> Option<String> {
        if first.is_empty() || second.is_empty() || !self.interaction(kind, &first, &second) {
            return None;
        }
        loop {
            if first.len() > 1 {
                let later = first.split_off(first.len() / 2);
                if !self.interaction(kind, &first, &second) {
                    first = later;
                }
            } else if second.len() > 1 {
                let later = second.split_off(second.len() / 2);
                if !self.interaction(kind, &first, &second) {
                    second = later;
                }
            } else {
                break;
            }
        }
        // The interaction of half of the lists can be below the smallest one, so the last pair is measured, too.
        let is_pair = self.interaction(kind, &first, &second);
        let found = if is_pair {
            ""
        } else {
            "several lists, among them "
        };
        Some(format!("{found}{} with {}", names(&first), names(&second)))
    }
}

/// The places by kind.
fn by_kind(places: &[Place]) -> Vec<Places<'_>> {
    let mut kinds: Vec<Places<'_>> = Vec::new();
    for place in places {
        let name = (place.kind.api_version, place.kind.plural);
        match kinds.last_mut() {
            Some(last) if (last[0].kind.api_version, last[0].kind.plural) == name => {
                last.push(place);
            }
            _ => kinds.push(vec![place]),
        }
    }
    kinds
}

fn is_of_spec(place: &&Place) -> bool {
    let first = place.fields.first().map(|field| field.name);
    !place.is_status() && first != Some("status")
}

#[test]
fn two_long_lists_are_as_much_work_as_each_of_them() {
    let mut tester = Tester::new();
    let places = lists::all();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut found = Vec::new();
    for all in by_kind(&places) {
        let all: Places<'_> = all.into_iter().filter(is_of_spec).collect();
        let Some(kind) = all.first().copied() else {
            continue;
        };
        for _ in 0..DIVISIONS {
            let (first, second): (Places<'_>, Places<'_>) =
                all.iter().copied().partition(|_| random.bool());
            let mut pairs = Pairs {
                tester: &mut tester,
                around: false,
            };
            found.extend(pairs.pair(kind, first, second));
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, [""; 0]);
}

#[test]
fn lists_of_pods_do_not_multiply_with_the_objects_around_them() {
    let mut tester = Tester::new();
    let places = lists::all();
    let kinds = by_kind(&places);
    let pods = kinds.iter().find(|all| all[0].kind.plural == "pods");
    let pods: Places<'_> = pods
        .into_iter()
        .flatten()
        .copied()
        .filter(is_of_spec)
        .collect();
    let around = kinds.iter().flatten().copied();
    let around: Places<'_> = around
        .filter(|place| AROUND.contains(&place.kind.plural))
        .filter(is_of_spec)
        .filter(|place| {
            place
                .fields
                .first()
                .is_some_and(|field| field.name != "metadata")
        })
        .collect();
    // The lists that are valid together.
    let mut valid: Places<'_> = Vec::new();
    for place in around {
        let of_kind = valid.iter().filter(|p| p.kind.plural == place.kind.plural);
        let mut long: Vec<&Place> = of_kind.copied().collect();
        long.push(place);
        let is_valid = SIZES.into_iter().chain([1]).all(|n| {
            let long: Vec<(&Place, usize)> = long.iter().map(|p| (*p, n)).collect();
            let mut object = objects::with_lists(place, &long);
            object["metadata"]["name"] = "around".into();
            tester.put(place.kind, &object)
        });
        if is_valid {
            valid.push(place);
        }
    }
    let around = valid;
    assert!(around.len() >= 6, "{}", names(&around));
    let mut pairs = Pairs {
        tester: &mut tester,
        around: true,
    };
    let kind = pods.first().copied().expect("lists of pods");
    let mut found = Vec::new();
    // The lists of pods one after the other: a pod that one of them refuses hides the others.
    for pod in &pods {
        found.extend(pairs.pair(kind, vec![*pod], around.clone()));
    }
    assert_eq!(found, [""; 0]);
}
