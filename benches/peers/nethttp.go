// What a plugin with a cache costs on Go's net/http: the reference of reference.rs, by the means of Go's standard library. The token is compared,
// the body is parsed, the canonical text of the input is looked up in a map, and the bytes found there are the answer.
//
// Usage: nethttp 127.0.0.1:4361
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
)

type query struct {
	Input map[string]any `json:"input"`
}

var answers sync.Map

func answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer strong-password" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	var asked query
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// The keys of a map are written in their order.
	key, _ := json.Marshal(asked.Input)
	found, ok := answers.Load(string(key))
	if !ok {
		digests := map[string]string{"digestFront": "sha256:" + strings.Repeat("1", 64), "digestBack": "sha256:" + strings.Repeat("2", 64)}
		found, _ = json.Marshal(map[string]any{"output": map[string]any{"parameters": []any{digests}}})
		answers.Store(string(key), found)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(found.([]byte))
}

func main() {
	http.HandleFunc("POST /api/v1/getparams.execute", answer)
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
