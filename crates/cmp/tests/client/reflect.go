package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// reflector asks one question after the other on one stream, as grpcurl does.
type reflector struct{ stream grpc.ClientStream }

func (r reflector) ask(request *pb.ServerReflectionRequest) (*pb.ServerReflectionResponse, error) {
	response := &pb.ServerReflectionResponse{}
	// EOF says that the server has ended the call, perhaps before this request was sent. The status is what RecvMsg returns.
	if err := r.stream.SendMsg(request); err != nil && err != io.EOF {
		return nil, err
	}
	if err := r.stream.RecvMsg(response); err != nil {
		return nil, err
	}
	if !proto.Equal(response.GetOriginalRequest(), request) {
		return nil, fmt.Errorf("another request came back: %v", response)
	}
	return response, nil
}

// reflect reads all services by reflection of the version, checks their descriptors, and calls what needs no archive by them.
func reflect(socket, version string) (map[string]any, error) {
	conn, err := connect(socket, "", "")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	codec := grpc.ForceCodecCallOption{Codec: protoCodec{}}
	method := "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo"
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, codec)
	if err != nil {
		return nil, err
	}
	r := reflector{stream}
	listed, err := r.ask(&pb.ServerReflectionRequest{Host: "h", MessageRequest: &pb.ServerReflectionRequest_ListServices{ListServices: "*"}})
	if err != nil {
		return nil, err
	}
	set, known := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var names []string
	for _, service := range listed.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
		symbol := &pb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.Name}
		found, err := r.ask(&pb.ServerReflectionRequest{MessageRequest: symbol})
		if err != nil {
			return nil, err
		}
		for _, encoded := range found.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(encoded, file); err != nil {
				return nil, err
			}
			// By its name, it must be the same file.
			named, err := r.ask(&pb.ServerReflectionRequest{MessageRequest: &pb.ServerReflectionRequest_FileByFilename{FileByFilename: file.GetName()}})
			if err != nil {
				return nil, err
			}
			if first := named.GetFileDescriptorResponse().GetFileDescriptorProto(); len(first) == 0 || string(first[0]) != string(encoded) {
				return nil, fmt.Errorf("%s is another file by its name", file.GetName())
			}
			if !known[file.GetName()] {
				known[file.GetName()] = true
				set.File = append(set.File, file)
			}
		}
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	if err := compare(files); err != nil {
		return nil, err
	}
	result := map[string]any{"services": names, "calls": map[string]any{}}
	for _, name := range names {
		descriptor, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, err
		}
		methods := descriptor.(protoreflect.ServiceDescriptor).Methods()
		for at := range methods.Len() {
			method := methods.Get(at)
			if method.IsStreamingClient() || method.IsStreamingServer() {
				continue
			}
			input, output := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
			if err := conn.Invoke(ctx, fmt.Sprintf("/%s/%s", name, method.Name()), input, output, codec); err != nil {
				return nil, err
			}
			text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(output)
			if err != nil {
				return nil, err
			}
			result["calls"].(map[string]any)[string(method.Name())] = json.RawMessage(text)
		}
	}
	for _, symbol := range []string{"plugin.File.chunk", "plugin.ConfigManagementPluginService.MatchRepository", "repository.ParameterAnnouncement.MapEntry",
		"grpc.health.v1.HealthCheckResponse.ServingStatus", "nothing", "plugin.File.nothing", "plugin.ConfigManagementPluginService.Nothing"} {
		found, err := r.ask(&pb.ServerReflectionRequest{MessageRequest: &pb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
		if err != nil {
			return nil, err
		}
		file := &descriptorpb.FileDescriptorProto{}
		if encoded := found.GetFileDescriptorResponse().GetFileDescriptorProto(); len(encoded) > 0 {
			if err := proto.Unmarshal(encoded[0], file); err != nil {
				return nil, err
			}
		}
		result[symbol] = []any{file.GetName(), found.GetErrorResponse().GetErrorCode()}
	}
	for name, request := range map[string]*pb.ServerReflectionRequest{
		"extensions": {MessageRequest: &pb.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "plugin.File"}},
		"extension":  {MessageRequest: &pb.ServerReflectionRequest_FileContainingExtension{FileContainingExtension: &pb.ExtensionRequest{ContainingType: "plugin.File", ExtensionNumber: 7}}},
		"no file":    {MessageRequest: &pb.ServerReflectionRequest_FileByFilename{FileByFilename: "nothing.proto"}},
		"empty":      {},
	} {
		answer, err := r.ask(request)
		if err != nil {
			return nil, err
		}
		result[name] = answer.GetErrorResponse().GetErrorCode()
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if err := stream.RecvMsg(&pb.ServerReflectionResponse{}); err == nil || err.Error() != "EOF" {
		return nil, fmt.Errorf("the stream does not end well: %v", err)
	}
	return result, nil
}

// compare checks the descriptors that grpc-go has too: each field must be the same there.
func compare(files *protoregistry.Files) error {
	own := map[string]protoreflect.FileDescriptor{
		"grpc.health.v1":     grpc_health_v1.File_grpc_health_v1_health_proto,
		"grpc.reflection.v1": pb.File_grpc_reflection_v1_reflection_proto,
	}
	var all error
	count := 0
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		expected := own[string(file.Package())]
		if expected == nil {
			return true
		}
		for at := range file.Messages().Len() {
			message := file.Messages().Get(at)
			other := expected.Messages().ByName(message.Name())
			if other == nil {
				all = errors.Join(all, fmt.Errorf("%s is unknown", message.FullName()))
				continue
			}
			count++
			if a, b := text(message), text(other); a != b {
				all = errors.Join(all, fmt.Errorf("%s and %s", a, b))
			}
		}
		return true
	})
	if count < 10 {
		all = errors.Join(all, fmt.Errorf("only %d messages were compared", count))
	}
	return all
}

// text shows a message's fields in the order of their numbers.
func text(message protoreflect.MessageDescriptor) string {
	described := protodesc.ToDescriptorProto(message)
	sort.Slice(described.Field, func(a, b int) bool { return described.Field[a].GetNumber() < described.Field[b].GetNumber() })
	for _, field := range described.Field {
		field.JsonName = nil
	}
	encoded, _ := prototext.MarshalOptions{}.Marshal(described)
	// prototext puts blanks at random.
	var compact []byte
	for _, b := range encoded {
		if b != ' ' {
			compact = append(compact, b)
		}
	}
	return string(compact)
}

// protoCodec is the usual codec, which the connection's options replace.
type protoCodec struct{}

func (protoCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (protoCodec) Unmarshal(data []byte, v any) error {
	return proto.Unmarshal(data, v.(proto.Message))
}
func (protoCodec) Name() string { return "proto" }
