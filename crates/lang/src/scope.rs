//! The names that templates and expressions can use at one place of the configuration, and the types of their values before
//! any source is called.

use std::collections::BTreeMap;

use serde_json::Value;

use domain::spelling::{advice, near};

/// The type of a value, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ValueType {
    /// Nothing: any field may be there.
    #[default]
    Anything,
    /// It is an object. It has no other keys than these, but may lack some of them.
    Object(BTreeMap<String, Self>),
    /// It is a list, and each item has this type.
    List(Box<Self>),
    /// It is neither, but such a value: `a text`, `a number`.
    Plain(&'static str),
}

impl ValueType {
    /// An object with these keys, with values of any type.
    pub fn object<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Object(keys.into_iter().map(|key| (key.to_owned(), Self::Anything)).collect())
    }

    /// The type of exactly this value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Object(object) => Self::of_object(object),
            Value::Array(items) => {
                let item = items.iter().map(Self::of).reduce(|one, two| one.join(&two));
                Self::List(Box::new(item.unwrap_or_default()))
            }
            _ => Self::Anything,
        }
    }

    /// The type of exactly this object.
    pub fn of_object<'a>(object: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Self {
        Self::Object(object.into_iter().map(|(key, value)| (key.clone(), Self::of(value))).collect())
    }

    /// The type of an object that may come from any of `all`.
    pub fn any_of(all: impl IntoIterator<Item = Self>) -> Self {
        let mut keys = BTreeMap::<String, Self>::new();
        let mut all = all.into_iter().peekable();
        if all.peek().is_none() {
            return Self::Anything;
        }
        for each in all {
            let Self::Object(own) = each else { return Self::Anything };
            for (key, value) in own {
                keys.entry(key).and_modify(|known| *known = known.join(&value)).or_insert(value);
            }
        }
        Self::Object(keys)
    }

    /// The type of a value that is either `self` or `other`.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::List(one), Self::List(two)) => Self::List(Box::new(one.join(two))),
            (Self::Object(_), Self::Object(_)) => Self::any_of([self.clone(), other.clone()]),
            (Self::Plain(one), Self::Plain(two)) if one == two => Self::Plain(one),
            _ => Self::Anything,
        }
    }

    /// The type of the items, if this is a list.
    #[must_use]
    pub fn item(&self) -> Self {
        if let Self::List(item) = self { (**item).clone() } else { Self::Anything }
    }

    /// The type of the field `name`.
    ///
    /// # Errors
    /// When there can be no such field: the fields that there are.
    pub fn field(&self, name: &str) -> Result<Self, Vec<&str>> {
        match self {
            Self::Object(keys) => keys.get(name).cloned().ok_or_else(|| keys.keys().map(String::as_str).collect()),
            Self::Anything | Self::List(_) | Self::Plain(_) => Ok(Self::Anything),
        }
    }

    /// The reason why the value is surely not a list.
    #[must_use]
    pub fn is_no_list(&self) -> Option<UnfitValue> {
        let what = match self {
            Self::Anything | Self::List(_) => return None,
            Self::Object(_) => "an object",
            Self::Plain(what) => what,
        };
        let help = "write a list: values in `[ ]`, or a field that holds one, such as `body.items`";
        Some(UnfitValue { message: format!("its result is {what}, and a list is expected"), help: help.to_owned() })
    }

    /// The reason why the value is surely not a list of objects.
    #[must_use]
    pub(crate) fn is_no_list_of_objects(&self) -> Option<UnfitValue> {
        let (what, help) = match self {
            Self::Anything => return None,
            Self::List(item) => match &**item {
                Self::Anything | Self::Object(_) => return None,
                Self::List(_) => ("a list of lists", "make one list of them: `.flatten()`"),
                Self::Plain(_) => ("a list without objects", "name each value: `.map(item, {'name': item})`"),
            },
            Self::Object(_) => ("an object", "put it into a list: `[{…}]`"),
            Self::Plain(what) => {
                (*what, "write a list, such as `[{'name': 'a'}]`, or a field that holds one, such as `body.items`")
            }
        };
        let message = format!("its result is {what}, and a list of objects is expected");
        Some(UnfitValue { message, help: help.to_owned() })
    }
}

/// A value that is of no use at its place.
#[derive(Debug, PartialEq, Eq)]
pub struct UnfitValue {
    /// The mistake.
    pub message: String,
    /// The text to write instead.
    pub help: String,
}

/// The names that can be used at one place.
#[derive(Debug, Clone)]
pub struct NameScope {
    names: BTreeMap<String, ValueType>,
    /// Whether more names may be there.
    is_open: bool,
}

/// A name that is not known at its place.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The mistake.
    pub message: String,
    /// The nearest name, or all that are known.
    pub help: String,
}

impl NameScope {
    /// Exactly `names`, with values of any type.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let names = names.iter().map(|name| ((*name).to_owned(), ValueType::Anything));
        Self { names: names.collect(), is_open: false }
    }

    /// The names of a template over a call: `params` and `applicationSet`.
    #[must_use]
    pub fn input() -> Self {
        Self::of(&["params", "applicationSet"])
    }

    /// These names and `name`.
    #[must_use]
    pub fn with(&self, name: &str, value: ValueType) -> Self {
        let mut scope = self.clone();
        scope.names.insert(name.to_owned(), value);
        scope
    }

    /// These names and `names`, with values of any type.
    #[must_use]
    pub fn with_all(&self, names: &[&str]) -> Self {
        names.iter().fold(self.clone(), |scope, name| scope.with(name, ValueType::Anything))
    }

    /// These names without `name`.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut scope = self.clone();
        scope.names.remove(name);
        scope
    }

    /// These names and the keys of `item`. These names hide keys that are equal.
    #[must_use]
    pub fn with_keys_of(&self, item: &ValueType) -> Self {
        let ValueType::Object(keys) = item else { return Self { is_open: true, ..self.clone() } };
        let mut names = keys.clone();
        names.extend(self.names.clone());
        Self { names, is_open: self.is_open }
    }

    /// `names` as they are known here; those that are not known here are left out.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        let known = self.names.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Self { names: known.map(|(name, value)| (name.clone(), value.clone())).collect(), is_open: false }
    }

    /// Whether `name` is surely known.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Whether more names may be there than are known.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The type of `name`, as far as it is known. `None` if there is no such name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ValueType> {
        self.names.get(name).cloned().or_else(|| self.is_open.then_some(ValueType::Anything))
    }

    /// The names, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.names.keys().map(String::as_str).collect()
    }

    /// The known name that `written` may be a misspelling of.
    #[must_use]
    pub fn near(&self, written: &str) -> Option<&str> {
        near(written, &self.names())
    }

    /// Follows the dotted name `dotted`, as far as values are known.
    ///
    /// # Errors
    /// When its first part is not a known name, or a further part cannot be there.
    pub fn follow(&self, dotted: &str) -> Result<ValueType, UnknownName> {
        self.follow_parts(dotted.split('.'))
    }

    /// As [`Self::follow`], for a name whose parts may hold dots themselves.
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub(crate) fn follow_parts<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> Result<ValueType, UnknownName> {
        let mut parts = parts.into_iter();
        let first = parts.next().unwrap_or_default();
        let Some(mut value) = self.get(first) else { return Err(self.unknown(first)) };
        let mut path = first.to_owned();
        for part in parts {
            value = value.field(part).map_err(|known| UnknownName::field(&path, part, &known))?;
            path = format!("{path}.{part}");
        }
        Ok(value)
    }

    /// There is no top-level name `name`.
    pub fn unknown(&self, name: &str) -> UnknownName {
        UnknownName { message: format!("unknown name `{name}`"), help: advice(name, &self.names()) }
    }
}

impl UnknownName {
    /// The value at `path` has no field `name`; it has the fields `known`.
    pub fn field(path: &str, name: &str, known: &[&str]) -> Self {
        let message = match path {
            "params" => format!("the parameter `{name}` is not declared in `input`"),
            _ => format!("`{path}` has no field `{name}`"),
        };
        let help = match (near(name, known), path) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, "params") if known.is_empty() => "declare it: `input: [ { name: … } ]`".to_owned(),
            (None, "params") => format!("declare it in `input`; declared: {}", known.join(", ")),
            (None, _) if known.is_empty() => "it has no fields".to_owned(),
            (None, _) => format!("its fields: {}", known.join(", ")),
        };
        Self { message, help }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_followed_as_far_as_values_are_known() {
        let scope = NameScope::input().with("params", ValueType::object(["branch", "repository"]));
        assert_eq!(scope.follow("params.branch.anything"), Ok(ValueType::Anything));
        assert_eq!(scope.follow("applicationSet.x"), Ok(ValueType::Anything));
        let wrong =
            |name: &str| scope.follow(name).map_err(|UnknownName { message, help }| format!("{message}: {help}"));
        assert_eq!(wrong("parms.x").unwrap_err(), "unknown name `parms`: did you mean `params`?");
        assert_eq!(wrong("body").unwrap_err(), "unknown name `body`: known here: applicationSet, params");
        let expected = "the parameter `brnch` is not declared in `input`: did you mean `branch`?";
        assert_eq!(wrong("params.brnch").unwrap_err(), expected);
        let expected =
            "the parameter `owner` is not declared in `input`: declare it in `input`; declared: branch, repository";
        assert_eq!(wrong("params.owner").unwrap_err(), expected);
    }

    #[test]
    fn an_object_of_several_sources_may_have_the_keys_of_each() {
        let one = ValueType::object(["a", "b"]);
        let two = ValueType::Object([("b".to_owned(), ValueType::List(Box::default()))].into());
        assert_eq!(ValueType::any_of([one.clone(), two.clone()]), ValueType::object(["a", "b"]));
        assert_eq!(ValueType::any_of([one, ValueType::Anything, two]), ValueType::Anything);
    }
}
