package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// reading is an archive in a file, and what archive/tar makes of it.
type reading struct {
	File string `json:"file"`
	// As tar.Writer wrote it.
	Unchanged bool `json:"unchanged"`
	// Why archive/tar refuses it.
	Refused string `json:"refused,omitempty"`
	// `d`, `f` and the SHA-256, or `l` and the target; by the path. All in hexadecimal digits.
	Entries map[string]string `json:"entries"`
}

// differential writes archives to folder that are nearly those of Argo CD, and prints how archive/tar reads each of them.
func differential(folder string, seed int64, count int) error {
	random := rand.New(rand.NewSource(seed))
	output := json.NewEncoder(os.Stdout)
	for at := range count {
		archive := generated(random)
		result := reading{File: fmt.Sprint(at), Unchanged: at%8 == 0}
		if !result.Unchanged {
			mutate(random, archive)
		}
		entries, err := listed(archive)
		result.Entries = entries
		if err != nil {
			result.Refused = err.Error()
		}
		if err := os.WriteFile(filepath.Join(folder, result.File), compressed(archive), 0o600); err != nil {
			return err
		}
		if err := output.Encode(result); err != nil {
			return err
		}
	}
	return nil
}

// generated is an archive of files, folders and links, with names and sizes that need PAX now and then.
func generated(random *rand.Rand) []byte {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for at := range 1 + random.Intn(4) {
		name := fmt.Sprintf("f%d", at)
		if random.Intn(3) == 0 {
			name = strings.Repeat("d", 1+random.Intn(120)) + "/" + name
		}
		if random.Intn(4) == 0 {
			name = "ä" + name
		}
		header := &tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}
		content := make([]byte, random.Intn(1200))
		random.Read(content)
		switch random.Intn(6) {
		case 0:
			header.Typeflag, header.Mode, content = tar.TypeDir, 0o755, nil
			if random.Intn(2) == 0 {
				header.Name += "/"
			}
		case 1:
			header.Typeflag, header.Linkname, content = tar.TypeSymlink, strings.Repeat("x", 1+random.Intn(150)), nil
		case 2:
			// An owner that needs PAX.
			header.Uid = 5_000_000
		}
		header.Size = int64(len(content))
		if writer.WriteHeader(header) == nil {
			writer.Write(content)
		}
	}
	writer.Close()
	return buffer.Bytes()
}

// mutate changes bytes, most often ones of headers that matter, and repairs the checksums so that the change is seen.
func mutate(random *rand.Rand, archive []byte) {
	values := []byte{0, ' ', '/', '.', '=', '\n', '\t', '0', '1', '2', '5', '7', '8', 'x', 'g', 'L', 'K', 0x80, 0xff}
	offsets := []int{0, 1, 3, 8, 100, 103, 124, 125, 130, 134, 135, 156, 157, 257, 262, 263, 345, 346, 360, 508}
	for range 1 + random.Intn(3) {
		block := archive[512*random.Intn(len(archive)/512):][:512]
		at := offsets[random.Intn(len(offsets))]
		if random.Intn(4) == 0 {
			at = random.Intn(512)
		}
		isHeader := string(block[257:262]) == "ustar"
		if isHeader && (at >= 108 && at < 124 || at >= 136 && at < 156 || at >= 329 && at < 345) {
			// Owners, times and devices: only archive/tar reads them.
			continue
		}
		block[at] = values[random.Intn(len(values))]
		if random.Intn(5) == 0 {
			block[at] = byte(random.Intn(256))
		}
		if !isHeader {
			continue
		}
		sum := 0
		copy(block[148:156], "        ")
		for _, b := range block {
			sum += int(b)
		}
		copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	}
}

func compressed(archive []byte) []byte {
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	writer.Write(archive)
	writer.Close()
	return buffer.Bytes()
}

// listed is the tree that archive/tar reads. A later entry replaces an earlier one.
func listed(archive []byte) (map[string]string, error) {
	reader := tar.NewReader(bytes.NewReader(archive))
	entries := map[string]string{}
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		name := path.Clean(header.Name)
		for folder := path.Dir(name); folder != "." && folder != "/"; folder = path.Dir(folder) {
			entries[hex.EncodeToString([]byte(folder))] = "d"
		}
		if name == "." {
			continue
		}
		key := hex.EncodeToString([]byte(name))
		switch header.Typeflag {
		case tar.TypeReg:
			entries[key] = fmt.Sprintf("f%x", sha256.Sum256(content))
		case tar.TypeDir:
			entries[key] = "d"
		case tar.TypeSymlink:
			entries[key] = "l" + hex.EncodeToString([]byte(header.Linkname))
		default:
			return nil, errors.New("a type that Argo CD does not send")
		}
	}
}
