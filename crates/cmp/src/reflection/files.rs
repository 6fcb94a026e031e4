//! The proto files of all services, as far as their messages need them.

use super::descriptor::{
    Descriptor, EnumDescriptor, EnumValueDescriptor, FieldDescriptor, FileDescriptor, MessageOptions, MethodDescriptor,
    OneofDescriptor, ServiceDescriptor,
};

const EMPTY: &str = "google/protobuf/empty.proto";
const REPOSITORY: &str = "reposerver/repository/repository.proto";
/// Labels of fields.
const OPTIONAL: i32 = 1;
const REPEATED: i32 = 3;
/// Types of fields.
const MESSAGE: i32 = 11;
const ENUM: i32 = 14;

/// All files.
pub(super) fn all() -> Vec<FileDescriptor> {
    let empty = vec![message("Empty", &[])];
    vec![
        file(EMPTY, "google.protobuf", &[], empty, Vec::new()),
        file(REPOSITORY, "repository", &[], vec![announcement()], Vec::new()),
        plugin(),
        health(),
        reflection("v1"),
        reflection("v1alpha"),
    ]
}

fn plugin() -> FileDescriptor {
    let mut request = message("AppStreamRequest", &["metadata .plugin.ManifestRequestMetadata", "file .plugin.File"]);
    choose(&mut request, "request");
    let messages = vec![
        request,
        message(
            "ManifestRequestMetadata",
            &["appName string", "appRelPath string", "checksum string", "size int64", "env *.plugin.EnvEntry"],
        ),
        message("EnvEntry", &["name string", "value string"]),
        message("ManifestResponse", &["manifests *string", "sourceType string"]),
        message("RepositoryResponse", &["isSupported bool", "isDiscoveryEnabled bool"]),
        message("ParametersAnnouncementResponse", &["parameterAnnouncements *.repository.ParameterAnnouncement"]),
        message("File", &["chunk bytes"]),
        message("CheckPluginConfigurationResponse", &["isDiscoveryConfigured bool", "provideGitCreds bool"]),
    ];
    let stream = |name: &str, output: &str| MethodDescriptor {
        client_streaming: true,
        ..method(name, ".plugin.AppStreamRequest", output)
    };
    let methods = vec![
        stream("GenerateManifest", ".plugin.ManifestResponse"),
        method("CheckPluginConfiguration", ".google.protobuf.Empty", ".plugin.CheckPluginConfigurationResponse"),
        stream("MatchRepository", ".plugin.RepositoryResponse"),
        stream("GetParametersAnnouncement", ".plugin.ParametersAnnouncementResponse"),
    ];
    let services = vec![service("ConfigManagementPluginService", methods)];
    file("cmpserver/plugin/plugin.proto", "plugin", &[EMPTY, REPOSITORY], messages, services)
}

fn announcement() -> Descriptor {
    let mut announcement = message(
        "ParameterAnnouncement",
        &[
            "name string",
            "title string",
            "tooltip string",
            "required bool",
            "itemType string",
            "collectionType string",
            "string string",
            "array *string",
            "map *.repository.ParameterAnnouncement.MapEntry",
        ],
    );
    let mut entry = message("MapEntry", &["key string", "value string"]);
    entry.options = Some(MessageOptions { map_entry: true });
    announcement.nested_type.push(entry);
    announcement
}

fn health() -> FileDescriptor {
    const STATUS: &str = ".grpc.health.v1.HealthCheckResponse.ServingStatus";
    let mut response = message("HealthCheckResponse", &[]);
    response.field.push(FieldDescriptor { kind: ENUM, type_name: Some(STATUS.to_owned()), ..field("status", 1) });
    let values = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
    let value =
        (0..).zip(values).map(|(number, name)| EnumValueDescriptor { name: name.to_owned(), number: Some(number) });
    response.enum_type.push(EnumDescriptor { name: "ServingStatus".to_owned(), value: value.collect() });
    let request = message("HealthCheckRequest", &["service string"]);
    let mut list = message("HealthListResponse", &["statuses *.grpc.health.v1.HealthListResponse.StatusesEntry"]);
    let mut entry = message("StatusesEntry", &["key string", "value .grpc.health.v1.HealthCheckResponse"]);
    entry.options = Some(MessageOptions { map_entry: true });
    list.nested_type.push(entry);
    let about_one = |name| method(name, ".grpc.health.v1.HealthCheckRequest", ".grpc.health.v1.HealthCheckResponse");
    let methods = vec![
        about_one("Check"),
        method("List", ".grpc.health.v1.HealthListRequest", ".grpc.health.v1.HealthListResponse"),
        MethodDescriptor { server_streaming: true, ..about_one("Watch") },
    ];
    let messages = vec![request, response, message("HealthListRequest", &[]), list];
    file("grpc/health/v1/health.proto", "grpc.health.v1", &[], messages, vec![service("Health", methods)])
}

fn reflection(version: &str) -> FileDescriptor {
    let package = format!("grpc.reflection.{version}");
    let of = |name: &str| format!(".{package}.{name}");
    let mut request = message("ServerReflectionRequest", &["host string", "file_by_filename string"]);
    let extension = format!("file_containing_extension {}", of("ExtensionRequest"));
    add(&mut request, 4, "file_containing_symbol string");
    add(&mut request, 5, &extension);
    add(&mut request, 6, "all_extension_numbers_of_type string");
    add(&mut request, 7, "list_services string");
    request.field[1].number = 3;
    choose(&mut request, "message_request");
    request.field[0].oneof_index = None;
    let original = format!("original_request {}", of("ServerReflectionRequest"));
    let mut response = message("ServerReflectionResponse", &["valid_host string", &original]);
    for (number, name, kind) in [
        (4, "file_descriptor_response", "FileDescriptorResponse"),
        (5, "all_extension_numbers_response", "ExtensionNumberResponse"),
        (6, "list_services_response", "ListServiceResponse"),
        (7, "error_response", "ErrorResponse"),
    ] {
        add(&mut response, number, &format!("{name} {}", of(kind)));
    }
    choose(&mut response, "message_response");
    response.field[0].oneof_index = None;
    response.field[1].oneof_index = None;
    let services = format!("service *{}", of("ServiceResponse"));
    let messages = vec![
        request,
        message("ExtensionRequest", &["containing_type string", "extension_number int32"]),
        response,
        message("FileDescriptorResponse", &["file_descriptor_proto *bytes"]),
        message("ExtensionNumberResponse", &["base_type_name string", "extension_number *int32"]),
        message("ListServiceResponse", &[&services]),
        message("ServiceResponse", &["name string"]),
        message("ErrorResponse", &["error_code int32", "error_message string"]),
    ];
    let info = MethodDescriptor {
        client_streaming: true,
        server_streaming: true,
        ..method("ServerReflectionInfo", &of("ServerReflectionRequest"), &of("ServerReflectionResponse"))
    };
    let name = format!("grpc/reflection/{version}/reflection.proto");
    file(&name, &package, &[], messages, vec![service("ServerReflection", vec![info])])
}

fn file(
    name: &str,
    package: &str,
    dependency: &[&str],
    message_type: Vec<Descriptor>,
    service: Vec<ServiceDescriptor>,
) -> FileDescriptor {
    FileDescriptor {
        name: name.to_owned(),
        package: package.to_owned(),
        dependency: dependency.iter().map(|name| (*name).to_owned()).collect(),
        message_type,
        service,
        syntax: "proto3".to_owned(),
    }
}

fn service(name: &str, method: Vec<MethodDescriptor>) -> ServiceDescriptor {
    ServiceDescriptor { name: name.to_owned(), method }
}

fn method(name: &str, input: &str, output: &str) -> MethodDescriptor {
    MethodDescriptor {
        name: name.to_owned(),
        input_type: input.to_owned(),
        output_type: output.to_owned(),
        ..MethodDescriptor::default()
    }
}

/// A message whose fields are numbered from 1.
fn message(name: &str, fields: &[&str]) -> Descriptor {
    let mut message = Descriptor { name: name.to_owned(), ..Descriptor::default() };
    for (number, text) in (1..).zip(fields) {
        add(&mut message, number, text);
    }
    message
}

/// Adds the field `name type`, where a type with a dot is a message, and `*` stands for repeated.
fn add(message: &mut Descriptor, number: i32, text: &str) {
    let (name, kind) = text.split_once(' ').unwrap_or((text, "string"));
    let mut field = field(name, number);
    let kind = match kind.strip_prefix('*') {
        Some(kind) => {
            field.label = REPEATED;
            kind
        }
        None => kind,
    };
    field.kind = match kind {
        "int64" => 3,
        "int32" => 5,
        "bool" => 8,
        "string" => 9,
        "bytes" => 12,
        _ => MESSAGE,
    };
    field.type_name = (field.kind == MESSAGE).then(|| kind.to_owned());
    message.field.push(field);
}

/// Makes all fields of `message` a choice.
fn choose(message: &mut Descriptor, name: &str) {
    message.oneof_decl.push(OneofDescriptor { name: name.to_owned() });
    message.field.iter_mut().for_each(|field| field.oneof_index = Some(0));
}

fn field(name: &str, number: i32) -> FieldDescriptor {
    FieldDescriptor {
        name: name.to_owned(),
        number,
        label: OPTIONAL,
        json_name: json_name(name),
        ..FieldDescriptor::default()
    }
}

/// `a_name` as `aName`.
fn json_name(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut joined, word| {
        let (letter, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        joined.push_str(&letter.to_ascii_uppercase());
        joined.push_str(rest);
        joined
    })
}
