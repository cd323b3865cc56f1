//! A JSON text as a tree that borrows from it: cheap to build, read once, and dropped.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::fmt;

/// The field of `metadata.managedFields` that is written as JSON: its text is kept as it is.
const FIELDS: &str = "fieldsV1";

/// Most objects have no more members.
const MEMBERS: usize = 8;

/// A JSON value that can be encoded.
pub(crate) trait Node: Sized + Serialize {
    /// A member of an object.
    fn member(&self, name: &str) -> Option<&Self>;

    /// The members of an object.
    fn members(&self) -> impl Iterator<Item = (&str, &Self)>;

    /// The items of a list.
    fn items(&self) -> Option<&[Self]>;

    /// Whether it is an object.
    fn is_object(&self) -> bool;

    /// Whether it is null.
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

impl Node for Value {
    fn member(&self, name: &str) -> Option<&Self> {
        self.get(name)
    }

    fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = self.as_object().into_iter().flatten();
        members.map(|(name, value)| (name.as_str(), value))
    }

    fn items(&self) -> Option<&[Self]> {
        self.as_array().map(Vec::as_slice)
    }

    fn is_object(&self) -> bool {
        self.is_object()
    }

    fn is_null(&self) -> bool {
        self.is_null()
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

/// A value in a JSON text.
#[derive(Debug)]
pub(crate) enum Tree<'a> {
    Null,
    Flag(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Tree<'a>>),
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
    Json(&'a RawValue),
}

impl Node for Tree<'_> {
    fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = match self {
            Self::Object(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().map(|(name, value)| (&**name, value))
    }

    fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        match self {
            Self::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    fn json(&self) -> Cow<'_, str> {
        match self {
            Self::Json(json) => Cow::Borrowed(json.get()),
            other => Cow::Owned(serde_json::to_string(other).unwrap_or_default()),
        }
    }
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
            Self::Json(json) => json.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Tree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Tree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Tree::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(number).map_or(Tree::Null, Tree::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Tree::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Tree::Text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(MEMBERS);
        while let Some(Key(name)) = entries.next_key()? {
            let value = match &*name {
                FIELDS => Tree::of_json(entries.next_value()?),
                _ => entries.next_value()?,
            };
            members.push((name, value));
        }
        Ok(Tree::Object(members))
    }
}

impl<'a> Tree<'a> {
    fn of_json(json: &'a RawValue) -> Self {
        match json.get().starts_with('{') {
            true => Self::Json(json),
            false => serde_json::from_str(json.get()).unwrap_or(Self::Null),
        }
    }
}

/// The name of a member, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Key(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Key(name.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Name)
    }
}
