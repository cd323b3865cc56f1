//! A JSON text as a tree that borrows from it: cheap to build, read once, and dropped.

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::fmt;

/// The field of `metadata.managedFields` that is written as JSON: its text is kept as it is.
const FIELDS: &str = "fieldsV1";

/// A JSON value that can be encoded: a reference to it.
pub(crate) trait Node: Copy + Serialize {
    /// A member of an object.
    fn member(&self, name: &str) -> Option<Self>;

    /// The members of an object.
    fn members(&self) -> impl Iterator<Item = (&str, Self)>;

    /// The items of a list.
    fn items(&self) -> Option<impl Iterator<Item = Self>>;

    /// Returns whether it is an object.
    fn is_object(&self) -> bool;

    /// Returns whether it is null.
    fn is_null(&self) -> bool;

    fn text(&self) -> Option<&str>;

    fn flag(&self) -> Option<bool>;

    fn number(&self) -> Option<&Number>;

    /// The text of its JSON.
    fn json(&self) -> Cow<'_, str> {
        // Its keys are strings, so it can be written.
        Cow::Owned(serde_json::to_string(self).unwrap_or_default())
    }
}

impl Node for &Value {
    fn member(&self, name: &str) -> Option<Self> {
        self.get(name)
    }

    fn members(&self) -> impl Iterator<Item = (&str, Self)> {
        let members = self.as_object().into_iter().flatten();
        members.map(|(name, value)| (name.as_str(), value))
    }

    fn items(&self) -> Option<impl Iterator<Item = Self>> {
        Some(self.as_array()?.iter())
    }

    fn is_object(&self) -> bool {
        Value::is_object(self)
    }

    fn is_null(&self) -> bool {
        Value::is_null(self)
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn flag(&self) -> Option<bool> {
        self.as_bool()
    }

    fn number(&self) -> Option<&Number> {
        self.as_number()
    }
}

/// The values of a JSON text in its order: every object and list precedes its contents. One allocation serves
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a>(Vec<TreeEntry<'a>>);

#[derive(Debug)]
struct TreeEntry<'a> {
    /// The name, of a member of an object.
    name: Cow<'a, str>,
    value: Item<'a>,
}

/// A value of a JSON text.
#[derive(Debug)]
enum Item<'a> {
    Null,
    Flag(bool),
    Number(Number),
    Text(Cow<'a, str>),
    /// The number of the following entries that are its items, contents included.
    List(usize),
    /// The number of the following entries that are its members, contents included.
    Object(usize),
    Json(&'a RawValue),
}

impl<'a> Tree<'a> {
    /// Reads a text.
    pub(crate) fn read(json: &'a str) -> serde_json::Result<Self> {
        let mut tree = Self::default();
        let mut text = serde_json::Deserializer::from_str(json);
        tree.next(Cow::Borrowed("")).deserialize(&mut text)?;
        text.end()?;
        Ok(tree)
    }

    /// The whole value.
    pub(crate) fn root(&self) -> Branch<'_, 'a> {
        Branch(&self.0)
    }

    /// Reads the next value.
    fn next(&mut self, name: Cow<'a, str>) -> Next<'_, 'a> {
        Next { tree: self, name }
    }
}

/// A value of a tree: the first of these entries, followed by the entries of its contents. Unrelated entries may
/// follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branch<'t, 'a>(&'t [TreeEntry<'a>]);

impl<'t, 'a> Branch<'t, 'a> {
    fn value(&self) -> &'t Item<'a> {
        self.0.first().map_or(&Item::Null, |entry| &entry.value)
    }

    /// The values in a list or an object, with their names.
    fn inner(&self) -> impl Iterator<Item = (&str, Self)> {
        let within = match self.value() {
            Item::List(entries) | Item::Object(entries) => *entries,
            _ => 0,
        };
        let mut rest = self.0.get(1..=within).unwrap_or(&[]);
        std::iter::from_fn(move || {
            let branch = Self(rest);
            let name = &*rest.first()?.name;
            let within = match branch.value() {
                Item::List(entries) | Item::Object(entries) => *entries,
                _ => 0,
            };
            rest = rest.get(1 + within..).unwrap_or(&[]);
            Some((name, branch))
        })
    }
}

impl Node for Branch<'_, '_> {
    fn member(&self, name: &str) -> Option<Self> {
        let found = self.members().find(|(known, _)| *known == name);
        found.map(|(_, value)| value)
    }

    fn members(&self) -> impl Iterator<Item = (&str, Self)> {
        let members = self.is_object().then(|| self.inner());
        members.into_iter().flatten()
    }

    fn items(&self) -> Option<impl Iterator<Item = Self>> {
        let is_list = matches!(self.value(), Item::List(_));
        is_list.then(|| self.inner().map(|(_, value)| value))
    }

    fn is_object(&self) -> bool {
        matches!(self.value(), Item::Object(_))
    }

    fn is_null(&self) -> bool {
        matches!(self.value(), Item::Null)
    }

    fn text(&self) -> Option<&str> {
        match self.value() {
            Item::Text(text) => Some(text),
            _ => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        match self.value() {
            Item::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn number(&self) -> Option<&Number> {
        match self.value() {
            Item::Number(number) => Some(number),
            _ => None,
        }
    }

    fn json(&self) -> Cow<'_, str> {
        match self.value() {
            Item::Json(json) => Cow::Borrowed(json.get()),
            _ => Cow::Owned(serde_json::to_string(self).unwrap_or_default()),
        }
    }
}

impl Serialize for Branch<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value() {
            Item::Null => serializer.serialize_unit(),
            Item::Flag(flag) => serializer.serialize_bool(*flag),
            Item::Number(number) => number.serialize(serializer),
            Item::Text(text) => serializer.serialize_str(text),
            Item::List(_) => serializer.collect_seq(self.inner().map(|(_, value)| value)),
            Item::Object(_) => serializer.collect_map(self.inner()),
            Item::Json(json) => json.serialize(serializer),
        }
    }
}

/// Reads a value to the end of a tree.
struct Next<'t, 'a> {
    tree: &'t mut Tree<'a>,
    name: Cow<'a, str>,
}

impl<'a> Next<'_, 'a> {
    fn put<E>(self, value: Item<'a>) -> Result<(), E> {
        let name = self.name;
        self.tree.0.push(TreeEntry { name, value });
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Next<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Next<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.put(Item::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.put(Item::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.put(Item::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.put(Item::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.put(Number::from_f64(number).map_or(Item::Null, Item::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.put(Item::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.put(Item::Text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { tree, name } = self;
        let at = tree.0.len();
        tree.next(name).put(Item::List(0))?;
        while items
            .next_element_seed(tree.next(Cow::Borrowed("")))?
            .is_some()
        {}
        tree.0[at].value = Item::List(tree.0.len() - at - 1);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { tree, name } = self;
        let at = tree.0.len();
        tree.next(name).put(Item::Object(0))?;
        while let Some(MemberName(name)) = members.next_key()? {
            if &*name != FIELDS {
                members.next_value_seed(tree.next(name))?;
                continue;
            }
            let json: &'de RawValue = members.next_value()?;
            let next = tree.next(name);
            if json.get().starts_with('{') {
                next.put(Item::Json(json))?
            } else {
                next.deserialize(&mut serde_json::Deserializer::from_str(json.get()))
                    .map_err(de::Error::custom)?
            }
        }
        tree.0[at].value = Item::Object(tree.0.len() - at - 1);
        Ok(())
    }
}

/// The name of a member, borrowed where it has no escapes.
struct MemberName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = MemberName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(MemberName(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(MemberName(name.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Name)
    }
}
