// A client that connects and asks as Argo CD's repo-server does (cmpserver/apiclient/clientset.go, util/grpc/grpc.go, util/cmp/stream.go),
// without its code: `client SOCKET METHOD [FLAGS]`. It prints one JSON object a call. Messages are written by hand, so that grpc-go is
// the only dependency.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// raw passes messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// field appends a length-delimited field.
func field(to []byte, number byte, value []byte) []byte {
	to = append(to, number<<3|2)
	return append(varint(to, uint64(len(value))), value...)
}

func varint(to []byte, n uint64) []byte {
	for n >= 0x80 {
		to = append(to, byte(n)|0x80)
		n >>= 7
	}
	return append(to, byte(n))
}

// fields splits a message into its fields' numbers and values.
func fields(message []byte) (found []struct {
	Number int
	Value  any
}) {
	next := func() (n uint64) {
		for shift := 0; len(message) > 0; shift += 7 {
			b := message[0]
			message = message[1:]
			n |= uint64(b&0x7f) << shift
			if b < 0x80 {
				break
			}
		}
		return
	}
	for len(message) > 0 {
		tag := next()
		var value any
		if tag&7 == 2 {
			length := next()
			value, message = string(message[:length]), message[length:]
		} else {
			value = next()
		}
		found = append(found, struct {
			Number int
			Value  any
		}{int(tag >> 3), value})
	}
	return
}

// ready is how long a connection may take to be served. Argo CD's BlockingNewClient waits for ever.
var ready = 30 * time.Second

// connect dials once, as Argo CD's BlockingNewClient: a connection that is not served is never replaced. With a CA, socket is an address.
func connect(socket, ca, pair string) (*grpc.ClientConn, error) {
	network, secure := "unix", insecure.NewCredentials()
	if ca != "" {
		roots, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
		config.RootCAs.AppendCertsFromPEM(roots)
		if pair != "" {
			own, err := tls.LoadX509KeyPair(pair, pair)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{own}
		}
		network, secure = "tcp", credentials.NewTLS(config)
	}
	dialed, err := net.Dial(network, socket)
	if err != nil {
		return nil, err
	}
	dialer := func(context.Context, string) (net.Conn, error) {
		return dialed, nil
	}
	const max = 100 * 1024 * 1024
	conn, err := grpc.NewClient("passthrough:"+socket, grpc.WithContextDialer(dialer), grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(max), grpc.MaxCallSendMsgSize(max)))
	if err != nil {
		return nil, err
	}
	conn.Connect()
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return nil, fmt.Errorf("not ready in %v", ready)
		}
	}
	return conn, nil
}

// archive is a tgz of folder, as Argo CD makes it.
func archive(folder string) ([]byte, error) {
	var bytes bytes.Buffer
	gz := gzip.NewWriter(&bytes)
	writer := tar.NewWriter(gz)
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header.Name = relative
		if err := writer.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(writer, file)
		return err
	})
	err = errors.Join(err, writer.Close(), gz.Close())
	return bytes.Bytes(), err
}

// watch prints each state that the health service sends, and returns the end of the stream.
func watch(ctx context.Context, conn *grpc.ClientConn, asked []byte) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/grpc.health.v1.Health/Watch")
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&asked), stream.CloseSend()); err != nil {
		return err
	}
	for {
		state := []byte{}
		if err := stream.RecvMsg(&state); err != nil {
			return err
		}
		found := []map[string]any{}
		for _, f := range fields(state) {
			found = append(found, map[string]any{fmt.Sprint(f.Number): f.Value})
		}
		json.NewEncoder(os.Stdout).Encode(map[string]any{"code": "OK", "fields": found})
	}
}

type request struct {
	socket, method, app string
	ca, pair            string
	token, plugin       string
	service             string
	traceparent         string
	tgz                 []byte
	env                 list
	timeout             time.Duration
	chunk               int
	checksum            string
	noMetadata, twice   bool
	leave               int
}

func (r *request) ask() map[string]any {
	began := time.Now()
	answer, err := r.call()
	result := map[string]any{"ms": time.Since(began).Milliseconds()}
	if err != nil {
		result["code"], result["error"] = status.Code(err).String(), status.Convert(err).Message()
		return result
	}
	result["code"] = "OK"
	var found []map[string]any
	for _, f := range fields(answer) {
		found = append(found, map[string]any{fmt.Sprint(f.Number): f.Value})
	}
	result["fields"] = found
	return result
}

func (r *request) call() ([]byte, error) {
	conn, err := connect(r.socket, r.ca, r.pair)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.Background(), func() {}
	if r.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
	}
	defer cancel()
	if r.token != "" {
		ctx = grpcmetadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.token)
	}
	if r.plugin != "" {
		ctx = grpcmetadata.AppendToOutgoingContext(ctx, "cmp-plugin", r.plugin)
	}
	if r.traceparent != "" {
		ctx = grpcmetadata.AppendToOutgoingContext(ctx, "traceparent", r.traceparent)
	}
	empty, answer := []byte{}, []byte{}
	if r.method == "Health" || r.method == "Watch" {
		asked := []byte{}
		if r.service != "" {
			asked = field(nil, 1, []byte(r.service))
		}
		if r.method == "Health" {
			return answer, conn.Invoke(ctx, "/grpc.health.v1.Health/Check", &asked, &answer)
		}
		return nil, watch(ctx, conn, asked)
	}
	// The conversation of every generate: the configuration first, on the same connection.
	const service = "/plugin.ConfigManagementPluginService/"
	if err := conn.Invoke(ctx, service+"CheckPluginConfiguration", &empty, &answer); err != nil || r.method == "CheckPluginConfiguration" {
		return answer, err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, service+r.method)
	if err != nil {
		return nil, err
	}
	metadata := field(field(nil, 1, []byte(filepath.Base(r.app))), 2, []byte(r.app))
	metadata = varint(append(field(metadata, 3, []byte(r.checksum)), 4<<3), uint64(len(r.tgz)))
	for _, entry := range r.env {
		name, value, _ := strings.Cut(entry, "=")
		metadata = field(metadata, 5, field(field(nil, 1, []byte(name)), 2, []byte(value)))
	}
	messages := [][]byte{field(nil, 1, metadata)}
	if r.noMetadata {
		messages = nil
	}
	for at := 0; at < len(r.tgz); at += r.chunk {
		messages = append(messages, field(nil, 2, field(nil, 1, r.tgz[at:min(at+r.chunk, len(r.tgz))])))
	}
	if r.twice {
		messages = append(messages, messages[len(messages)-1])
	}
	for at, message := range messages {
		if at == r.leave {
			return nil, errors.New("left")
		}
		if err := stream.SendMsg(&message); err != nil {
			// Argo CD reports this, which says nothing of the reason.
			return nil, fmt.Errorf("error sending stream: %w", err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return answer, stream.RecvMsg(&answer)
}

func main() {
	r := &request{}
	var folder string
	var count, pad int
	var seed int64
	flag.StringVar(&folder, "folder", "", "the repository")
	flag.StringVar(&r.app, "app", ".", "the Application's path")
	flag.Var(&r.env, "env", "NAME=value, repeated")
	flag.DurationVar(&r.timeout, "timeout", 0, "the deadline; none by default")
	flag.DurationVar(&ready, "ready", ready, "how long a connection may take to be served")
	flag.IntVar(&r.chunk, "chunk", 1024, "bytes a message")
	flag.StringVar(&r.checksum, "checksum", "", "another checksum")
	flag.BoolVar(&r.noMetadata, "no-metadata", false, "send no metadata")
	flag.BoolVar(&r.twice, "twice", false, "send the last message again")
	flag.IntVar(&r.leave, "leave", -1, "go away before this message")
	flag.StringVar(&r.ca, "ca", "", "the file of a CA: TLS to an address, in place of a unix socket")
	flag.StringVar(&r.pair, "pair", "", "the file of the caller's certificate and key")
	flag.StringVar(&r.traceparent, "traceparent", "", "the caller's place in a trace")
	flag.StringVar(&r.token, "token", "", "the caller's token")
	flag.StringVar(&r.plugin, "plugin", "", "the plugin's name, for an address with several")
	flag.IntVar(&count, "n", 1, "calls at once, or archives of Differential")
	flag.Int64Var(&seed, "seed", 1, "the seed of Differential")
	flag.StringVar(&r.service, "service", "", "the service whose health is asked for")
	flag.IntVar(&pad, "pad", 0, "bytes after the archive, which nobody needs")
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: client SOCKET METHOD [FLAGS] | client FOLDER Differential [FLAGS] | client SOCKET Askpass")
		os.Exit(2)
	}
	r.socket, r.method = os.Args[1], os.Args[2]
	if version, found := strings.CutPrefix(r.method, "Reflect/"); found {
		result, err := reflect(r.socket, version)
		if err != nil {
			result = map[string]any{"code": status.Code(err).String(), "error": err.Error()}
		}
		json.NewEncoder(os.Stdout).Encode(result)
		return
	}
	if r.method == "Askpass" {
		fmt.Fprintln(os.Stderr, askpass(r.socket))
		os.Exit(1)
	}
	flag.CommandLine.Parse(os.Args[3:])
	if r.method == "Differential" {
		if err := differential(r.socket, seed, count); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	if folder != "" {
		tgz, err := archive(folder)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		r.tgz = append(tgz, make([]byte, pad)...)
	}
	if r.checksum == "" {
		sum := sha256.Sum256(r.tgz)
		r.checksum = hex.EncodeToString(sum[:])
	}
	var all sync.WaitGroup
	results := make([]map[string]any, count)
	for at := range results {
		all.Add(1)
		go func() {
			defer all.Done()
			results[at] = r.ask()
		}()
	}
	all.Wait()
	for _, result := range results {
		json.NewEncoder(os.Stdout).Encode(result)
	}
}
