//! Descriptions of proto files, as far as those here need them (`google/protobuf/descriptor.proto`).

use prost::Message;

/// A file.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FileDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) package: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) dependency: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(super) message_type: Vec<Descriptor>,
    #[prost(message, repeated, tag = "6")]
    pub(super) service: Vec<ServiceDescriptor>,
    #[prost(string, tag = "12")]
    pub(super) syntax: String,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Descriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) field: Vec<FieldDescriptor>,
    #[prost(message, repeated, tag = "3")]
    pub(super) nested_type: Vec<Descriptor>,
    #[prost(message, repeated, tag = "4")]
    pub(super) enum_type: Vec<EnumDescriptor>,
    #[prost(message, optional, tag = "7")]
    pub(super) options: Option<MessageOptions>,
    #[prost(message, repeated, tag = "8")]
    pub(super) oneof_decl: Vec<OneofDescriptor>,
}

/// Whether a message is the entry of a map.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct MessageOptions {
    #[prost(bool, tag = "7")]
    pub(super) map_entry: bool,
}

/// A field.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FieldDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "3")]
    pub(super) number: i32,
    #[prost(int32, tag = "4")]
    pub(super) label: i32,
    #[prost(int32, tag = "5")]
    pub(super) kind: i32,
    #[prost(string, optional, tag = "6")]
    pub(super) type_name: Option<String>,
    #[prost(int32, optional, tag = "9")]
    pub(super) oneof_index: Option<i32>,
    #[prost(string, tag = "10")]
    pub(super) json_name: String,
}

/// A choice of fields.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct OneofDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// An enumeration.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EnumDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) value: Vec<EnumValueDescriptor>,
}

/// A value of an enumeration.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EnumValueDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    // Present though it may be zero: the format is that of proto2.
    #[prost(int32, optional, tag = "2")]
    pub(super) number: Option<i32>,
}

/// A service.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ServiceDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) method: Vec<MethodDescriptor>,
}

/// A method.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MethodDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) input_type: String,
    #[prost(string, tag = "3")]
    pub(super) output_type: String,
    #[prost(bool, tag = "5")]
    pub(super) client_streaming: bool,
    #[prost(bool, tag = "6")]
    pub(super) server_streaming: bool,
}

impl FileDescriptor {
    /// The full names of its services.
    pub(super) fn services(&self) -> impl Iterator<Item = String> {
        self.service.iter().map(|service| format!("{}.{}", self.package, service.name))
    }

    /// Whether the file declares `symbol`: a message, a field, an enumeration, a service or a method.
    pub(super) fn declares(&self, symbol: &str) -> bool {
        let Some(inner) = inside(symbol, &self.package) else { return false };
        let is_service = |service: &ServiceDescriptor| {
            service.name == inner
                || inside(inner, &service.name)
                    .is_some_and(|name| service.method.iter().any(|method| method.name == name))
        };
        self.message_type.iter().any(|message| message.declares(inner)) || self.service.iter().any(is_service)
    }
}

impl Descriptor {
    fn declares(&self, symbol: &str) -> bool {
        if self.name == symbol {
            return true;
        }
        inside(symbol, &self.name).is_some_and(|inner| {
            self.field.iter().any(|field| field.name == inner)
                || self.enum_type.iter().any(|one| one.name == inner)
                || self.nested_type.iter().any(|nested| nested.declares(inner))
        })
    }
}

/// The rest of `symbol` after `outer` and a dot.
fn inside<'a>(symbol: &'a str, outer: &str) -> Option<&'a str> {
    symbol.strip_prefix(outer)?.strip_prefix('.')
}
