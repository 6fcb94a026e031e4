// The documentation's plugin as somebody would write it in Go, and the faults that Go makes easy: `hello TOKEN FAULT`.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

type parameters map[string]any

type answer struct {
	Output struct {
		Parameters []parameters `json:"parameters"`
	} `json:"output"`
}

type question struct {
	ApplicationSetName string `json:"applicationSetName"`
	Input              struct {
		Parameters parameters `json:"parameters"`
	} `json:"input"`
}

func main() {
	token, fault := os.Args[1], os.Args[2]
	path := "/api/v1/getparams.execute"
	if fault == "moved" { // a pattern with a slash at its end redirects whoever leaves it out
		path += "/"
	}
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who?", http.StatusForbidden)
			return
		}
		var asked question
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var found answer
		switch fault {
		case "nil": // nothing was appended, and nil is written as null
		case "nothing":
			found.Output.Parameters = []parameters{}
		case "panic":
			panic("a bug")
		case "error": // http.Error says 500, the headers are gone already
			w.WriteHeader(http.StatusOK)
			http.Error(w, "no database", http.StatusInternalServerError)
			return
		case "return": // a handler that returns early
			return
		case "cut": // in chunks, and dies in the middle
			fmt.Fprint(w, `{"output":{"parameters":[{"name":"a"}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "twice": // two values, of which Argo CD would read the first
			json.NewEncoder(w).Encode(answer{})
			fallthrough
		default:
			for _, name := range strings.Split(fmt.Sprint(asked.Input.Parameters["names"]), ",") {
				found.Output.Parameters = append(found.Output.Parameters, parameters{
					"name": name, "of": asked.ApplicationSetName, "type": r.Header.Get("Content-Type"),
				})
			}
		}
		json.NewEncoder(w).Encode(found)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	http.Serve(listener, nil)
}
