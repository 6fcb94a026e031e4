package main

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// askpass serves Argo CD's askpass service (util/askpass/server.go) at socket: it has the credentials of one nonce, from the environment. It prints
// a line for each question.
func askpass(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	answer := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var asked []byte
		if err := stream.RecvMsg(&asked); err != nil {
			return err
		}
		found := fields(asked)
		if method != "/askpass.AskPassService/GetCredentials" || len(found) != 1 || found[0].Value != os.Getenv("NONCE") {
			fmt.Println("unknown nonce")
			return status.Error(codes.NotFound, "unknown nonce")
		}
		fmt.Println("asked")
		login := field(field(nil, 1, []byte(os.Getenv("LOGIN_USER"))), 2, []byte(os.Getenv("LOGIN_PASSWORD")))
		return stream.SendMsg(&login)
	}
	return grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(answer)).Serve(listener)
}
